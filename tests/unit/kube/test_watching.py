from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from planaria.kube.api import Change
from planaria.kube.resources import POD
from planaria.kube.watching import SILENT_S, Copy, Selection, Watcher, silence


def pod(name: str, version: int, uid: str = "", job: str = "resnet") -> dict[str, Any]:
    labels = {"job-name": job} if job else {}
    meta = {"name": name, "namespace": "n", "uid": uid or name, "resourceVersion": str(version), "labels": labels}
    return {"metadata": meta | {"managedFields": []}}


class Seen:
    """A copy, and the versions of what it woke for."""

    def __init__(self) -> None:
        self.woken: list[tuple[str | None, str | None]] = []
        self.copy = Copy(Selection(POD), lambda old, new: self.woken.append((version(old), version(new))))

    def names(self, job: str = "resnet") -> list[str]:
        return [obj["metadata"]["name"] for obj in self.copy.of_job(("n", job))]


def version(obj: dict[str, Any] | None) -> str | None:
    return None if obj is None else obj["metadata"]["resourceVersion"]


def test_a_list_is_the_whole_truth_and_wakes_only_for_what_changed() -> None:
    seen = Seen()
    assert not seen.copy.is_synced.is_set()
    seen.copy.reset([pod("a", 1), pod("b", 2)])
    assert seen.copy.is_synced.is_set()
    seen.copy.reset([pod("b", 2), pod("c", 5)])
    assert seen.names() == ["b", "c"]
    assert seen.woken == [(None, "1"), (None, "2"), ("1", None), (None, "5")]


def test_changes_come_in_and_what_nobody_reads_is_dropped() -> None:
    seen = Seen()
    seen.copy.take(Change("ADDED", pod("a", 1)))
    seen.copy.take(Change("MODIFIED", pod("a", 2)))
    seen.copy.take(Change("BOOKMARK", {"metadata": {"resourceVersion": "9"}}))
    assert "managedFields" not in (seen.copy.get(("n", "a")) or {})["metadata"]
    seen.copy.take(Change("DELETED", pod("a", 3)))
    assert seen.woken == [(None, "1"), ("1", "2"), ("2", None)]
    assert (len(seen.copy), seen.names()) == (0, [])


def test_an_object_that_cannot_be_read_is_said_once_and_leaves_its_metadata_and_all_others() -> None:
    def keep(obj: dict[str, Any]) -> dict[str, Any]:
        if obj["metadata"]["name"] == "bad":
            raise OverflowError
        return obj

    said: list[str] = []
    copy = Copy(Selection(POD), lambda _old, _new: None, keep)
    Watcher(None, copy, lambda: 0.5, said.append)  # type: ignore[arg-type]  # it asks nobody
    for version in (1, 2):
        copy.take(Change("MODIFIED", pod("bad", version) | {"spec": {}}))
    copy.take(Change("ADDED", pod("good", 3)))
    assert [obj["metadata"]["name"] for obj in copy.of_job(("n", "resnet"))] == ["bad", "good"]
    assert list(copy.get(("n", "bad")) or ()) == ["metadata"]
    assert said == ["Pod n/bad is not read: OverflowError"]


def test_what_we_wrote_is_there_at_once_and_an_older_tale_of_it_is_not_believed() -> None:
    seen = Seen()
    seen.copy.wrote(pod("a", 7))
    seen.copy.take(Change("MODIFIED", pod("a", 6)))
    seen.copy.take(Change("MODIFIED", pod("a", 7)))
    assert seen.woken == [(None, "7")]


def test_the_end_of_one_before_is_not_the_end_of_the_one_we_made() -> None:
    seen = Seen()
    seen.copy.wrote(pod("a", 7, uid="new"))
    seen.copy.take(Change("DELETED", pod("a", 6, uid="old")))
    seen.copy.gone(("n", "a"), "old")
    assert seen.names() == ["a"]
    seen.copy.gone(("n", "a"), "new")
    assert seen.names() == []


def test_an_answer_that_comes_after_the_end_of_its_object_revives_nobody() -> None:
    """The server answers a delete with the pod, as it was; the watch may have told its end before."""
    seen = Seen()
    seen.copy.take(Change("ADDED", pod("a", 1)))
    seen.copy.take(Change("DELETED", pod("a", 3)))
    seen.copy.wrote(pod("a", 2))
    seen.copy.take(Change("DELETED", pod("b", 4)))  # made and gone before our answer to making it came
    seen.copy.wrote(pod("b", 3))
    assert seen.names() == []


def test_an_older_list_is_believed_since_the_server_may_have_been_restored() -> None:
    seen = Seen()
    seen.copy.wrote(pod("a", 7))
    seen.copy.expect()
    seen.copy.reset([pod("a", 3)])
    assert version(seen.copy.get(("n", "a"))) == "3"


def test_what_was_written_while_a_list_was_on_its_way_is_newer_than_the_list() -> None:
    seen = Seen()
    seen.copy.wrote(pod("b", 2))
    seen.copy.expect()
    seen.copy.wrote(pod("a", 7))
    seen.copy.reset([pod("a", 3), pod("b", 1)])
    assert [version(seen.copy.get(("n", name))) for name in ("a", "b")] == ["7", "1"]


def test_a_pod_that_gets_the_label_of_another_job_leaves_the_first() -> None:
    seen = Seen()
    seen.copy.wrote(pod("a", 1))
    seen.copy.wrote(pod("a", 2, job="other"))
    assert (seen.names(), seen.names("other")) == ([], ["a"])
    seen.copy.gone(("n", "a"), "a")
    assert (seen.names(), seen.names("other")) == ([], [])


NAMES, JOBS = st.sampled_from("abc"), st.sampled_from(["", "x", "y"])
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES, JOBS),
    st.tuples(st.just("drop"), NAMES, st.just("")),
    st.tuples(st.just("list"), NAMES, JOBS),
)


@given(st.lists(STEPS, max_size=12))
def test_whatever_happens_every_object_is_with_the_job_of_its_label_and_with_no_other(
    steps: list[tuple[str, str, str]],
) -> None:
    seen = Seen()
    for number, (what, name, job) in enumerate(steps, 1):
        uid = f"{name}-{number}"
        if what == "put":
            seen.copy.take(Change("MODIFIED", pod(name, number, uid, job)))
        elif what == "list":
            seen.copy.reset([pod(name, number, uid, job)])
        elif found := seen.copy.get(("n", name)):
            seen.copy.gone(("n", name), found["metadata"]["uid"])
        labels = {obj["metadata"]["name"]: obj["metadata"]["labels"].get("job-name", "") for obj in seen.copy}
        for one in ("x", "y"):
            assert seen.names(one) == sorted(name for name, label in labels.items() if label == one)


def test_a_watch_that_heard_nothing_for_long_is_named() -> None:
    watcher = Watcher(None, Seen().copy, lambda: 0.5, print)  # type: ignore[arg-type]  # nobody asks
    watcher.heard_at = 0.0  # so that no difference is rounded
    assert silence([watcher], SILENT_S) == ""
    assert silence([watcher], SILENT_S + 1.0) == "nothing was heard of pods for 900 s"


def test_objects_of_other_jobs_and_of_none_are_apart() -> None:
    seen = Seen()
    seen.copy.reset([pod("a", 1), pod("b", 2, job="other"), pod("c", 3, job="")])
    assert (seen.names(), seen.names("other"), len(seen.copy)) == (["a"], ["b"], 3)


def test_a_list_of_one_namespace_says_nothing_about_another() -> None:
    copy = Copy(Selection(POD, ("n", "m")), lambda _old, _new: None)
    other = pod("a", 1, uid="other")
    other["metadata"]["namespace"] = "m"
    copy.reset([pod("a", 1)], "n")
    assert not copy.is_synced.is_set(), "half of it was not listed"
    copy.reset([other], "m")
    assert copy.is_synced.is_set()
    copy.wrote(pod("b", 9))
    copy.expect("m")
    copy.reset([], "m")
    assert [obj["metadata"]["name"] for obj in copy] == ["a", "b"]
    copy.reset([pod("b", 3)], "n")
    assert [version(obj) for obj in copy] == ["9"], "it was written after that list was asked for"
