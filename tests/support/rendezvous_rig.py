"""Several agents' rendezvous drivers on one loop, with hands that start nothing: for tests over real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from planaria.agent.settings import Meeting
from planaria.base.loop import Loop
from planaria.base.value import replace
from planaria.rendezvous.model import Settings, WorkersStopped
from planaria.rendezvous.opening import open_driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.rendezvous.addresses import Network
    from planaria.rendezvous.driver import Driver
    from planaria.rendezvous.messages import Ended, Place
    from planaria.store.api import Store

PATIENCE_S = 30.0  # how long anything may take before a test calls it a hang: two busy cores, shared with others
TTL_S = 30.0  # longer than any test: no lease runs out because a machine is busy


class Hands:
    """Remembers what it was told; its workers stop at once."""

    driver: Driver

    def __init__(self) -> None:
        self.place: Place | None = None
        self.places: list[Place] = []
        self.stops: list[str] = []
        self.kills: list[str] = []
        self.fences: list[float | None] = []
        self.ended: Ended | None = None
        self.said: list[tuple[str, bool]] = []

    def start(self, place: Place) -> None:
        self.place = place
        self.places.append(place)

    def stop(self, round: int, reason: str, grace_s: float) -> None:  # noqa: A002, ARG002
        self.place = None
        self.stops.append(reason)
        self.driver.post(WorkersStopped(20000 + round))

    def kill(self, reason: str) -> None:
        self.place = None
        self.kills.append(reason)
        self.driver.post(WorkersStopped(20000))

    def fence(self, deadline: float | None) -> None:
        self.fences.append(deadline)

    def end(self, ended: Ended) -> None:
        self.ended = ended

    def say(self, text: str, passing: bool) -> None:
        self.said.append((text, passing))


class Rig:
    """A loop and the agents on it. Use as a context manager: everything is closed at the end."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.agents: list[Hands] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents:
            agent.driver.close()
        self.turn(lambda: False, within_s=0.01)  # a moment for goodbyes: what is lost of them is nobody's any more
        self.loop.close()

    def add(
        self,
        meeting: Meeting,
        *,
        store: Callable[[], Store] | None = None,
        network: Network | None = None,
        hostname: str = "host",
        **changes: object,
    ) -> Hands:
        """Start one more agent."""
        hands = Hands()
        draft = Settings("", "", "", 1, run_id=meeting.run_id, min_nodes=meeting.min_nodes, max_nodes=meeting.max_nodes)
        draft = replace(draft, **{"ttl_s": TTL_S, "quiet_s": 0.3, "boot_quiet_s": 0.3, **changes})
        hands.driver = open_driver(
            self.loop,
            meeting,
            hands,
            draft,
            hostname=hostname,
            random=len(self.agents).to_bytes(4),
            store=store,
            network=network,
        )
        self.agents.append(hands)
        hands.driver.begin()
        return hands

    def turn(self, until: Callable[[], object], within_s: float = PATIENCE_S) -> bool:
        """Turn the loop until something is true; return whether it became so."""
        deadline = self.loop.now() + within_s
        while not until():
            left_s = deadline - self.loop.now()
            if left_s <= 0:
                return False
            self.loop.run_once(left_s)
        return True

    def meet(self, *agents: Hands) -> None:
        """Wait until exactly these agents run in one round."""

        def together() -> bool:
            places = [agent.place for agent in agents]
            return len({place and (place.term, place.round) for place in places}) == 1 and all(
                place is not None and place.size == len(agents) for place in places
            )

        assert self.turn(together), [(agent.place, agent.said[-3:], agent.ended) for agent in agents[:8]]
        assert {agent.place.slot for agent in agents if agent.place} == set(range(len(agents)))


def meeting_at(*endpoints: str, nodes: str = "1:3", backend: str = "embedded", **more: object) -> Meeting:
    """Return what a command line says, in few words."""
    least, _, most = nodes.partition(":")
    fields: dict[str, object] = {"run_id": "run", "min_nodes": int(least), "max_nodes": int(most or least), **more}
    return Meeting(backend=backend, endpoints=endpoints, **fields)  # type: ignore[arg-type]
