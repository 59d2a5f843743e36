from __future__ import annotations

from typing import Any

import pytest
from kubesim.given import Desk, elastic_spec
from stored_rounds import NEXT, ONE, RUN, TWO, node, stored

from planaria.base.value import replace
from planaria.contract.burial import KEY
from planaria.kube import burial
from planaria.kube.burial import RoundSeen
from planaria.kube.model import Bury, Create
from planaria.kube.seen import has_ended
from planaria.rendezvous.records import key_of
from planaria.store.kubernetes_keys import read_keys
from planaria.store.model import Found, Get


def test_the_newest_round_is_read_with_the_note() -> None:
    seen = burial.round_seen(stored(node(ONE), node(TWO), note=(node(ONE),)), RUN)
    assert seen == RoundSeen((node(ONE), node(TWO)), frozenset({node(ONE)}))


def test_spectators_and_nodes_without_pods_are_left_out() -> None:
    seen = burial.round_seen(stored(node(ONE), "host-d41d8cd9", node(TWO), size=2), RUN)
    assert seen.nodes == (node(ONE),)


@pytest.mark.parametrize(
    "found", [{}, {"data": None}, {"data": {"planaria.index": "{"}}, {"data": {"planaria.index": "[]"}}]
)
def test_an_object_that_is_empty_or_not_ours_has_no_round(found: dict[str, Any]) -> None:
    assert burial.round_seen(found, RUN) == RoundSeen()


def test_another_run_in_the_same_object_is_not_ours() -> None:
    assert burial.round_seen(stored(node(ONE)), "another") == RoundSeen()


@pytest.mark.parametrize(
    ("what", "living", "gone"),
    [
        ("its pod is there", (ONE, TWO), ()),
        ("its pod is gone", (TWO,), (node(ONE),)),
        ("a pod of its name is there, which is another", (TWO, NEXT), (node(ONE),)),
        ("all are gone", (), (node(ONE), node(TWO))),
    ],
)
def test_a_node_is_gone_when_no_pod_has_its_uid(what: str, living: tuple[str, ...], gone: tuple[str, ...]) -> None:
    assert burial.gone((node(ONE), node(TWO)), living) == gone, what


def test_a_node_without_a_pod_is_never_gone() -> None:
    assert burial.gone(("host-d41d8cd9",), ()) == ()


def test_a_note_is_a_key_of_the_store_and_leaves_the_rest_alone() -> None:
    before = stored(node(ONE), node(TWO), note=(node(ONE), node(NEXT)))
    after = burial.noted(before, RUN, (node(TWO),))
    assert burial.round_seen(after, RUN).buried == {node(ONE), node(TWO)}, "of the round before nobody need be named"
    assert after["data"]["x"] == "y"
    assert after["metadata"] == before["metadata"]
    old, new = read_keys(before), read_keys(after)
    assert new.revision == old.revision + 1
    changes = new.changes_after(old.revision)
    assert changes is not None
    assert [change.key for change in changes] == [key_of(RUN, KEY)], "whoever watches is told"
    assert isinstance(new.perform(Get(key_of(RUN, "round"))), Found)


def test_nothing_is_noted_in_what_is_not_ours() -> None:
    with pytest.raises(ValueError, match="not ours"):
        burial.noted({"data": {"planaria.index": "[]"}}, RUN, (node(ONE),))


def test_people_read_names_and_not_too_many() -> None:
    names = [node(ONE, f"resnet-worker-{index}") for index in range(7)]
    assert burial.told(names[:1]) == "resnet-worker-0"
    assert burial.told(names[:5]).endswith("resnet-worker-4")
    assert burial.told(names).endswith("resnet-worker-4 and 2 more")


# What is decided.


def at_work(**world: object) -> Desk:
    desk = Desk(elastic_spec(most=1))
    desk.look()
    desk.run_all()
    desk.world.update(world)
    return desk


def buried(desk: Desk) -> list[tuple[str, ...]]:
    return [action.nodes for action in desk.decide().actions if isinstance(action, Bury)]


def of_the_only_worker(desk: Desk) -> str:
    """Give the worker's pod a UID as a cluster would, and return the name of its agent."""
    (pod,) = desk.pods.values()
    desk.pods[pod.name] = replace(pod, uid=ONE)
    return node(ONE, pod.name)


def test_nobody_is_buried_whose_pod_is_there_or_on_its_way_out() -> None:
    desk = at_work()
    desk.world["round"] = RoundSeen((of_the_only_worker(desk),))
    assert buried(desk) == []
    desk.change(0, is_going=True, node="n2")
    desk.world["lost_nodes"] = frozenset({"n2"})
    assert buried(desk) == []
    desk.change(0, phase="Failed")
    assert buried(desk) == [], "a phase may be told while containers still end"


def test_a_node_is_buried_once_when_its_pod_has_ended_or_is_gone() -> None:
    desk = at_work()
    lost = of_the_only_worker(desk)
    desk.world["round"] = RoundSeen((lost,))
    desk.change(0, phase="Failed", has_ended=True)
    assert buried(desk) == [(lost,)]
    desk.vanish(0)
    assert buried(desk) == [(lost,)]
    desk.world["round"] = RoundSeen((lost,), frozenset({lost}))
    assert buried(desk) == []


def test_the_note_comes_before_all_that_is_made() -> None:
    desk = at_work()
    desk.world["round"] = RoundSeen((of_the_only_worker(desk),))
    desk.vanish(0)
    actions = desk.decide().actions
    assert isinstance(actions[0], Bury)
    assert any(isinstance(action, Create) for action in actions)


def test_a_pod_of_the_same_name_does_not_keep_the_one_before_it_alive() -> None:
    desk = at_work()
    lost = node(NEXT, "resnet-worker-0")
    of_the_only_worker(desk)
    desk.world["round"] = RoundSeen((lost,))
    assert buried(desk) == [(lost,)]


def test_a_job_that_is_over_buries_nobody() -> None:
    desk = at_work()
    desk.world["round"] = RoundSeen((node(NEXT),))
    desk.status["conditions"] = [{"type": "Succeeded", "status": "True"}]
    desk.status["state"] = "Succeeded"
    assert buried(desk) == []


@pytest.mark.parametrize(
    ("phase", "states", "ended"),
    [
        ("Failed", [{"terminated": {"exitCode": 137}}], True),
        ("Succeeded", [{"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 0}}], True),
        ("Failed", [{"terminated": {"exitCode": 137}}, {"running": {}}], False),
        ("Failed", [{"waiting": {"reason": "ContainerCreating"}}], False),
        ("Failed", [], False),
        ("Running", [{"terminated": {"exitCode": 1}}], False),
        ("Unknown", [{"terminated": {"exitCode": 1}}], False),
    ],
)
def test_a_pod_has_ended_when_its_kubelet_says_so_of_every_container(
    phase: str, states: list[dict[str, Any]], ended: bool
) -> None:
    statuses = [{"name": "x", "state": state} for state in states]
    assert has_ended({"status": {"phase": phase, "containerStatuses": statuses}}) is ended
