"""A campaign against a job that is made up."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from planaria.chaos import interrupt, pace, shared
from planaria.chaos.campaign import Campaign, Settings
from planaria.chaos.model import HANG_S, Fault
from planaria.chaos.plan import Plan
from planaria.chaos.seen import World
from planaria.chaos.watch import Watch

if TYPE_CHECKING:
    import pytest

HANG = Fault(1, "hang", "for ever", 0, 0, 1)


class MadeUp:
    """A job of one worker that makes a step, if it tells any, whenever it is looked at; a strike ends its round."""

    era, ends = 0, ()

    def __init__(self, *, tells_steps: bool) -> None:
        self._steps = itertools.count() if tells_steps else itertools.repeat(None)
        self.struck: list[Fault] = []

    def world(self) -> World:
        return World(len(self.struck), next(self._steps), {})

    @property
    def is_over(self) -> bool:
        return bool(self.struck)

    def begin(self) -> None: ...
    def end(self) -> None: ...
    def forget(self) -> None: ...
    def bury_all(self) -> str:
        return ""


def struck(job: MadeUp, monkeypatch: pytest.MonkeyPatch) -> list[Fault]:
    """Return the faults that the hand was asked for."""
    monkeypatch.setattr(pace, "FIRST_STEP_WITHIN_S", 0.0)
    monkeypatch.setattr(pace, "WITHOUT_STEPS_S", 0.0)
    monkeypatch.setattr(interrupt, "hush", lambda: None)
    monkeypatch.setattr(shared, "left", lambda *_: ())
    campaign = Campaign(cast("Any", job), Watch(), cast("Any", None), "", Settings(0.0, 60.0, None, ""))
    campaign._hand = cast("Any", SimpleNamespace(strike=job.struck.append))
    seen = campaign.run(Plan((HANG,), {}), lambda _strike, _began_at: None)
    assert [strike.fault for strike in seen.strikes] == job.struck
    return job.struck


def test_a_hang_is_short_where_no_steps_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    (fault,) = struck(MadeUp(tells_steps=False), monkeypatch)
    assert (fault.variant, fault.lasts_s) == ("", HANG_S)
    assert not fault.is_fatal
    assert not fault.is_charged


def test_a_hang_is_for_ever_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert struck(MadeUp(tells_steps=True), monkeypatch) == [HANG]
