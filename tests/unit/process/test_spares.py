from __future__ import annotations

import pytest

from planaria.base.value import replace
from planaria.contract.blackbox import Join, Learned
from planaria.contract.standby import JOIN, PRELOAD, Report
from planaria.process.spares import (
    FIRST_BYTES,
    LATE_LEAST_S,
    PROMOTED,
    RESERVE_BYTES,
    RETRIES,
    Absence,
    Count,
    Lesson,
    Lost,
    Plan,
    absence,
    failures_after_unfit,
    how_many,
    is_same,
    make_plan,
    make_plans,
    narrow,
    newer,
    not_ready,
    own_files,
    refusal,
    safe_mode,
    standby_environment,
    without_unfit,
)
from planaria.process.spawn import Start

GB = 1 << 30
LIBRARY = "/usr/lib/python3.11"
LIFE = Learned(
    (
        ("sys", ""),
        ("os", f"{LIBRARY}/os.py"),
        ("torch", "/job/.venv/lib/python3.11/site-packages/torch/__init__.py"),
        ("torch.nn", "/job/.venv/lib/python3.11/site-packages/torch/nn/__init__.py"),
        ("yaml", "/usr/lib/python3/dist-packages/yaml/__init__.py"),
        ("models", "/job/src/models/__init__.py"),
        ("models._fast", ""),
        ("shared", "/elsewhere/shared.py"),
        ("here", "relative/here.py"),
        ("jobs", "/jobs/jobs.py"),
    )
)


def names(pairs: tuple[tuple[str, str], ...]) -> list[str]:
    return [name for name, _ in pairs]


def test_what_lies_in_the_users_tree_is_not_loaded_ahead() -> None:
    plan = make_plan(LIFE, ("/job/src", "/job"))
    assert plan.mode == PRELOAD
    assert names(plan.load) == ["sys", "os", "torch", "torch.nn", "yaml", "shared", "jobs"]
    assert names(plan.own) == ["models", "models._fast", "here"]


def test_a_current_folder_that_holds_everything_leaves_the_library_outside() -> None:
    plan = make_plan(LIFE, ("/",))
    assert names(plan.load) == ["sys", "os", "torch", "torch.nn", "yaml"]


QUICK, SLOW = Join(0, 2.0, "/job/main.py"), Join(2, 30.0, "/job/main.py")
PROGRAM = (("/job/main.py", (1,)), ("/job/src/models/__init__.py", (2,)))


def test_a_program_is_run_by_the_standby_of_a_rank_that_has_joined_and_the_rest_is_loaded_there() -> None:
    lesson = Lesson(replace(LIFE, joins=(QUICK, SLOW)), PROGRAM)
    plans = make_plans(lesson, ("/job",), 3)
    assert [plan.mode for plan in plans] == [JOIN, PRELOAD, JOIN]
    for plan in plans:
        assert (plan.load, plan.own) == (make_plan(LIFE, ("/job",)).load, make_plan(LIFE, ("/job",)).own)
        assert plan.program == PROGRAM


def test_a_standby_may_take_much_longer_to_join_than_a_worker_did_and_that_is_no_reason_for_another_one() -> None:
    quick, slow = Lesson(replace(LIFE, joins=(QUICK,))), Lesson(replace(LIFE, joins=(replace(SLOW, local_rank=0),)))
    (one,), (other,) = make_plans(quick, ("/job",), 1), make_plans(slow, ("/job",), 1)
    assert (one.patience_s, other.patience_s) == (LATE_LEAST_S, 300.0)
    assert is_same(one, other)
    assert not is_same(one, replace(one, mode=PRELOAD))


def test_the_users_own_files_are_the_main_one_and_those_of_the_users_tree() -> None:
    assert own_files(replace(LIFE, joins=(QUICK, SLOW)), ("/job/src",)) == (
        "/job/main.py",
        "/job/src/models/__init__.py",
        "relative/here.py",
    )


PART = Learned(LIFE.files[:3])
MOVED = Learned((("sys", ""), ("os", "/elsewhere/os.py")))
BOTH, AGAIN = replace(LIFE, joins=(QUICK, SLOW)), Join(0, 3.0, "/job/main.py")


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (Learned(), LIFE, LIFE),
        (LIFE, PART, LIFE),
        (PART, LIFE, LIFE),
        (LIFE, MOVED, MOVED),
        (BOTH, PART, BOTH),
        (BOTH, replace(PART, joins=(AGAIN,)), replace(LIFE, joins=(AGAIN, SLOW))),
        (LIFE, replace(PART, joins=(QUICK,)), replace(PART, joins=(QUICK,))),
    ],
)
def test_a_list_that_is_a_part_of_the_one_before_teaches_nothing(before: Learned, now: Learned, found: Learned) -> None:
    assert newer(Lesson(before), Lesson(now)) == Lesson(found)


def test_of_a_life_that_is_under_way_only_those_join_who_have() -> None:
    now = Lesson(replace(PART, joins=(AGAIN,)))
    assert newer(Lesson(BOTH), now, is_under_way=True) == Lesson(replace(LIFE, joins=(AGAIN,)))
    assert newer(Lesson(BOTH), Lesson(PART), is_under_way=True) == Lesson(LIFE)


def test_what_another_program_has_taught_is_forgotten_also_when_that_was_more() -> None:
    edited = Lesson(PART, (("/job/main.py", (9,)),))
    assert newer(Lesson(BOTH, PROGRAM), edited) == edited
    same = Lesson(PART, (("/job/main.py", (1,)), ("/job/more.py", (3,))))
    assert newer(Lesson(BOTH, PROGRAM), same) == Lesson(BOTH, (*PROGRAM, ("/job/more.py", (3,))))


def test_papers_tell_everything_a_standby_needs() -> None:
    papers = Plan(load=(("a", "/a"),), own=(("b", "/b"),)).papers()
    assert papers[0] == ("mode", "preload", "")
    assert ("rank", "RANK", "") in papers
    assert ("rank", "LOCAL_RANK", "") not in papers
    assert papers[-2:] == [("load", "a", "/a"), ("own", "b", "/b")]


PLAN = Plan(load=(("a", "/a"), ("a.b", "/a/b"), ("c", "/c")), own=(("d", "/d"),))


@pytest.mark.parametrize(
    ("report", "left"),
    [
        (Report(), ["a", "a.b", "c"]),
        (Report(reads=(("a.b", "RANK"),)), ["c"]),
        (Report(device=("c",)), ["a", "a.b"]),
        (Report(draws=("a.b",)), ["c"]),
        (Report(differs=(("d", "/x"),), device=("c",)), []),
        (Report(failed=(("a", "no"),), watched=("/c",)), ["a", "a.b", "c"]),
    ],
)
def test_what_must_not_be_loaded_ahead_is_left_out(report: Report, left: list[str]) -> None:
    narrowed = narrow(PLAN, report)
    assert names(narrowed.load) == left
    assert narrowed.own == PLAN.own


def test_after_too_many_that_were_unfit_the_next_one_loads_nothing_and_is_tried() -> None:
    unfit = [Report(device=("c",))]
    assert names(without_unfit(PLAN, unfit * RETRIES).load) == ["a", "a.b"]
    assert without_unfit(PLAN, unfit * (RETRIES + 1)).load == ()
    assert [failures_after_unfit(2, unfit * count) for count in (RETRIES, RETRIES + 1, RETRIES + 2)] == [3, 0, 3]


@pytest.mark.parametrize(
    ("mode", "has_changed", "never_joins", "now"),
    [
        (JOIN, False, False, JOIN),
        (JOIN, True, False, PRELOAD),
        (JOIN, False, True, PRELOAD),
        (PRELOAD, False, False, PRELOAD),
    ],
)
def test_a_program_is_run_only_if_it_is_the_one_that_joined(
    mode: str, has_changed: bool, never_joins: bool, now: str
) -> None:
    assert safe_mode(replace(PLAN, mode=mode), has_changed=has_changed, never_joins=never_joins).mode == now


START = Start(("py", "x"), {"HOME": "/", "RANK": "0", "A": "1"}, 3, stdout_fd=4, cpus=frozenset({0}), priority=0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"black_box_fd": 9, "stdout_fd": None, "stderr_fd": 7}, ""),
        ({"environment": {"HOME": "/", "A": "1", "RANK": "5", "MASTER_ADDR": "x"}}, ""),
        ({"environment": {"HOME": "/", "A": "2"}}, "the environment differs in A"),
        ({"environment": {"HOME": "/"}}, "the environment differs in A"),
        (
            {"environment": {"HOME": "/", "A": "1", **{f"B{number}": "" for number in range(7)}}},
            "the environment differs in B0, B1, B2, B3, B4 and 2 more",
        ),
        (
            {"environment": {"HOME": "/", "A": "1", "LOCAL_WORLD_SIZE": "3"}},
            "the environment differs in LOCAL_WORLD_SIZE",
        ),
        ({"argv": ("py", "y")}, "the command line differs"),
        ({"cpus": frozenset({1})}, "the binding to CPUs differs"),
        ({"signal_mask": frozenset({2})}, "the set of blocked signals differs"),
        ({"priority": 5}, "the priority differs"),
        ({"file_limit": 64}, "the limit of open files differs"),
        ({"leash_fd": 64}, "the process that workers end with differs"),
    ],
)
def test_a_difference_outside_of_the_ranks_is_named(changes: dict[str, object], why: str) -> None:
    assert refusal(START, replace(START, **changes)) == why


def test_a_standby_is_told_nothing_of_a_round() -> None:
    assert standby_environment({"RANK": "1", "LOCAL_RANK": "1", "MASTER_PORT": "2", "X": "3"}) == {
        "LOCAL_RANK": "1",
        "X": "3",
    }


@pytest.mark.parametrize(
    ("asked", "standing", "each", "free", "number"),
    [
        (None, 0, 0, 100 * GB, 1),  # the first one shows what one takes
        (None, 1, 0, 100 * GB, 1),
        (None, 0, 0, GB + FIRST_BYTES, 1),
        (None, 0, 0, GB + FIRST_BYTES - 1, 0),
        (None, 0, 0, GB, 0),
        (None, 0, 0, 0, 0),
        (None, 0, 0, -9 * GB, 0),
        (None, 1, 0, 0, 1),  # it will show soon what it takes
        (None, 1, GB, 100 * GB, 8),
        (None, 1, GB, 4 * GB, 4),
        (None, 1, GB, 2 * GB - 1, 1),
        (None, 4, GB, GB, 4),
        (None, 4, GB, GB // 2, 4),  # what others take of the reserve
        (None, 4, GB, GB // 2 - 1, 3),
        (None, 1, GB, 0, 0),
        (None, 8, GB, 0, 7),
        (None, 8, GB, -2 * GB, 5),
        (None, 8, GB // 4, 0, 4),
        (None, 2, GB, -9 * GB, 0),
        (0, 0, GB, 100 * GB, 0),
        (3, 0, GB, 0, 3),
        (9, 0, 0, 0, 8),
    ],
)
def test_the_number_of_standbys(asked: int | None, standing: int, each: int, free: int, number: int) -> None:
    assert RESERVE_BYTES == GB
    assert how_many(asked, 8, standing=standing, each_bytes=each, free_bytes=free).number == number


@pytest.mark.parametrize("each", [GB // 5, GB // 2, GB, 3 * GB])
@pytest.mark.parametrize("free", range(-3 * GB, 3 * GB, GB // 7))
def test_who_ends_for_want_of_memory_is_not_started_again_in_what_that_gave_back(each: int, free: int) -> None:
    before = 8
    after = how_many(None, 8, standing=before, each_bytes=each, free_bytes=free).number
    given_back = free + (before - after) * each
    assert how_many(None, 8, standing=after, each_bytes=each, free_bytes=given_back).number == after
    assert after == 0 or given_back >= GB // 2


@pytest.mark.parametrize(
    ("asked", "standing", "free", "number"),
    [(3, 0, 100 * GB, 3), (3, 0, 3 * GB, 2), (9, 0, 100 * GB, 8), (3, 0, GB, 0)],
)
def test_where_a_commit_found_no_room_memory_decides_about_a_number_that_was_asked_for(
    asked: int, standing: int, free: int, number: int
) -> None:
    found = how_many(asked, 8, standing=standing, each_bytes=GB, free_bytes=free, is_short=True)
    assert found.number == number
    assert bool(found.why) == (number < min(asked, 8))


def test_fewer_than_wanted_is_said_with_the_numbers() -> None:
    assert how_many(None, 8, standing=1, each_bytes=GB, free_bytes=4 * GB) == Count(
        4, "4 of 8 standbys: each takes 1024 MB, 4096 MB of memory are free, and 1024 MB are left alone"
    )
    assert how_many(None, 8, standing=0, each_bytes=0, free_bytes=GB) == Count(
        0, "0 of 8 standbys: the first one may take 512 MB, 1024 MB of memory are free, and 1024 MB are left alone"
    )
    assert how_many(9, 8, standing=0, each_bytes=0, free_bytes=0).why == (
        "9 standbys were asked for, but there are only 8 workers to stand by for"
    )
    assert how_many(5, 1, standing=0, each_bytes=0, free_bytes=0).why == (
        "5 standbys were asked for, but there is only 1 worker to stand by for"
    )
    assert how_many(None, 8, standing=1, each_bytes=GB, free_bytes=40 * GB).why == ""
    assert how_many(None, 8, standing=0, each_bytes=0, free_bytes=4 * GB).why == "", (
        "nobody knows yet how many there will be"
    )


STALE = Lost("job.py has changed", is_stale=True)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (Absence(free=1), "there is no standby yet: they are started one after the other"),
        (Absence(free=1, lost=PROMOTED), "there is no standby yet: the one before was promoted"),
        (Absence(free=1, lost=STALE), "job.py has changed"),
        (
            Absence(is_last=True, lost=PROMOTED),
            "there is no standby: the life before was to be the last one, which has none",
        ),
        (Absence(is_taught=False), "there is no standby: the life before was too short to learn what it loads"),
        (Absence(0, asked=1, free=1), "there is no standby yet: they are started one after the other"),
        (Absence(1, asked=1, pause="paused"), "there is no standby: only 1 was asked for"),
        (Absence(2, asked=2), "there is no standby: only 2 were asked for"),
        (Absence(failures=RETRIES, free=1), "there is no standby yet: they are started one after the other"),
        (
            Absence(failures=RETRIES + 1, pause="paused"),
            "there is no standby: 4 standbys in a row were of no use: no more are started before the next life",
        ),
        (Absence(pause="paused", short="short", lost=STALE), "there is no standby: paused"),
        (Absence(place=0, free=1, short="short"), "there is no standby yet: they are started one after the other"),
        (Absence(place=1, free=1, short="short", lost=STALE), "there is no standby: short"),
    ],
)
def test_whoever_has_no_standby_is_told_what_keeps_the_next_from_being_started(one: Absence, why: str) -> None:
    assert absence(one) == why


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        (Lost(), "it is not ready yet"),
        (PROMOTED, "it is not ready yet: the one before was promoted"),
        (STALE, "job.py has changed"),
    ],
)
def test_whoever_has_a_standby_that_is_not_ready_is_told_why_it_is_so_young(lost: Lost, why: str) -> None:
    assert not_ready(lost) == why
