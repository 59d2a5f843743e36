"""Look at one job: read, decide, write. What to do is decided in `plan`; whatever is done here may be done twice.

The status is written first, then what follows from it: an operator that is killed in between decides the same again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from planaria.base.value import replace
from planaria.errors import KubeError
from planaria.kube import burial
from planaria.kube.events import Teller
from planaria.kube.model import Bury, Create, Delete, Event, Now
from planaria.kube.names import Names
from planaria.kube.plan import decide, to_try, tried
from planaria.kube.refusals import REFUSED_S, Refusals, sentence_of
from planaria.kube.resources import CONFIG_MAP, JOB, KINDS, POD, SECRET
from planaria.kube.seen import JobSeen, has_ended, job_seen, owner_of
from planaria.kube.sources import source_of
from planaria.kube.status import was_accepted
from planaria.kube.watching import key_of

if TYPE_CHECKING:
    from planaria.kube.api import Api
    from planaria.kube.books import Books
    from planaria.kube.gather import Gatherer
    from planaria.kube.model import Action, Json
    from planaria.kube.seen import World
    from planaria.kube.watching import Key

AGAIN_S = 1.0  # agents wrote their ConfigMap at the same time
MOST_ACTIONS = 25  # of one look: what a job of many pods has left waits for its next turn, as others do for theirs
RESYNC_S = 300.0  # every job is looked at so often, whatever was missed
_TOLD_S = 0.1  # until a refusal is seen by a look, and is in the job's status
_REFUSED = (400, 403, 404, 413, 422)  # the server has read it and will not have it


class Reconciler:
    """Does what is to be done about jobs, one look at a time. `wall` and `noise` give the time of day and fresh tokens."""

    def __init__(
        self, api: Api, books: Books, gatherer: Gatherer, wall: Callable[[], float], noise: Callable[[], str]
    ) -> None:
        self._api = api
        self._books = books
        self._gatherer = gatherer
        self._wall = wall
        self._noise = noise
        self._teller = Teller(api)
        self._refusals = Refusals(books.clock)
        self._uids: dict[Key, str] = {}

    async def look(self, key: Key) -> float | None:
        """Bring a job one step further; return after how many seconds to look again though nothing changes.

        Raises:
            KubeError: Something was not done; look again.
        """
        obj = self._books.jobs.get(key)
        uid = None if obj is None else obj["metadata"]["uid"]
        if self._uids.get(key, uid) != uid:  # another one of that name, or none
            await self._forget(key)
        if obj is None:
            return None
        self._uids[key] = obj["metadata"]["uid"]
        job = job_seen(obj)
        self._gatherer.push(key, self._books.progress(key))
        metrics = self._gatherer.metrics(key)
        refusals = self._refusals.of(key, job.generation)
        world = self._tried(key, job, replace(self._books.world(job, metrics), refusals=refusals))
        decision = decide(job, world, Now(self._wall(), self._noise()))
        status: Json = json.loads(json.dumps(decision.status))  # as it will be read: a tuple becomes a list
        if status != job.status:
            obj = await self._write_status(obj, status)
        wanted = ((action.kind, action.name) for action in decision.actions if isinstance(action, Create))
        self._refusals.keep(key, frozenset(wanted))
        due_s = self._gatherer.taken(key, len(metrics.samples), decision.wants)
        self._gatherer.follow(key, source_of(job, world, status))
        for event in decision.events:
            await self._teller.tell(obj, event, self._wall())
        waits = [decision.wake_after_s, due_s, await self._act(obj, decision.actions), RESYNC_S]
        return min(wait for wait in waits if wait is not None)

    async def _forget(self, key: Key) -> None:
        self._uids.pop(key, None)
        self._books.forget(key)
        self._refusals.forget(key)
        await self._gatherer.drop(key)

    def _tried(self, key: Key, job: JobSeen, world: World) -> World:
        """Return the world with what is known of a spec by trying: a pattern, on its sample line."""
        metric = to_try(job)
        if metric is None:
            return world
        trial = self._gatherer.trial(key, metric, was_accepted=was_accepted(job.status))
        return tried(world, trial.sentence, trial.trouble)

    async def _write_status(self, obj: Json, status: Json) -> Json:
        """Write the status if the job is still as it was read; if it is not, read it, and leave the rest to the next look."""
        try:
            written = await self._api.replace(obj | {"status": status}, "status")
        except KubeError as problem:
            if problem.status in (404, 409):
                await self._read_again(obj)
            raise
        self._books.wrote(JOB, written)
        return written

    async def _read_again(self, obj: Json) -> None:
        key = key_of(obj)
        found = await self._api.get(JOB, *key)
        if found is None or found["metadata"]["uid"] != obj["metadata"]["uid"]:
            self._books.gone(JOB, key, obj["metadata"]["uid"])
        if found is not None:
            self._books.wrote(JOB, found)

    async def _act(self, job: Json, actions: Sequence[Action]) -> float | None:
        """Do what was decided, in order; return when to look again for the sake of something that was not done."""
        waits: list[float] = []
        done = 0
        for action in actions:
            if isinstance(action, Create) and self._refusals.is_fresh(key_of(job), action):
                waits.append(REFUSED_S)
                continue
            if done == MOST_ACTIONS:
                return 0.0
            done += 1
            wait_s: float | None = None
            match action:
                case Delete():
                    await self._delete(job, action)
                case Bury():
                    wait_s = await self._bury(job, action)
                case Create():
                    wait_s = await self._create(job, action)
            if wait_s == 0:  # something is in the way that was not known: what follows was decided without it
                return 0.0
            if wait_s is not None:
                waits.append(wait_s)
        return min(waits, default=None)

    async def _create(self, job: Json, action: Create) -> float | None:
        """Make an object; return when to look again if it could not be made."""
        kind, key = KINDS[action.kind], key_of(job)
        try:
            self._books.wrote(kind, await self._api.create(action.body))
            self._refusals.clear(key, action)
        except KubeError as problem:
            if problem.is_conflict:
                return None if await self._meet(job, action) else 0.0
            if problem.status not in _REFUSED:
                raise
            sentence = sentence_of(action, problem)
            self._refusals.add(key, action, sentence)
            await self._teller.tell(job, Event("FailedCreate", sentence, is_warning=True), self._wall())
            return _TOLD_S
        return None

    async def _meet(self, job: Json, action: Create) -> bool:
        """Tell whether the object that was there already is the job's own. Secrets are not read: their names say it."""
        kind = KINDS[action.kind]
        found: Json | None = {"metadata": action.body["metadata"] | {"uid": ""}}
        if kind != SECRET:
            found = await self._api.get(kind, job["metadata"]["namespace"], action.name)
        if found is not None:
            self._books.met(job, kind, found)
        return found is not None and owner_of(found) == job["metadata"]["uid"]

    async def _bury(self, job: Json, action: Bury) -> float | None:
        """Write the note about nodes that are gone; return when to look again if others wrote at the same time.

        Pods are listed anew, of the whole namespace: a copy may be behind, and one whose labels were taken away still trains.
        """
        try:
            dead = await self._note(job, action)
        except KubeError as problem:
            if problem.is_conflict:
                return AGAIN_S
            if problem.status not in _REFUSED:
                raise
            return REFUSED_S  # what else there is to do need not wait for it
        if not dead:
            return None
        told = f"The run goes on without {burial.told(dead)}, whose pods are gone for good."
        await self._teller.tell(job, Event("MembersGone", told), self._wall())
        return None

    async def _note(self, job: Json, action: Bury) -> tuple[str, ...]:
        """Return the nodes that the note names now; none where there is nothing of ours to write it into, or no room."""
        namespace, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
        pods = (await self._api.list(POD, namespace, keep=_end_of)).items
        dead = burial.gone(action.nodes, [pod["metadata"]["uid"] for pod in pods if not has_ended(pod)])
        found = await self._api.get(CONFIG_MAP, namespace, Names(job["metadata"]["name"]).run) if dead else None
        if found is None or owner_of(found) != uid:
            return ()
        try:
            noted = burial.noted(found, uid, dead)
        except ValueError:
            return ()
        self._books.wrote(CONFIG_MAP, await self._api.replace(noted))
        return dead

    async def _delete(self, job: Json, action: Delete) -> None:
        kind, key = KINDS[action.kind], (job["metadata"]["namespace"], action.name)
        try:
            answer = await self._api.delete(kind, *key, uid=action.uid)
        except KubeError as problem:
            if not problem.is_conflict:
                raise
            return  # another one by now
        if answer is not None and answer.get("kind") == kind.name:
            self._books.wrote(kind, answer)
        else:
            self._books.gone(kind, key, action.uid)


def _end_of(pod: Json) -> Json:
    """Keep of a pod which one it is, and whether it has ended."""
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": pod.get("status") or {}}
