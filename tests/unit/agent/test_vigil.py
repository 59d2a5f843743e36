"""The watch over progress on a real loop with a clock moved by hand. Nobody is examined; what would be found is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from planaria.agent import vigil as room
from planaria.agent.charge import MOST_FOLDERS, WRITING_S
from planaria.agent.examiner import Found, Request
from planaria.agent.model import EndRequested, Group, Job, ScopeExpired
from planaria.agent.settings import Vigilance
from planaria.agent.vigil import Vigil
from planaria.base.loop import Loop
from planaria.base.value import replace
from planaria.contract.control import Progress
from planaria.contract.env import Round
from planaria.contract.failure import HANG, Failure
from planaria.process.model import Command
from planaria.process.workers import WorkerSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLOOR_S = 2.0
LIFE = Round(4, "job7", "default", 1, 2, 2, 4, 2, 4, 2, "10.0.0.1", 4711, 1, 3, "")
FIRST = 2  # the rank of local rank 0
FOUND = Found((FIRST + 1,), (FIRST,), "hangs at x; evidence in y", "rank 3 hangs at x; evidence in y", is_kept=True)


class Rig:
    """An agent's driver, as far as a vigil sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
        self.now = 100.0
        self.loop = Loop(lambda: self.now)
        self.asked: list[tuple[Request, Callable[[Found], object]]] = []
        self.written: list[Callable[[], object]] = []
        self.failing = False
        self.cancelled = 0
        self.posted: list[Any] = []
        self.said: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.settled = 0
        self.evidence_dir = "/logs/evidence"
        self.group = Group(size=2, max_restarts=3, grace_s=1.0, phase="running")
        self.life = LIFE
        seen = tuple(WorkerSeen(number, FIRST + number, 1 + 2**22 + number, True, self.now) for number in (0, 1))
        self.workers = SimpleNamespace(
            seen=seen,
            black_boxes=tuple((one, 7) for one in seen),
            mark_black_boxes=lambda: None,
            settle_black_boxes=self._settle,
            suspect=lambda rank, message, at, signal: Failure(
                FIRST + rank, rank, "n", 9, -signal, at, 1.0, "watchdog", message=message
            ),
        )
        self.control = SimpleNamespace(
            witnesses=frozenset(), speakers=frozenset({0, 1}), ask_witnesses=lambda _line: None, catch_up=lambda: None
        )
        self.observer = SimpleNamespace(emit=lambda name, _at, **told: self.events.append((name, told)))
        monkeypatch.setattr(room, "Examination", self._examination)
        command = Command("script", "a.py", ())
        vigilance = Vigilance(FLOOR_S, policy)  # type: ignore[arg-type]
        job = Job(command, 2, "job7", "default", 3, 1.0, (15,), {}, vigilance=vigilance)
        self.vigil = Vigil(job, self.loop, self, "n")  # type: ignore[arg-type]
        self.vigil.wall_s = lambda: 0.0
        self.vigil.begin(seen)

    def _settle(self) -> None:
        self.settled += 1

    def _examination(
        self,
        _loop: object,
        _environ: object,
        request: Request,
        on_found: Callable[[Found], object],
        on_over: Callable[[], object],
    ) -> object:
        if self.failing:
            raise OSError("no more processes")
        self.asked.append((request, on_found))
        self.written.append(on_over)
        return SimpleNamespace(cancel=self._cancel)

    def _cancel(self) -> None:
        self.cancelled += 1

    def post(self, event: object) -> None:
        self.posted.append(event)

    def say(self, line: str) -> None:
        self.said.append(line)

    def pass_s(self, seconds: float) -> None:
        """Let time go by in small turns of the loop."""
        for _ in range(int(seconds / 0.05)):
            self.now += 0.05
            self.loop.run_once(0)

    def train(self, steps: int, first: int = 0) -> None:
        for step in range(first, first + steps):
            self.pass_s(0.1)
            for rank in (0, 1):
                self.vigil.progressed(rank, Progress(step))

    def find(self, found: Found = FOUND, *, writes: bool = False) -> None:
        """Let the newest examination find something, and end, unless it `writes` yet."""
        self.asked[-1][1](found)
        if not writes:
            self.written[-1]()
        self.pass_s(0.1)

    def names(self) -> list[str]:
        return [name for name, _ in self.events]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(policy: str = "report") -> Rig:
        made.append(Rig(monkeypatch, policy))
        made[-1].train(10)
        return made[-1]

    yield make
    for one in made:
        one.loop.close()


def test_a_hang_is_examined_told_and_with_report_nothing_is_done(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    (request, _) = here.asked[0]
    assert request.folder == "/logs/evidence/19700101-000000-round4-hang1"
    assert [(one.rank, one.step, one.still) for one, _, _ in request.subjects] == [(2, 9, True), (3, 9, True)]
    assert not here.said, "nobody is named before somebody has looked"
    here.find()
    assert here.said == ["rank 3 hangs at x; evidence in y"]
    assert here.names() == ["planaria.hang"]
    told = here.events[0][1]
    assert (told["round"], told["ranks"], told["waiting"], told["phase"]) == (4, [3], [2], "step")
    assert FLOOR_S < told["gap_s"] < FLOOR_S + 0.2
    assert here.vigil.seen()["hang"] == here.vigil.hangs[0]
    assert (here.posted, here.settled) == ([], 1)
    here.pass_s(60)
    assert len(here.asked) == 1


def test_restart_blames_the_suspect_and_stop_ends_the_job(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    (event,) = here.posted
    assert isinstance(event, ScopeExpired)
    failure = event.failure
    assert (failure.rank, failure.type, failure.where, failure.kind) == (3, HANG, "step", "watchdog")
    assert failure.message == "hangs at x; evidence in y"
    here = rig("stop")
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    (event,) = here.posted
    assert isinstance(event, EndRequested)
    assert event.reason == "rank 3 on n hangs at x; evidence in y (--hang-policy=stop)"


def test_one_who_waits_for_another_node_gives_it_a_floor_of_time(rig: Callable[..., Rig]) -> None:
    for found in (
        Found((), (FIRST, FIRST + 1), "hangs", "ranks 2, 3 wait", elsewhere=True, is_kept=True),
        Found((FIRST, FIRST + 1), (), "hangs", "ranks 2, 3 hang", unclear=True, is_kept=True),
    ):
        here = rig("restart")
        here.pass_s(FLOOR_S + 0.5)
        here.find(found)
        here.pass_s(FLOOR_S + WRITING_S - 0.5)  # the other node acts after so long at the latest, once it has looked
        assert here.posted == []
        here.pass_s(1.0)
        assert [event.failure.rank for event in here.posted] == [2]


def test_what_goes_on_while_it_is_examined_is_told_and_left_alone(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.progressed(1, Progress(10))
    here.find()
    assert here.posted == []
    assert here.said[0].endswith("; it goes on meanwhile")
    assert here.vigil.seen()["hang"] is None


def test_one_rank_that_goes_on_while_another_is_examined_saves_only_itself(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.progressed(0, Progress(10))
    here.find()
    assert [event.failure.rank for event in here.posted] == [3]
    assert "meanwhile" not in here.said[0]
    assert here.vigil.seen()["hang"] == here.vigil.hangs[0]


def test_of_several_suspects_those_that_go_on_are_left_out(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.progressed(0, Progress(10))
    here.find(Found((FIRST, FIRST + 1), (), "hangs at x", "ranks 2, 3 hang", is_kept=True))
    assert here.said == ["ranks 2, 3 hang; rank 2 goes on meanwhile"]
    (event,) = here.posted
    message = event.failure.message
    assert event.failure.rank == 3
    assert message.startswith("hangs in phase step: no sign for 2.0 s; evidence in "), "x was the other one's place"


def test_a_rank_that_never_reports_is_blamed_until_those_that_wait_for_it_go_on(rig: Callable[..., Rig]) -> None:
    for goes_on in (False, True):
        here = rig("restart")
        here.vigil.finished(1)  # as good as one that never reports
        here.pass_s(FLOOR_S + 0.5)
        here.find(writes=True)
        if goes_on:
            here.vigil.progressed(0, Progress(10))
        here.written[-1]()
        here.pass_s(0.1)
        assert [event.failure.rank for event in here.posted] == [3] * (not goes_on)
        assert (here.vigil.seen()["hang"] is None) is goes_on


def test_a_rank_that_stood_still_with_one_that_went_on_is_judged_anew(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.progressed(1, Progress(10))
    here.find()
    for step in range(11, 60):
        here.pass_s(0.1)
        here.vigil.progressed(1, Progress(step))
    (request, _) = here.asked[-1]
    assert len(here.asked) == 2
    assert [one.rank for one, _, _ in request.subjects if one.still] == [2]


def test_a_rank_that_ends_while_it_is_examined_did_not_hang(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.exited(1)
    here.find()
    assert here.posted == []
    assert here.said[0].endswith("; it has ended meanwhile")
    assert here.vigil.seen()["hang"] is None


@pytest.mark.parametrize("policy", ["restart", "stop"])
@pytest.mark.parametrize("how", ["exits", "hangs up"])
def test_a_suspect_that_ends_while_its_evidence_is_written_is_not_acted_on(
    rig: Callable[..., Rig], policy: str, how: str
) -> None:
    here = rig(policy)
    here.vigil.speaks(1)
    here.pass_s(FLOOR_S + 0.5)
    here.find(writes=True)
    if how == "exits":
        here.vigil.exited(1)
    else:
        here.control.speakers = frozenset({0})
        here.pass_s(FLOOR_S / 2)
    did = "has ended" if how == "exits" else "has closed its connection"
    assert here.said[1:] == [f"rank 3 {did}: what looked like a hang was none, or is over"]
    assert here.names() == ["planaria.hang", "planaria.hang.over"]
    assert here.vigil.seen()["hang"] is None
    here.written[-1]()
    here.pass_s(1)
    assert here.posted == []
    here.pass_s(FLOOR_S + 0.5)
    assert [one.rank for one, _, _ in here.asked[-1][0].subjects if one.still] == [2], "it stands still yet"
    assert len(here.asked) == 2


def test_a_suspect_that_never_reports_and_ends_is_not_acted_on(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.vigil.finished(1)  # as good as one that never reports
    here.pass_s(FLOOR_S + 0.5)
    here.find(writes=True)
    here.vigil.exited(1)
    here.written[-1]()
    here.pass_s(1)
    assert here.posted == []
    assert here.names() == ["planaria.hang", "planaria.hang.over"]
    here.pass_s(FLOOR_S + 0.5)
    assert len(here.asked) == 2


def test_what_ranks_do_in_a_life_that_is_being_ended_is_no_news(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    here.group = replace(here.group, phase="stopping")
    here.vigil.progressed(1, Progress(10))
    here.vigil.exited(1)
    assert (len(here.said), here.names()) == (1, ["planaria.hang"])


def test_a_hang_that_is_over_is_told_when_its_rank_goes_on(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    here.vigil.progressed(0, Progress(10))
    assert here.names() == ["planaria.hang"]
    here.vigil.progressed(1, Progress(10))
    assert here.names() == ["planaria.hang", "planaria.hang.over"]
    assert here.vigil.seen()["hang"] is None
    assert len(here.vigil.hangs) == 1


def test_of_two_hangs_each_is_over_when_its_own_rank_goes_on(rig: Callable[..., Rig]) -> None:
    here = rig()
    for step in range(10, 50):
        here.pass_s(0.1)
        here.vigil.progressed(0, Progress(step))
    here.find()
    here.pass_s(FLOOR_S + 0.5)
    here.find(Found((FIRST,), (), "hangs", "rank 2 hangs", is_kept=True))
    here.vigil.progressed(1, Progress(10))
    assert [told["rank"] for name, told in here.events if name == "planaria.hang.over"] == [3]
    assert here.vigil.seen()["hang"] == here.vigil.hangs[1]
    here.vigil.progressed(0, Progress(50))
    assert here.vigil.seen()["hang"] is None
    assert [told["rank"] for name, told in here.events if name == "planaria.hang.over"] == [3, 2]


def test_of_two_hangs_the_older_is_seen_while_it_lasts(rig: Callable[..., Rig]) -> None:
    here = rig()
    for step in range(10, 50):
        here.pass_s(0.1)
        here.vigil.progressed(0, Progress(step))
    here.find()
    here.pass_s(FLOOR_S + 0.5)
    here.find(Found((FIRST,), (), "hangs", "rank 2 hangs", is_kept=True))
    here.vigil.progressed(0, Progress(50))
    assert here.vigil.seen()["hang"] == here.vigil.hangs[0]


@pytest.mark.parametrize("is_alone", [True, False])
def test_nobody_to_look_and_no_answer_are_no_reason_not_to_act_once_other_nodes_had_their_time(
    rig: Callable[..., Rig], is_alone: bool
) -> None:
    for failing in (True, False):
        here = rig("restart")
        here.life = replace(LIFE, world_size=2) if is_alone else LIFE
        here.failing = failing
        here.pass_s(FLOOR_S + 1)
        if not failing:
            here.find(Found())
        assert here.said == ["rank 2 on n hangs in phase step: no sign for 2.0 s; nobody could look at it in time"]
        assert here.vigil.hangs[0]["evidence"] is None
        if not is_alone:
            here.pass_s(FLOOR_S + WRITING_S - 1.5)
            assert here.posted == []
            here.pass_s(2)
        assert [event.failure.rank for event in here.posted] == [2]


def test_a_life_that_ends_ends_the_examination(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.end()
    assert here.cancelled == 1
    here.pass_s(60)
    assert len(here.asked) == 1


def test_a_hang_is_told_before_its_evidence_is_written_and_acted_on_after_that(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find(writes=True)
    assert (len(here.said), here.posted) == (1, [])
    here.written[-1]()
    here.pass_s(0.1)
    assert len(here.posted) == 1
    here.pass_s(2 * WRITING_S)
    assert len(here.posted) == 1


def test_the_evidence_of_a_hang_has_all_its_time_whenever_the_one_before_was(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    here.posted.clear()
    here.vigil.progressed(0, Progress(10))  # rank 3 is told of, and stands still as before
    here.pass_s(3 * FLOOR_S)
    here.find(Found((FIRST,), (), "hangs", "rank 2 hangs", is_kept=True), writes=True)
    here.pass_s(WRITING_S - 1)
    assert here.posted == []
    here.pass_s(1.5)
    assert len(here.posted) == 1


def test_evidence_that_takes_too_long_is_not_waited_for_and_neither_is_it_once_the_rank_goes_on(
    rig: Callable[..., Rig],
) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find(writes=True)
    here.pass_s(WRITING_S + 0.5)
    assert len(here.posted) == 1
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find(writes=True)
    here.vigil.progressed(1, Progress(10))
    assert here.names() == ["planaria.hang", "planaria.hang.over"]
    here.written[-1]()
    here.pass_s(2 * WRITING_S)
    assert here.posted == []


def test_a_stopped_rank_that_we_let_go_on_to_look_at_it_is_ended_all_the_same(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room.proc, "state", lambda _pid: "T")
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    assert here.asked[0][0].resume
    here.vigil.progressed(1, Progress(10))
    here.find(writes=True)
    here.vigil.progressed(1, Progress(11))
    here.written[-1]()
    here.pass_s(0.1)
    assert [event.failure.rank for event in here.posted] == [3]


def test_a_stopped_rank_that_we_let_go_on_teaches_nothing(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = rig("restart")
    monkeypatch.setattr(room.proc, "state", lambda _pid: "T")
    here.pass_s(3 * FLOOR_S)
    for rank in (0, 1):
        here.vigil.progressed(rank, Progress(10))
        here.vigil.entered(rank, "")
    here.find()
    here.group = replace(here.group, phase="stopping")
    here.pass_s(2 * FLOOR_S)
    here.train(1, first=11)
    here.group = replace(here.group, phase="running")
    here.vigil.begin(here.workers.seen)
    here.train(5)
    here.pass_s(FLOOR_S + 0.5)
    assert len(here.asked) == 2, "what is usual is what it was"


def test_tools_that_stop_a_process_are_only_for_those_that_are_about_to_be_ended(rig: Callable[..., Rig]) -> None:
    for policy, trace in (("report", False), ("restart", True), ("stop", True)):
        here = rig(policy)
        here.pass_s(FLOOR_S + 0.5)
        assert here.asked[0][0].trace is trace


def test_every_hang_has_a_folder_of_its_own(rig: Callable[..., Rig]) -> None:
    here = rig()
    for first in (10, 20):
        here.pass_s(FLOOR_S + 0.5)
        here.find()
        here.train(5, first=first)
    here.pass_s(20 * FLOOR_S)
    folders = [request.folder for request, _ in here.asked]
    assert len(folders) > 1
    assert len(set(folders)) == len(folders)


def test_a_folder_that_is_there_is_named_even_where_nobody_answered(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    here.find(Found(is_kept=True))
    folder = here.asked[0][0].folder
    assert here.vigil.hangs[0]["evidence"] == folder
    assert here.said[0].endswith(f"nobody could look at it in time; evidence in {folder}")


def test_a_group_that_stops_is_not_judged(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.group = Group(size=2, max_restarts=3, grace_s=1.0, phase="draining")
    here.pass_s(60)
    assert here.asked == []


def test_an_agent_that_was_stopped_itself_calls_nobody(rig: Callable[..., Rig]) -> None:
    for report in (None, 0, 1):
        here = rig()
        here.now += 500
        if report is not None:  # it waited in the socket, and is read before timers are looked at
            here.vigil.progressed(report, Progress(10))
        here.loop.run_once(0)
        assert here.asked == []
        here.pass_s(FLOOR_S + 0.5)
        assert len(here.asked) == 1


@pytest.mark.parametrize("sign", ["report", "phase"])
def test_a_pause_of_the_agents_teaches_nothing_also_while_a_hang_is_told(rig: Callable[..., Rig], sign: str) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    here.now += 500
    for rank in (0, 1):
        if sign == "phase":
            here.vigil.entered(rank, "")
        here.vigil.progressed(rank, Progress(10))
    here.loop.run_once(0)
    here.train(5, first=11)
    here.pass_s(5 * FLOOR_S)
    assert len(here.asked) == 2, "what it learned is the gap of those 2.5 s"


def test_evidence_has_an_end_and_hangs_are_told_all_the_same(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.vigil._called = MOST_FOLDERS
    here.pass_s(FLOOR_S + 1)
    assert (here.asked, here.names()) == ([], ["planaria.hang"])
    assert here.said[0].endswith("nobody looked at it: there are 64 folders of evidence already")


def test_phases_and_stragglers_are_seen(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.vigil.entered(1, "evaluation")
    for step in range(10, 130):
        here.pass_s(0.1)
        for rank in (0, 1):
            here.vigil.progressed(rank, Progress(step, (("busy_s", 0.05 + rank * 0.05),)))
    seen = here.vigil.seen()
    assert seen["phases"] == {0: "step", 1: "evaluation"}
    assert seen["stragglers"] == [{"rank": 3, "host": "n", "slower_by": 2.0}]
    assert here.names() == ["planaria.straggler"]


def test_samples_that_are_no_number_do_not_move(rig: Callable[..., Rig]) -> None:
    here = rig()
    for _ in range(40):
        here.pass_s(0.1)
        for rank in (0, 1):
            here.vigil.progressed(rank, Progress(9, (("samples", float("nan")),)))
    assert len(here.asked) == 1


def test_a_rank_that_has_made_all_its_steps_is_not_judged_until_it_makes_another(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    for rank in (0, 1):
        here.vigil.finished(rank)
    here.pass_s(20 * FLOOR_S)
    assert here.asked == []
    here.train(1, first=10)
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.finished(1)
    here.find()
    assert (len(here.asked), here.posted) == (1, [])


def test_a_rank_whose_connection_is_gone_is_not_judged_until_it_reports_again(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.vigil.speaks(1)
    here.control.speakers = frozenset({0})
    here.pass_s(FLOOR_S + 0.5)
    ((request, _),) = here.asked
    assert [one.rank for one, _, _ in request.subjects if one.still] == [2]
    here.find()
    here.train(1, first=10)
    here.pass_s(10 * FLOOR_S)
    (request, _) = here.asked[-1]
    assert [one.rank for one, _, _ in request.subjects if one.still] == [2, 3]
