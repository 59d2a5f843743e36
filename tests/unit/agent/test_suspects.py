"""Who of the ranks that stand still is the cause."""

from __future__ import annotations

from planaria.agent.suspects import (
    UNKNOWN,
    Count,
    Examined,
    Frame,
    as_text,
    frames,
    is_in_collective,
    is_waiting,
    judge,
    place,
)
from planaria.base.value import replace

BOOT = '  File "/x/planaria/worker/bootstrap.py", line 27 in _start\n'


def stack(*lines: tuple[str, int, str], title: str = "Current thread 0x00007f (most recent call first):") -> str:
    return "".join([f"{title}\n", *(f'  File "{file}", line {line} in {name}\n' for file, line, name in lines)]) + BOOT


ALL_REDUCE = stack(
    ("/v/site-packages/torch/distributed/distributed_c10d.py", 2810, "all_reduce"), ("/job/train.py", 9, "step")
)
BACKWARD = stack(
    ("/v/site-packages/torch/autograd/graph.py", 979, "_engine_run_backward"),
    ("/v/site-packages/torch/autograd/__init__.py", 395, "backward"),
    ("/v/site-packages/torch/_tensor.py", 623, "backward"),
    ("/job/train.py", 9, "step"),
)
SYNCHRONIZE = stack(("/v/site-packages/torch/cuda/__init__.py", 985, "synchronize"), ("/job/train.py", 9, "step"))
ITEM = stack(("/job/train.py", 11, "step"))
LOADER = stack(("/usr/lib/python3.11/multiprocessing/connection.py", 378, "_recv"), ("/job/train.py", 5, "load"))
MEET = stack(("/job/train.py", 9, "meet"))


def one(rank: int, text: str = MEET, **changes: object) -> Examined:
    made = Examined(rank, rank, 100 + rank, "step", 7, 3.0, 0.1, state="S", stack=text)
    return replace(made, **changes)


def first(*ranks: Examined, alone: bool = True) -> int:
    return judge(ranks, host="node", is_alone=alone).ranks[0]


def test_the_main_threads_frames_are_found_whichever_thread_got_the_signal() -> None:
    text = (
        "Thread 0x1 (most recent call first):\n"
        '  File "/a.py", line 1 in other\n\nCurrent thread 0x2 (most recent call first):\n  File "/b.py", line 2 in\n\n'
        f'Thread 0x3 (most recent call first):\n  File "/job/a b.py", line 12 in inner\n{BOOT}'
    )
    assert frames(text) == (Frame("/job/a b.py", 12, "inner"),)
    assert frames('Current thread 0x2 (most recent call first):\n  File "/b.py", line 2 in f\n') == (
        Frame("/b.py", 2, "f"),
    )
    assert frames("") == frames("nothing of the kind\n  File x") == ()


def test_the_place_is_the_innermost_line_of_the_users_own() -> None:
    assert place(frames(LOADER)) == Frame("/job/train.py", 5, "load")
    assert place(frames(stack(("/usr/lib/python3.11/queue.py", 3, "get")))) == Frame(
        "/usr/lib/python3.11/queue.py", 3, "get"
    )
    assert place(()) is None


def test_a_stopped_process_is_the_first_suspect_whatever_else_is_known() -> None:
    assert first(one(0), one(1, step=3), one(2, state="T")) == 2


def test_a_rank_that_is_in_no_collective_is_what_the_others_wait_for() -> None:
    assert is_in_collective(one(0, ALL_REDUCE))
    assert not is_in_collective(one(0, LOADER))
    assert first(one(0, ALL_REDUCE), one(1, LOADER)) == 1
    assert first(one(0, ALL_REDUCE, step=6), one(1, LOADER)) == 1


def test_an_idle_backward_pass_and_a_wait_for_the_gpu_are_waits_and_one_that_computes_is_none() -> None:
    for waits in (one(0, BACKWARD, cpu=0.02), one(0, SYNCHRONIZE, state="R", cpu=1.0)):
        assert is_waiting(waits)
        assert first(waits, one(1, LOADER)) == 1
        assert first(replace(waits, rank=1), one(0, LOADER)) == 0
    assert not is_waiting(one(0, BACKWARD, state="R", cpu=1.0))
    assert first(one(0, BACKWARD, state="R", cpu=1.0), one(1, ALL_REDUCE)) == 0
    told = judge([one(0, BACKWARD)], host="node", is_alone=False)
    assert (told.elsewhere, told.ranks) == (True, ())


def test_of_two_ranks_the_one_inside_of_the_standard_library_cannot_wait_for_a_tensor() -> None:
    assert first(one(0, ITEM), one(1, LOADER)) == 1
    assert first(one(1, ITEM), one(0, LOADER)) == 0
    assert first(one(0, MEET), one(1, ITEM, state="D")) == 1
    assert judge([one(0), one(1, ITEM, state="R", cpu=1.0)], host="node", is_alone=True).ranks == (0, 1)


def test_ranks_that_nothing_tells_apart_are_named_together_with_the_places_of_all() -> None:
    told = judge([one(0, ITEM), one(1, MEET)], host="node", is_alone=True, evidence="/x")
    assert told.ranks == (0, 1)
    assert told.sentence == (
        "ranks 0, 1 on node hang in phase step after step 7: no sign for 3.0 s, usually 0.1 s; evidence in /x; "
        "rank 0 stands still at /job/train.py line 11 in step; rank 1 stands still at /job/train.py line 9 in meet; "
        "nothing tells which of them is the cause"
    )
    assert told.brief.startswith("hangs as does rank 1, nothing tells which is the cause, in phase step after step 7")
    assert "they are at /job/train.py line 9 in meet; all of them stand alike" in (
        judge([one(0), one(1)], host="node", is_alone=True).sentence
    )
    text = as_text([one(0, ITEM), one(1, MEET)], told, "run x")
    assert text.count("* 10") == 2


def test_with_several_nodes_a_rank_that_may_wait_below_its_line_is_no_clear_suspect() -> None:
    def unclear(*ranks: Examined, alone: bool = False) -> bool:
        return judge(ranks, host="node", is_alone=alone).unclear

    assert unclear(one(0, ITEM))
    assert unclear(one(0, ITEM), one(1, MEET))
    assert not unclear(one(0, ITEM), one(1, LOADER))
    assert unclear(one(0, ""))
    assert not unclear(one(0, ITEM), alone=True)
    assert not unclear(one(0, LOADER))
    assert not unclear(one(0, ITEM, state="T"))
    assert not unclear(one(0, ITEM), one(1, ALL_REDUCE))
    assert not unclear(one(0, BACKWARD)), "it waits, that is clear"


def test_where_all_wait_a_rank_that_never_reported_and_does_not_wait_is_behind() -> None:
    mute = {"phase": UNKNOWN, "step": None, "usual_s": 0.0, "silent_s": 21.0, "still": False}
    told = judge([one(0, ALL_REDUCE), one(1, LOADER, **mute)], host="node", is_alone=True)
    assert (told.ranks, told.waiting) == ((1,), (0,))
    assert told.sentence.startswith("rank 1 (pid 101 on node) hangs 21.0 s after its start: it has reported nothing")
    assert first(one(0, LOADER), one(1, LOADER, **mute)) == 0
    told = judge([one(0, ALL_REDUCE), one(1, ALL_REDUCE, **mute)], host="node", is_alone=False)
    assert (told.elsewhere, told.waiting) == (True, (0,))


def begun(*counts: int, members: str = "[0, 1, 2]", waits_in: int | None = None) -> tuple[Count, ...]:
    """Return how many collectives were begun in groups 0, 1 and so on; the last one of a group may be open."""
    return tuple(Count(str(group), members, count, group == waits_in) for group, count in enumerate(counts))


def test_a_rank_that_has_not_begun_the_collective_that_another_waits_in_is_behind() -> None:
    ahead = begun(9, waits_in=0)
    assert first(one(0, begun=ahead), one(1, begun=begun(8)), one(2, begun=ahead)) == 1
    assert first(one(0, begun=begun(1, waits_in=0)), one(1, begun=begun(0), step=8)) == 1
    assert first(one(0, begun=begun(9)), one(1, begun=begun(8), step=8)) == 0, "nobody waits there"


def test_process_groups_are_compared_one_by_one() -> None:
    assert first(one(0, begun=begun(10, 3, waits_in=0)), one(1, begun=begun(9, 5), step=8)) == 1
    each_other = one(0, begun=begun(10, 3, waits_in=0)), one(1, begun=begun(9, 5, waits_in=1), step=8)
    assert first(*each_other) == 0, "each misses what the other is in, so steps decide"


def test_process_groups_with_other_members_say_nothing_of_each_other() -> None:
    ahead = one(0, begun=begun(9, members="[0, 1]", waits_in=0))
    assert first(ahead, one(2, begun=begun(8, members="[2, 3]"), step=8)) == 0
    assert first(ahead, one(2, step=8)) == 0
    assert first(ahead, one(1, begun=begun(8, members="[0, 1]"), step=8)) == 1


def test_the_lowest_step_is_behind_and_of_equal_ones_the_rank_that_is_where_no_other_is() -> None:
    assert first(one(0), one(1), one(2, step=6)) == 2
    assert first(one(0), one(1, LOADER), one(2)) == 1
    assert first(one(0), one(1, ""), one(2)) == 1
    assert first(one(0), one(1), one(2, phase="evaluation")) == 2


def test_ranks_that_go_on_are_no_suspects() -> None:
    assert judge([one(0, still=False, step=1), one(1)], host="node", is_alone=True).ranks == (1,)
    assert judge([one(0, still=False)], host="node", is_alone=True).ranks == ()


def test_the_sentence_names_rank_phase_silence_line_and_the_others() -> None:
    told = judge([one(0, ALL_REDUCE), one(1, LOADER)], host="node", is_alone=True, evidence="/x")
    assert told.sentence == (
        "rank 1 (pid 101 on node) hangs in phase step after step 7: no sign for 3.0 s, usually 0.1 s; "
        "it is at /job/train.py line 5 in load; evidence in /x; rank 0 waits at /job/train.py line 9 in step"
    )
    assert told.brief == (
        "hangs in phase step after step 7: no sign for 3.0 s, usually 0.1 s; it is at /job/train.py line 5 in load; "
        "evidence in /x"
    )
    assert "state T" in judge([one(0, state="T")], host="node", is_alone=True).sentence
    assert "running" in judge([one(0, state="R", cpu=0.98)], host="node", is_alone=True).sentence
    assert "(nfs_wait)" in judge([one(0, state="D", wchan="nfs_wait")], host="node", is_alone=True).sentence


def test_ranks_that_stand_alike_are_all_named_and_on_several_nodes_the_cause_is_elsewhere() -> None:
    assert "ranks 0, 1 on node hang" in judge([one(0), one(1)], host="node", is_alone=True).sentence
    told = judge([one(0, ALL_REDUCE), one(1, ALL_REDUCE)], host="node", is_alone=False)
    assert told.elsewhere
    assert (told.ranks, told.waiting) == ((), (0, 1))
    assert told.sentence.startswith("ranks 0, 1 on node wait in phase step")
    assert "on another node" in told.sentence
    assert not judge([one(0, ALL_REDUCE), one(1, ALL_REDUCE)], host="node", is_alone=True).elsewhere


def test_foreign_text_is_made_safe_before_it_is_shown() -> None:
    wild = one(0, stack(("/job/\x1b[2J.py", 1, "f")), phase="a\x1b[2J", collective="gloo\x1b[1m")
    told = judge([wild, one(1)], host="no\x1bde", is_alone=True)
    assert "\x1b" not in told.sentence + told.brief + as_text([wild, one(1)], told, "heading")


def test_the_summary_has_a_line_for_every_rank() -> None:
    examined = [one(0, ALL_REDUCE, collective="gloo:all_reduce number 3"), one(1, "", state="T", step=None)]
    text = as_text(examined, judge(examined, host="node", is_alone=True), "run x")
    assert (
        "   0  100       step          7             3.0 s S      /job/train.py line 9 in step [gloo:all_reduce" in text
    )
    assert "   1* 101       step          -             3.0 s T      no Python stack" in text
    assert "state T: stopped" in text
