"""Answer those who ask how the agent is, and do what its owner asks: `/livez`, `/readyz`, `/metrics`, `/v1/*`.

Over TCP a `Responder` answers in a thread of its own: whether the loop still turns is its to say, everything else is asked on
the loop, where all state lives. Through the owner's door the loop answers itself. Who may ask what is decided in `gate.py`.
"""

from __future__ import annotations

import os

from planaria.agent import gate, status
from planaria.agent.model import EndRequested, StopRequested
from planaria.base import signals
from planaria.base.mailbox import Mailbox
from planaria.base.text import safe_line
from planaria.base.usage import LONGEST_S
from planaria.observe.http import OWNER, HttpServer
from planaria.observe.metrics import CONTENT_TYPE
from planaria.observe.request import Reply, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket as socket
    from collections.abc import Callable

    from planaria.agent.driver import Driver
    from planaria.agent.model import Job
    from planaria.agent.records import Desk
    from planaria.agent.settings import HealthCheck
    from planaria.base.loop import Loop, Timer
    from planaria.observe.http import Peer, Respond
    from planaria.observe.request import Request
    from planaria.observe.responder import Responder

BEAT_S = 0.25  # how long a probe waits for the loop before it is judged by its age: probes give up after a second
ANSWER_S = 2.0  # how long other questions wait for it
MOST_QUESTIONS = 256  # that wait for a loop that is stuck; more are refused at once


class Health:
    """The agent's answers. `metrics` returns Prometheus' text, on the loop.

    `launcher_pid` is the process to which a signal for this agent goes; None: the one above it.
    """

    def __init__(
        self,
        job: Job,
        loop: Loop,
        driver: Driver,
        say: Callable[[str], object],
        metrics: Callable[[], str] = str,
        launcher_pid: int | None = None,
    ) -> None:
        self._job = job
        self._loop = loop
        self._driver = driver
        self._say = say
        self._metrics = metrics
        self._has_failed = False
        self._launcher = os.getppid() if launcher_pid is None else launcher_pid
        self._door: HttpServer | None = None
        self._far: _Far | None = None
        self._desk: Desk | None = None

    def welcome(self, visitor: socket.socket) -> None:
        """Serve one who came through the owner's door."""
        if self._door is None:
            self._door = HttpServer(self._loop, self._answer_here)
        self._door.take(visitor, OWNER)

    def open(self, check: HealthCheck) -> None:
        """Answer over TCP, for as long as the agent lives. Where that cannot be, the job goes on without it."""
        from planaria.base.addresses import join_address
        from planaria.observe.responder import Responder

        mailbox = Mailbox(self._loop)
        far = _Far(check, mailbox, self.answer)
        try:
            responder = Responder(check.host, check.port, far.answer)
            far.responder = responder
            responder.start()
        except (OSError, RuntimeError) as problem:
            mailbox.close()
            why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
            self._say(f"no health check at {join_address(check.host, check.port)}: {why}; the job goes on without it")
            return
        self._far = far
        if check.port == 0:
            self._say(f"health check at http://{responder.address}/")

    def close(self) -> None:
        """Answer nobody any more, for an agent whose process goes on without it."""
        if self._far is not None:
            self._far.close()
        if self._door is not None:
            self._door.close()
        if self._desk is not None:
            self._desk.close()

    def _answer_here(self, request: Request, peer: Peer, respond: Respond) -> None:
        refusal = gate.refusal(request, peer, None)
        if refusal is not None:
            respond(refusal)
        else:
            self.answer(request, respond)

    def answer(self, request: Request, respond: Respond) -> None:
        """Answer a request that may be made: at once, or, where a file has to be read, when that is done."""
        if not request.path.startswith(gate.FILES):
            respond(self.reply_to(request))
            return
        try:
            desk = self._reading()
        except OSError as problem:
            respond(refused(503, f"it cannot be read now: {problem.strerror}"))
            return
        desk.ask(lambda: self._reply_to(request), lambda problem: self._failed(request, problem), respond)

    def _reading(self) -> Desk:
        if self._desk is None:
            from planaria.agent.records import Desk

            self._desk = Desk(self._loop)
        return self._desk

    def reply_to(self, request: Request) -> Reply:
        """Answer a request that may be made, at once. A mistake of ours costs this answer, and nothing else."""
        try:
            return self._reply_to(request)
        except Exception as problem:  # noqa: BLE001  who only asks must never end a job
            return self._failed(request, problem)

    def _failed(self, request: Request, problem: Exception) -> Reply:
        """Say once, on the loop, that we made a mistake."""
        if not self._has_failed:
            self._has_failed = True
            self._say(f"cannot answer {request.path}, which is a bug of planaria's: {problem!r}; the job goes on")
        return refused(500, f"this is a bug of planaria's: {safe_line(repr(problem))}")

    def _reply_to(self, request: Request) -> Reply:
        if request.path.startswith(gate.RECORDS):
            return self._read(request)
        match request.path:
            case "/livez" | "/":
                return Reply(200, b"the loop turns\n")
            case "/readyz":
                why = status.why_not_ready(self._view())
                return refused(503, why) if why else Reply(200, b"in a completed round\n")
            case "/metrics":
                text = status.as_gauges(self._view(), self._metrics())
                return Reply(200, text.encode(), CONTENT_TYPE)
            case "/v1/status":
                return _json(200, status.as_json(self._view()))
            case "/v1/drain":
                if self._driver.group.phase != "draining":  # else a signal was first
                    self._driver.was_noticed = True
                return self._order(StopRequested(signals.SIGTERM, self._loop.now()), "this node drains")
            case _:
                return self._stop(request.body)

    def _read(self, request: Request) -> Reply:
        from planaria.agent import records

        observer = self._driver.observer
        return refused(404, "nobody watches this agent") if observer is None else records.reply_to(request, observer)

    def _stop(self, body: bytes) -> Reply:
        grace_s = _grace(body)
        if grace_s is None:
            return refused(400, 'expected an empty body or JSON such as {"grace_s": 10}, with seconds from 0')
        reason = "its owner asked for the end of the run"
        listening = self._driver.control.has_listeners
        why_not = status.why_nobody_can_be_asked(self._view())
        if why_not:
            return refused(409, why_not)
        return self._order(EndRequested(reason, grace_s, self._loop.now(), listening), "the whole job is told to end")

    def _order(self, event: StopRequested | EndRequested, what: str) -> Reply:
        """Do what the owner asks once this reply is on its way; what it means to a group that ends is the machine's to say."""
        self._loop.call_soon(lambda: self._driver.post(event))
        return _json(202, {"schema": status.SCHEMA, "accepted": what, "state": self._driver.group.phase})

    def _view(self) -> status.View:
        driver = self._driver
        return status.View(
            job=self._job,
            group=driver.group,
            now=self._loop.now(),
            host=os.uname().nodename,
            agent_pid=os.getpid(),
            launcher_pid=self._launcher,
            life=driver.life,
            workers=driver.workers.seen,
            progress=driver.progress,
            meeting=None if self._job.meeting is None else driver.seat.snapshot(),
            address=self._far.responder.address if self._far is not None else "",
            commits=driver.commits,
            standbys=None if driver.reserve is None else driver.reserve.overview,
            watched=self._watched(),
            **({} if driver.vigil is None else driver.vigil.seen()),
        )

    def _watched(self) -> status.Watched | None:
        observer, now = self._driver.observer, self._loop.now()
        if observer is None or observer.journal is None:
            return None
        pace = observer.pace
        return status.Watched(
            node=observer.journal.node,
            started_at=observer.began_s,
            uptime_s=now - observer.began_at,
            trained_s=pace.trained_s(now),
            steps_reported=pace.is_reported,
            rates={local_rank: pace.rates(local_rank, now) for local_rank in self._driver.progress},
            evidence=observer.journal.evidence,
            run_folder=None if observer.journal.folder is None else os.path.dirname(observer.journal.folder),
        )


class _Far:
    """Runs in the responder's thread: judges the loop by how long it has not answered, and asks it everything else."""

    def __init__(self, check: HealthCheck, to_agent: Mailbox, ask: Callable[[Request, Respond], object]) -> None:
        self._check = check
        self._to_agent = to_agent
        self._ask = ask
        self._put, self._taken = 0, 0  # how many questions were put to the loop, and came to it: a thread writes each
        self._asked_at: float | None = None
        self.responder: Responder

    def close(self) -> None:
        """End the thread, and then the way from it to the loop. Called by the loop's thread."""
        self.responder.stop()
        self._to_agent.close()

    def answer(self, request: Request, peer: Peer, respond: Respond) -> None:
        """Answer a request that came over TCP."""
        refusal = gate.refusal(request, peer, self._check.token)
        if refusal is not None:
            respond(refusal)
        elif self._put - self._taken >= MOST_QUESTIONS:
            respond(self._stuck(request))
        else:
            self._ask_loop(_Question(request, respond))

    def _ask_loop(self, question: _Question) -> None:
        if self._asked_at is None:
            self._asked_at = self.responder.loop.now()
        patience_s = BEAT_S if question.request.path in gate.LIVENESS else ANSWER_S
        question.timer = self.responder.loop.call_later(patience_s, lambda: self._give_up(question))
        self._put += 1
        self._to_agent.post(lambda: self._on_loop(question))

    def _on_loop(self, question: _Question) -> None:
        """Run on the agent's loop: it turns. What was given up is not done any more."""
        self._taken += 1
        self._asked_at = None
        if question.take():
            self._ask(question.request, lambda reply: self.responder.post(lambda: self._answered(question, reply)))

    def _answered(self, question: _Question, reply: Reply) -> None:
        if question.timer is not None:
            question.timer.cancel()
        question.respond(reply)

    def _give_up(self, question: _Question) -> None:
        if question.take():
            question.respond(self._stuck(question.request))

    def _stuck(self, request: Request) -> Reply:
        since = self._asked_at
        age_s = 0.0 if since is None else self.responder.loop.now() - since
        alive = request.path in gate.LIVENESS and age_s < self._check.timeout_s
        return refused(200 if alive else 503, f"the agent's loop has not answered for {age_s:.1f} s")


class _Question:
    """A request that waits for the loop. Loop and thread both want to answer it; whoever takes it first does."""

    __slots__ = ("_right", "request", "respond", "timer")

    def __init__(self, request: Request, respond: Respond) -> None:
        self.request = request
        self.respond = respond
        self.timer: Timer | None = None
        self._right = [True]

    def take(self) -> bool:
        """Tell whether the answer is the caller's to give. Popping from a list is one step for all threads."""
        try:
            return self._right.pop()
        except IndexError:
            return False


def _json(code: int, content: dict[str, object]) -> Reply:
    import json

    return Reply(code, json.dumps(content, indent=2).encode() + b"\n", "application/json")


def _grace(body: bytes) -> float | None:
    """Return for how long workers that listen may go on; None for what is no such order."""
    if not body.strip():
        return 0.0
    import json

    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not set(found) <= {"grace_s"}:
        return None
    grace_s = found.get("grace_s", 0)
    return float(grace_s) if type(grace_s) in (int, float) and 0 <= grace_s <= LONGEST_S else None
