"""Hold one Lease, so that one operator acts: asks, waits, renews, and gives up in time. What to do is decided in `tenure`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from planaria.errors import KubeError, LeadershipLost
from planaria.kube import tenure
from planaria.kube.resources import LEASE
from planaria.kube.tenure import Sight, Terms

if TYPE_CHECKING:
    from planaria.kube.api import Api
    from planaria.kube.model import Json

_LOOK_S = (
    2.0  # between two looks at a Lease that another holds: the operator may get it, and not watch (installation.py)
)
_AGAIN_S = 0.5  # after a renewal that failed


class Leadership:
    """One candidate for one Lease."""

    def __init__(
        self,
        api: Api,
        place: tuple[str, str],
        me: str,
        terms: Terms,
        chance: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_seen = False
        self.me = me
        self._api = api
        self._namespace, self._name = place
        self._terms = terms
        self._chance = chance
        self._clock = clock
        self._renewed_at: float | None = None
        self._lease: Json | None = None
        self._sight: Sight | None = None

    @property
    def is_held(self) -> bool:
        """Tell whether this operator may act now."""
        return self._renewed_at is not None and tenure.is_held(self._renewed_at, self._terms, self._clock())

    async def acquire(self, say: Callable[[str], object]) -> None:
        """Wait until the Lease is ours, however long it takes."""
        told = ""
        while True:
            asked_s = 0.0
            try:
                holder = await self._try()
                sentence = f"{holder} holds the Lease {self._namespace}/{self._name}: standing by" if holder else ""
            except KubeError as problem:
                if not problem.retryable:
                    raise
                sentence = f"the Lease {self._namespace}/{self._name} cannot be had now: {problem}"
                asked_s = problem.retry_after_s
            if self.is_held:
                return
            if sentence and sentence != told:
                say(sentence)
            told = sentence
            await asyncio.sleep(asked_s + _LOOK_S * (0.75 + self._chance() / 2))

    async def keep(self) -> None:
        """Renew the Lease for ever.

        Raises:
            LeadershipLost: Another has it, or it was not renewed in time.
        """
        while True:
            await asyncio.sleep(self._terms.renew_s)
            await self._renew_in_time()

    async def _renew_in_time(self) -> None:
        while self.is_held:
            assert self._renewed_at is not None
            left = self._renewed_at + self._terms.give_up_s - self._clock()
            try:
                async with asyncio.timeout(left):
                    if await self._renew():
                        return
                    break
            except TimeoutError:
                break
            except KubeError as problem:
                # Whoever asks for a longer pause would get another operator with lists of everything instead.
                await asyncio.sleep(min(max(_AGAIN_S, problem.retry_after_s), self._terms.renew_s))
        self._renewed_at = None
        raise LeadershipLost(
            f"the Lease {self._namespace}/{self._name} was not renewed within {self._terms.give_up_s:g} s",
            hint="another operator goes on; this one starts again as a standby",
        )

    async def release(self) -> None:
        """Let the next one begin at once. Does nothing if the Lease is not ours."""
        if self.is_held and self._lease is not None:
            self._renewed_at = None
            await self._api.replace(tenure.released(self._lease, _wall()))

    async def _try(self) -> str:
        """Look once, and write if it is free; return who holds it."""
        lease = await self._api.get(LEASE, self._namespace, self._name)
        began = self._clock()
        self.is_seen = True
        if lease is None:
            await self._write(
                began, tenure.fresh(self._namespace, self._name, self.me, self._terms, _wall()), is_new=True
            )
            return self.me
        self._sight = tenure.seen(lease, self._sight, began)
        if tenure.may_take(self._sight, self.me, began):
            await self._write(began, tenure.written(lease, self.me, self._terms, _wall()))
        return self._sight.holder

    async def _renew(self) -> bool:
        """Renew once; False if another holds it. A write whose answer was lost is found by reading."""
        assert self._lease is not None
        began = self._clock()
        if await self._write(began, tenure.written(self._lease, self.me, self._terms, _wall())):
            return True
        lease = await self._api.get(LEASE, self._namespace, self._name)
        if lease is None or (lease.get("spec") or {}).get("holderIdentity") != self.me:
            return False
        self._lease = lease
        return await self._write(began, tenure.written(lease, self.me, self._terms, _wall()))

    async def _write(self, began: float, lease: Json, *, is_new: bool = False) -> bool:
        try:
            self._lease = await (self._api.create(lease) if is_new else self._api.replace(lease))
        except KubeError as problem:
            if not problem.is_conflict:
                raise
            return False  # somebody wrote first
        self._renewed_at = began
        return True


def _wall() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
