from __future__ import annotations

import pytest

from planaria.agent.refuge import Refuge

ALONE = "commits are kept in this agent's memory"
TWO = "commits are kept in the memory of two agents"


@pytest.mark.parametrize(
    ("directory", "has_buddy", "line"),
    [
        (None, True, f"{TWO}: they outlive the loss of one node, not of two (--snapshot-dir keeps them on disk too)"),
        (None, False, f"{ALONE}: they outlive the workers, not the agent (--snapshot-dir keeps them on disk too)"),
        ("/d", False, f"{ALONE}: they outlive the workers; the agent's death goes back to the newest in /d"),
        ("/d", True, ""),
    ],
)
def test_what_is_said_at_the_start(directory: str | None, has_buddy: bool, line: str) -> None:
    assert Refuge(directory).line(has_buddy=has_buddy) == line


@pytest.mark.parametrize("directory", [None, "/d"])
@pytest.mark.parametrize("has_buddy", [True, False])
def test_the_same_again_is_not_said(directory: str | None, has_buddy: bool) -> None:
    refuge = Refuge(directory)
    refuge.line(has_buddy=has_buddy)
    assert [refuge.line(has_buddy=has_buddy) for _ in range(3)] == ["", "", ""]


@pytest.mark.parametrize(
    ("directory", "alone"),
    [
        (None, "they outlive the workers, not the agent"),
        ("/d", "they outlive the workers; the agent's death goes back to the newest in /d"),
    ],
)
def test_a_node_that_is_left_alone_or_is_no_more_says_so(directory: str | None, alone: str) -> None:
    refuge = Refuge(directory)
    refuge.line(has_buddy=True)
    assert refuge.line(has_buddy=False) == f"{ALONE} from now on: {alone}"
    assert refuge.line(has_buddy=False) == ""
    assert refuge.line(has_buddy=True) == f"{TWO} from now on: they outlive the loss of one node, not of two"
