"""The workers of one agent, and the guardian that kills them when the agent cannot."""

import json

from planaria.base.value import as_dict
from planaria.contract.failure import Failure
from planaria.rendezvous.model import WorkersDone, WorkersFailed, WorkersStopped

GUARDIAN_S = 0.2
"""How long a guardian may take to kill the workers of a dead agent."""


class Life:
    """The workers of one round on one node."""

    __slots__ = ("ending", "grace_s", "is_alive", "number", "place", "started")

    def __init__(self, place, number, started):
        self.place = place
        self.number = number
        self.started = started
        self.is_alive = True
        self.ending = False
        self.grace_s = 0.0

    @property
    def world(self):
        return self.place.epoch, self.place.term, self.place.round


class Working:
    """The part of an agent that has workers."""

    def __init__(self):
        self.fence = None
        self.life = None
        self.lives = 0
        self.ports = 0

    @property
    def is_frozen(self):
        """Whether the whole node stands still."""
        return self in self.cluster.thaws

    def _on_start_workers(self, effect):
        if self.is_leaving:
            return
        self.lives += 1
        life = Life(effect.place, self.lives, self.cluster.now)
        self.cluster.checks.started(self, life)
        self.life = life
        self.cluster.jobs.begun(self, life)

    def _on_stop_workers(self, effect):
        life = self.life
        if life is None or not life.is_alive:
            self.cluster.after(0.0, self._say_stopped, self.lives)
        elif not life.ending or effect.grace_s < life.grace_s:  # the first time, or there is less time now
            if not life.ending:
                self.cluster.checks.stopping(life)
            life.ending, life.grace_s = True, effect.grace_s
            self.cluster.after(self.cluster.jobs.stop_s(self, effect.grace_s), self.end_life, life)

    def _on_kill_workers(self, _effect):
        life = self.life
        if life is None or not life.is_alive:
            self.cluster.after(0.0, self._say_stopped, self.lives)
        else:
            life.ending = True
            self.cluster.after(self.rng.random() * 0.03, self.end_life, life)

    def end_life(self, life, report=None):
        """Let the workers of `life` be dead, if they are not; `report` is what follows `WorkersStopped`."""
        if not life.is_alive:
            return
        if self.is_frozen:
            self.cluster.thaws[self].append((self.end_life, life, report))
            return
        life.is_alive = False
        self.cluster.checks.died(life)
        self.cluster.jobs.over(life, well=isinstance(report, WorkersDone))
        self._say_stopped(life.number)
        if report is not None and not self.is_leaving:
            self.post(report)

    def _say_stopped(self, number):
        if number == self.lives and not self.is_leaving:
            self.ports += 1
            self.post(WorkersStopped(30000 + self.ports))

    def fail(self, life, names_peer=False, free=False):
        """Let the workers of `life` fail by themselves."""
        if life.is_alive and not life.ending and not self.is_frozen and self not in self.cluster.dozing:
            self.cluster.checks.failed(life, is_root=not (names_peer or free))
            self.end_life(life, WorkersFailed((self._failure(life, names_peer),), (self.clock(),), (names_peer,), free))

    def _failure(self, life, names_peer):
        message = "Connection closed by peer" if names_peer else f"mistake in round {life.place.round}"
        return json.dumps(
            as_dict(
                Failure(
                    rank=life.place.first_rank,
                    local_rank=0,
                    host=self.host,
                    pid=self.lives,
                    status=1,
                    at=self.clock(),
                    age_s=self.cluster.now - life.started,
                    kind="exception",
                    type="RuntimeError",
                    bases=("RuntimeError", "Exception"),
                    message=message,
                )
            )
        )

    def finish(self, life):
        """Let the workers of `life` end well."""
        if life.is_alive and not life.ending:
            if self.is_frozen:
                self.cluster.thaws[self].append((self.finish, life))
                return
            if self in self.cluster.dozing:
                self.cluster.after(0.5, self.finish, life)
                return
            self.cluster.checks.finished(life)
            self.end_life(life, WorkersDone())

    def _on_fence(self, effect):
        self.fence = effect.deadline

    def _guard(self, fence):
        if self.is_alive and self.is_paused and fence == self.fence and not self.is_frozen and self.life is not None:
            self.cluster.after(self.rng.random() * 0.03, self.end_life, self.life)
