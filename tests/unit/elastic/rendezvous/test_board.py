from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from planaria.elastic.rendezvous import RendezvousConnectionError, RendezvousStateError
from planaria.elastic.rendezvous.board import MOST_PINNED, pin
from planaria.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend


class Register(RendezvousBackend):
    """A backend in memory; `forestall` lets somebody else write first, so many times."""

    def __init__(self, state: bytes | None = None, forestall: int = 0) -> None:
        self.state = state
        self.version = 0 if state is None else 1
        self.forestall = forestall

    @property
    def name(self) -> str:
        return "register"

    def get_state(self) -> tuple[bytes, Any] | None:
        return None if self.state is None else (self.state, self.version)

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, Any, bool] | None:
        if self.forestall:
            self.forestall -= 1
            self.version += 1
            self.state = board(*addresses(self), f"rival:{self.forestall + 1}")
        is_ours = (token or 0) == self.version
        if is_ours:
            self.state, self.version = state, self.version + 1
        assert self.state is not None
        return self.state, self.version, is_ours


def board(*endpoints: str) -> bytes:
    return json.dumps({"planaria": 1, "endpoints": endpoints}).encode()


def addresses(register: Register) -> list[str]:
    found: list[str] = json.loads(register.state)["endpoints"] if register.state else []
    return found


def test_every_node_finds_those_that_came_before() -> None:
    register = Register()
    assert pin(register, "a:1") == ("a:1",)
    assert pin(register, "b:2") == ("a:1", "b:2")
    assert pin(register, "[::1]:3") == ("a:1", "b:2", "[::1]:3")
    assert register.state == board("a:1", "b:2", "[::1]:3")


def test_who_was_forestalled_looks_again_and_drops_nobody() -> None:
    register = Register(board("a:1"), forestall=2)
    assert pin(register, "b:2") == ("a:1", "rival:2", "rival:1", "b:2")


def test_a_board_has_room_for_the_newest() -> None:
    register = Register(board(*(f"n{number}:1" for number in range(MOST_PINNED))))
    pinned = pin(register, "new:1")
    assert (len(pinned), pinned[0], pinned[-1]) == (MOST_PINNED, "n1:1", "new:1")


@pytest.mark.parametrize(
    "state",
    [
        pickle.dumps({"planaria": 1}),
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"planaria": 2, "endpoints": []}',
        b'{"planaria": 1, "endpoints": ["no port"]}',
        b'{"planaria": 1, "endpoints": [7]}',
        b'{"planaria": 1, "endpoints": null}',
    ],
)
def test_what_is_no_board_is_not_touched(state: bytes) -> None:
    register = Register(state)
    with pytest.raises(RendezvousStateError):
        pin(register, "a:1")
    assert register.state == state


def test_a_backend_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planaria.elastic.rendezvous.board._TRIES", 2)
    with pytest.raises(RendezvousConnectionError, match=r"the backend 'register' took no change in 2 tries"):
        pin(Register(board("a:1"), forestall=2), "b:2")
