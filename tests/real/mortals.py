"""Jobs of which agents and workers die on order, at a point of our own code (`tests/support/mortal.py`).

PLANARIA_TEST_STATE_KILLS says how many deaths a campaign has (25; 1,000 at night), PLANARIA_TEST_SEED which. With 1,000 a job
goes on until no point is left: somebody has died at each that the last processes have passed, or was waited for there as often
as said. That is a systematic sweep.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import mortal
from harness import is_alive, kill, wait_gone, wait_until
from training import SUPPORT, Training

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from crew import CrewNode
    from harness import Room
    from training import Life

KILLS = int(os.environ.get("PLANARIA_TEST_STATE_KILLS", "25"))
MISSES = (
    1 / 2
)  # of all deaths at most: where there are few, chance is large; where there are many, rare points are tried twice
LEAST_SHARE = 1 / 2 if KILLS > 25 else 1 / 3  # of the points that so many deaths can be at: that many were hit
IS_SWEEP = KILLS >= 1000  # a job of three nodes has a thousand points
TRIES = 2  # how often somebody is waited for at a point
MOST_DEATHS = 3  # for each that was asked for, until no point is left
SEED = int(os.environ.get("PLANARIA_TEST_SEED", "3"))
SOON_S = 6.0  # within which a point is passed that is passed at every commit; who does not is killed anywhere


class Mortals(Training):
    """A job whose agents and workers die on order."""

    def __init__(
        self, room: Room, rng: random.Random, *options: str, program: str = "committing", **settings: Any
    ) -> None:
        super().__init__(room, "--mortal", *options, program=program, **settings)
        self._room = room
        self._rng = rng
        self._tried: dict[tuple[str, str], int] = {}  # how often a point was tried, by the kind of strike
        self._known: set[str] = set()
        self._hit: set[str] = set()  # points at which somebody has died, whatever the strike
        self._left: dict[tuple[str, bool], list[str]] = {}  # where nobody has died yet, of what the last one passed
        self.deaths = 0  # on order, or where they should have been
        self.missed = 0

    def add(self, **settings: Any) -> CrewNode:
        launcher = (sys.executable, str(SUPPORT / "mortal.py"), self._place(self.next_name), "run")
        return super().add(launcher=launcher, env={"PYTHONPATH": str(SUPPORT)}, **settings)

    def _place(self, name: str) -> str:
        return self._room.path(f"mortal.{name}")

    def _order(self, kind: str, name: str, known: Sequence[str]) -> str:
        """Order a death at a point that was seldom tried; return it. What is passed once while one begins is not waited for."""
        self._known.update(known)
        left = [point for point in known if point not in self._hit and self._tries(kind, point) < TRIES]
        self._left[kind, "." in name] = left  # of agents and of workers
        least = min(self._tries(kind, point) for point in left or known)
        point = self._rng.choice([point for point in left or known if self._tries(kind, point) == least])
        self._tried[kind, point] = least + 1
        mortal.give(self._place(name), point, 0 if kind in ("begins", "first") or least else self._rng.randint(0, 2))
        return point

    def _tries(self, kind: str, point: str) -> int:
        return self._tried.get((kind, point), 0)

    def strike_one(self, strikes: Sequence[Callable[[Life], None]]) -> None:
        """Strike the next life; in a sweep by what has points left, or has not been tried."""
        life = self.wait_life()
        keys: dict[str, tuple[str, bool]] = {
            "strike_worker": ("worker", True),
            "strike_restoring_worker": ("begins", True),
            "strike_first_commits": ("first", True),
            "strike_agent": ("agent", False),
            "strike_lone_agent": ("agent", False),
            "strike_newcomer": ("begins", False),
            "strike_beginning_agent": ("begins", False),
        }
        wanted = [one for one in strikes if IS_SWEEP and self._left.get(keys.get(one.__name__, ("", False)), ["?"])]
        self._rng.choice(wanted or strikes)(life)

    def goes_on(self, kills: int) -> bool:
        """Tell whether somebody is to die yet."""
        is_swept = not any(self._left.values()) or self.deaths >= MOST_DEATHS * kills
        return self.deaths < kills or (IS_SWEEP and not is_swept)

    def _wait_death(self, point: str, is_dead: Callable[[], bool], kill_it: Callable[[], None]) -> str:
        """Wait until somebody has died as ordered; tell where."""
        self.deaths += 1
        try:
            wait_until(is_dead, "a death", SOON_S)
        except AssertionError:
            self.missed += 1
            kill_it()
            return "anywhere"
        self._hit.add(point)
        return point

    # The strikes.

    def strike_worker(self, life: Life) -> None:
        """Let a worker die in a commit."""
        (node, rank), pid = self._rng.choice(sorted(life.pids.items()))
        name = f"{node}.{rank}"
        self.wait_step(life.step + 2, life)  # of all workers together: one may have written down nothing yet
        known = wait_until(lambda: mortal.points(self._place(name)), f"a point that {name} passes")
        point = self._order("worker", name, known)
        where = self._wait_death(point, lambda: not is_alive(pid), lambda: kill(pid))
        mortal.take_back(self._place(name))
        self.workers_lost(life, f"worker {name} at {where}")

    def strike_restoring_worker(self, life: Life) -> None:
        """Kill a worker, and then one that restores."""
        node, rank = self._rng.choice(sorted(life.pids))
        name = f"{node}.{rank}.begin"
        known = wait_until(lambda: mortal.points(self._place(name)), f"a point that {name} passes")
        point = self._order("begins", name, known)
        kill(self._rng.choice([*life.pids.values()]))
        self.workers_lost(life, "a worker")
        pid, self._over = wait_until(lambda: self.book.look().worker(node, rank, life.round), "a worker that restores")
        where = self._wait_death(point, lambda: not is_alive(pid), lambda: kill(pid))
        mortal.take_back(self._place(name))
        self.told.append(f"round {self._over}: worker {name} at {where}")

    def strike_first_commits(self, life: Life) -> None:
        """Kill a worker, and the one in its place in its first commits, which look at everything and map memory."""
        (node, rank), lost = self._rng.choice(sorted(life.pids.items()))
        name = f"{node}.{rank}"
        known = wait_until(lambda: mortal.points(self._place(name)), f"a point that {name} passes")
        kill(lost)
        wait_gone([lost])
        point = self._order("first", name, known)
        self.workers_lost(life, f"worker {name}")
        pid, self._over = wait_until(lambda: self.book.look().worker(node, rank, life.round), "a worker that restores")
        where = self._wait_death(point, lambda: not is_alive(pid), lambda: kill(pid))
        mortal.take_back(self._place(name))
        self.told.append(f"round {self._over}: worker {name} at {where}")

    def strike_agent(self, life: Life) -> None:
        """Let an agent die while commits are made complete, copied or written; another takes its place."""
        self.wait_kept("buddy", life)
        node = self._rng.choice(self.alive)
        point = self._order("agent", node.name, mortal.points(self._place(node.name)))
        self._await_agent(life, node, point)
        self.add()

    def strike_newcomer(self, life: Life) -> None:
        """Kill an agent, and the one that takes its place while it begins."""
        self.wait_kept("buddy", life)
        lost = self._rng.choice(self.alive)
        known = mortal.points(self._place(lost.name))
        self.kill_agent(life, lost)
        point = self._order("begins", self.next_name, known)
        self._await_agent(life, self.add(), point)
        self.add()

    def strike_lone_agent(self, life: Life) -> None:
        """Let the only agent die while commits are written; what is not on disk goes with it."""
        self.wait_kept("disk", life)
        (node,) = self.alive
        self._await_agent(life, node, self._order("agent", node.name, mortal.points(self._place(node.name))))
        self.agents_lost(life)
        self.add()

    def strike_beginning_agent(self, life: Life) -> None:
        """Kill the only agent, and the next one while its workers begin."""
        self.wait_kept("disk", life)
        (node,) = self.alive
        known = mortal.points(self._place(node.name))
        self.kill_agent(life, node)
        self.agents_lost(life)
        point = self._order("begins", self.next_name, known)
        self._await_agent(life, self.add(), point)
        self.agents_lost(life)
        self.add()

    def strike_all_agents(self, life: Life) -> None:
        """Kill all agents at once: the directory is all that is left."""
        self.wait_kept("disk", life)
        lost, self.alive = self.alive, []
        for node in lost:
            kill(node.agent())
        for node in lost:
            node.wait()
            wait_gone(self.crew.pids(node.name))
        self.agents_lost(life)
        for _ in lost:
            self.add()

    def _await_agent(self, life: Life, node: CrewNode, point: str) -> None:
        self.alive.remove(node)
        where = self._wait_death(point, lambda: not node.is_running, lambda: kill(node.agent()))
        node.wait()
        wait_gone(self.crew.pids(node.name))
        self.agent_lost(life, f"agent of {node.name} at {where}")

    def end(self) -> None:
        """Let the job end well."""
        life = self.wait_life()
        self.ask_to_end()
        for node in self.alive:
            end = node.wait()
            assert end.status == 0, f"{node.name} ended with {end.status} after round {life.round}\n{self.story()}"
        spared = sorted(self._known - self._hit)
        told = f"died at {len(self._hit)} of {len(self._known)} points; not at {spared}"
        print(told)  # shown by `pytest -rP`
        assert len(self._hit) >= LEAST_SHARE * min(len(self._known), self.deaths), told
        assert not IS_SWEEP or not any(self._left.values()), f"never tried: {self._left}"
