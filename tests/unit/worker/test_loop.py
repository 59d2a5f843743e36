from __future__ import annotations

import math
import re
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from planaria import worker
from planaria.contract.commit import Origin
from planaria.contract.control import Drain, Finished, Progress, Resize
from planaria.errors import UsageError
from planaria.worker import ElasticState, goodbye, loop
from planaria.worker.data import ElasticSampler
from planaria.worker.vault import LocalVault

if TYPE_CHECKING:
    from collections.abc import Callable

    from notices import Notifier

    from planaria.contract.commit import Stamp


class Told:
    """A state that notes what is done with it."""

    def __init__(self) -> None:
        self.step = 0
        self.stamp: Stamp | None = None
        self.done: list[object] = []

    def sync(self) -> None:
        self.done.append("sync")

    def commit(self, wait: str | None = None, timeout_s: float = 600.0) -> None:
        assert timeout_s > 0
        self.done.append((self.step, wait))
        self.stamp = Origin().stamp(len(self.done), self.step)


def stepping(count: int, then: Callable[[int], object] = lambda _: None) -> Callable[[Any], object]:
    """Return a step that can be made so often."""
    steps = iter(range(count))
    return lambda _: then(next(steps))


def test_a_loop_syncs_steps_and_commits_until_the_data_is_over(notifier: Notifier) -> None:
    state = Told()
    worker.train_loop(state, stepping(3))
    assert state.done == ["sync", (1, None), (2, None), (3, None)]


class Settling(Told):
    """A state that can be waited for."""

    def settle(self) -> None:
        self.done.append("settled")


def test_the_last_commit_is_waited_for_also_if_none_before_it_was(notifier: Notifier) -> None:
    state = Settling()
    worker.train_loop(state, stepping(2))
    assert state.done == ["sync", (1, None), (2, None), "settled"]
    state = Settling()
    worker.train_loop(state, stepping(3), commit_every=2)
    assert state.done == ["sync", (2, None), (3, "node")]


def test_the_last_commit_of_an_elastic_state_has_reached_its_node_when_the_loop_is_over(notifier: Notifier) -> None:
    class Vault(LocalVault):
        def wait(self, stamp: Any, tier: Any, timeout_s: float) -> Any:
            waits.append((stamp.step, tier))
            return super().wait(stamp, tier, timeout_s)

    waits: list[tuple[int, str]] = []
    worker.train_loop(ElasticState(vault=Vault(), step=0), stepping(3))
    assert waits == [(3, "node")]


def test_commits_are_as_rare_as_asked_for_and_the_last_step_is_always_committed(notifier: Notifier) -> None:
    state = Told()
    worker.train_loop(state, stepping(5), commit_every=2)
    assert state.done == ["sync", (2, None), (4, None), (5, "node")]
    state = Told()
    worker.train_loop(state, stepping(4), commit_every=2, wait="disk")
    assert state.done == ["sync", (2, "disk"), (4, "disk")]


def test_seconds_decide_when_steps_do_not(notifier: Notifier, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(loop, "monotonic", lambda: now[0])
    state = Told()

    def wait_a_while(_: int) -> None:
        now[0] += 4.0

    worker.train_loop(state, stepping(6, wait_a_while), commit_every_s=10.0)
    assert state.done == ["sync", (3, None), (6, None)]


@pytest.mark.parametrize("told", [dict, SimpleNamespace(items=3), object(), "high", [1]])
def test_whatever_a_step_returns_training_goes_on_and_the_step_is_told(notifier: Notifier, told: object) -> None:
    worker.train_loop(Told(), stepping(2, lambda _: told), commit_every=10)
    assert notifier.reports() == [Progress(1), Progress(2), Finished()]


class Broken:
    """No number, and loud about it, as a complex tensor or one on torch's device `meta`."""

    def __float__(self) -> float:
        raise RuntimeError("it cannot be converted")


def test_the_agent_hears_of_step_samples_and_loss(notifier: Notifier) -> None:
    sampler = ElasticSampler(40, batch_size=8, seed=1, rank=0, world_size=1)
    state = ElasticState(sampler=sampler, step=0, vault=LocalVault())
    batches = iter(sampler.count())
    worker.train_loop(
        state, lambda _: {"loss": len(next(batches)) / 16, "note": "none", "odd": Broken()}, commit_every=10
    )
    expected = [Progress(n, (("samples", 8.0 * n), ("loss", 0.5))) for n in range(1, 6)]
    assert notifier.reports() == [*expected, Finished()]


class Far:
    """A number that takes a while to be read, as one on a GPU."""

    class device:  # noqa: N801  as torch spells it
        type = "cuda"

    def __init__(self) -> None:
        self.reads = 0

    def __float__(self) -> float:
        self.reads += 1
        return 2.5


def test_a_loss_on_a_device_is_read_once_a_second_and_told_with_every_step(
    notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(loop, "monotonic", lambda: now[0])
    far = Far()

    def step(number: int) -> Far:
        now[0] = number * 0.25
        return far

    worker.train_loop(Told(), stepping(8, step), commit_every=100)
    assert far.reads == 2
    assert notifier.reports() == [*(Progress(n, (("loss", 2.5),)) for n in range(1, 9)), Finished()]


@pytest.mark.parametrize("notice", [Drain("SIGTERM", 30.0), Resize("node b joined", 10.0)])
def test_a_notice_ends_the_loop_after_its_step_with_a_commit(
    notifier: Notifier, notice: Drain | Resize, capsys: pytest.CaptureFixture[str]
) -> None:
    state = Told()

    def step(number: int) -> None:
        if number == 3:
            notifier.tell(notice)

    with pytest.raises(SystemExit) as caught:
        worker.train_loop(state, stepping(100, step), commit_every=50)
    assert caught.value.code == 0
    assert state.done == ["sync", (4, "node")]
    assert notice.reason in capsys.readouterr().err


def test_a_commit_that_was_made_is_not_made_again(notifier: Notifier) -> None:
    state = Told()
    with pytest.raises(SystemExit):
        worker.train_loop(
            state, stepping(9, lambda n: n == 1 and notifier.tell(Drain("SIGTERM", 5.0))), agree=delayed()
        )
    assert state.done == ["sync", (1, None), (2, None), (3, "node")]


def delayed() -> Callable[[int], int]:
    """Return how ranks agree, one call late."""
    known = [0]

    def agree(wish: int) -> int:
        known.append(wish)
        return known[-2]

    return agree


def test_ranks_that_cannot_agree_leave_with_the_last_commit_that_all_have(
    notifier: Notifier, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    state = Told()
    with pytest.raises(SystemExit):
        worker.train_loop(state, stepping(9, lambda n: n == 2 and notifier.tell(Drain("SIGTERM", 5.0))))
    assert state.done == ["sync", (1, None), (2, None)]
    said = capsys.readouterr().err
    assert "has committed" not in said
    assert (
        "this rank stops at the last commit that all ranks have; 1 step since its own last commit (step 2) is lost: this"
        in said
    )


def test_ranks_that_cannot_agree_are_told_at_the_start_what_a_stop_will_cost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loop, "_told_alone", [])
    worker.train_loop(Told(), stepping(1))
    assert not capsys.readouterr().err, "a world of one agrees with itself"
    monkeypatch.setenv("WORLD_SIZE", "2")
    for _ in range(2):
        worker.train_loop(Told(), stepping(1))
    assert capsys.readouterr().err.count("ranks cannot agree on a step to stop at") == 1


@pytest.mark.parametrize(
    ("wait", "reached", "said"),
    [
        ("node", "node", "planaria: this rank has committed and stops: this node drains (SIGTERM)\n"),
        ("node", "disk", "planaria: this rank has committed and stops: this node drains (SIGTERM)\n"),
        ("disk", "node", "this rank has committed, which has reached node and not disk, and stops: this node drains"),
        ("node", None, "this rank stops, and its commit has not reached node in time: the commit before it may be"),
    ],
)
def test_a_rank_says_how_far_its_last_commit_came(
    notifier: Notifier, wait: Any, reached: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state = Told()
    state.commit = lambda **_: SimpleNamespace(reached=reached)  # type: ignore[method-assign]
    loop.LINK.drain()
    notifier.tell(Drain("SIGTERM", 30.0))
    with pytest.raises(SystemExit):
        worker.leave(state, wait=wait)
    assert said in capsys.readouterr().err


def test_a_rank_that_leaves_without_a_state_does_not_say_that_it_has_committed(
    notifier: Notifier, capsys: pytest.CaptureFixture[str]
) -> None:
    loop.LINK.drain()
    notifier.tell(Resize("node b joined", 30.0))
    with pytest.raises(SystemExit):
        worker.leave()
    assert capsys.readouterr().err == "planaria: this rank stops: the world changes (node b joined)\n"


def test_the_last_commit_gets_what_is_left_of_the_grace(notifier: Notifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """The notice has lain there while a step went on; the grace has run since."""
    monkeypatch.setattr(loop, "monotonic", lambda: 103.0)
    limits: list[float] = []
    state = Told()
    state.commit = lambda **options: limits.append(options["timeout_s"])  # type: ignore[method-assign]
    loop.LINK.drain()
    for at in (100.0, 94.0, 90.0, None):
        notifier.tell(Drain("SIGTERM", 10.0, at))
        with pytest.raises(SystemExit):
            worker.leave(state)
    assert limits == [pytest.approx(5.0), pytest.approx(0.5), goodbye.LEAST_S, pytest.approx(8.0)]


def test_another_ranks_wish_counts_and_its_agents_notice_is_waited_for(notifier: Notifier) -> None:
    """A rank whose own agent has not heard yet must not end before it has: that would be the end of the training."""
    wishes = iter([0, 0, 2])
    state = Told()
    committed = threading.Event()

    def tell_late() -> None:
        committed.wait(30)
        state.done.append("told")
        notifier.tell(Resize("node b left", 10.0))

    late = threading.Thread(target=tell_late)
    late.start()
    commit = state.commit

    def commit_and_go_on(**options: Any) -> None:
        commit(**options)
        if state.step == 3:
            committed.set()

    state.commit = commit_and_go_on  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        worker.train_loop(state, stepping(9), agree=lambda _: next(wishes))
    late.join()
    assert state.done == ["sync", (1, None), (2, None), (3, "node"), "told"]


def test_an_error_of_the_step_is_the_callers(notifier: Notifier) -> None:
    def step(_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        worker.train_loop(Told(), step)


def test_without_an_agent_the_loop_is_the_same() -> None:
    state = Told()
    worker.train_loop(state, stepping(2, lambda _: math.pi))
    assert state.done == ["sync", (1, None), (2, None)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"commit_every": 0}, "commit_every expects a whole number above 0, got 0"),
        ({"commit_every": 1.5}, "commit_every expects a whole number above 0, got 1.5"),
        ({"commit_every_s": 0.0}, "commit_every_s expects a number above 0, got 0.0"),
        ({"commit_every_s": math.nan}, "commit_every_s expects a number above 0, got nan"),
        ({"commit_every_s": "1"}, "commit_every_s expects a number above 0, got '1'"),
        ({"commit_every_s": [1, 2]}, "commit_every_s expects a number above 0, got [1, 2]"),
        ({"check_every": 0}, "check_every expects a whole number above 0, got 0"),
        ({"agree": 5}, "agree expects a function, got 5"),
        ({"step": None}, "step expects a function, got None"),
        ({"state": None}, "train_loop expects a state with sync() and commit(), got None"),
        ({"state": ElasticState}, "train_loop expects a state with sync() and commit(), got <class"),
        ({"wait": "foo"}, "commit(wait=...) takes one of node, buddy, disk, or None, not 'foo'"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    state = Told()
    with pytest.raises(UsageError, match=re.escape(said)):
        worker.train_loop(**{"state": state, "step": stepping(1), **options})
    assert state.done == [], "at once, not at the first commit"


def test_seconds_are_refused_where_ranks_could_not_agree_on_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="commit_every_s needs ranks that agree"):
        worker.train_loop(Told(), stepping(1), commit_every_s=5.0)
    state = Told()
    worker.train_loop(state, stepping(1), commit_every_s=5.0, agree=lambda wish: wish)
    assert state.done == ["sync", (1, "node")]


def test_what_a_cut_off_would_cost_are_the_steps_since_the_last_commit(notifier: Notifier) -> None:
    costs: list[str] = []

    def step(number: int) -> None:
        costs.append(made._lost_if_cut_off())
        if number == 4:
            notifier.tell(Drain("SIGTERM", 5.0))

    made = loop._Loop(Told(), stepping(9, step), loop.Pace(3, None), None, loop.Agreement())
    with pytest.raises(SystemExit):
        made.run()
    one, two = "1 step since its own last commit (step 3) is lost", "2 steps are lost, for nothing was committed"
    assert costs == ["", "1 step is lost, for nothing was committed", two, "", one]
    assert made._lost_if_cut_off() == "", "it has committed"


def test_a_loop_of_ones_own_asks_and_leaves(notifier: Notifier) -> None:
    state = Told()
    try:
        assert not worker.should_stop()
        notifier.tell(Drain("SIGTERM", 30.0))
        assert worker.should_stop()
        with pytest.raises(SystemExit):
            worker.leave(state, wait="disk")
    finally:
        loop.DEFERRAL.end()
    assert state.done == [(0, "disk")]
