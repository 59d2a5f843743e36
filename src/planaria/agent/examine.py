"""Look at workers that hang and write down what is seen: the main program of a process of its own.

    agent --request, black boxes as descriptors--> examiner --lines on stdout: there is a folder, the verdict--> agent

Workers are asked for their stacks before anything else, and the verdict is told before files are written and tools are run,
which take their time: the end of stdout is the end of those. The disk of the folder may be what hangs, so a thread makes it,
and nobody waits for that for long (`Shelf`). Reading about a stuck process, or writing to a disk that hangs only now, can take
for ever; the agent's loop must not. It gives the examiner some time, and goes on without it after that. Nothing here ends a
worker; `resume` lets one that is stopped go on, for workers that are about to be ended anyway.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import suppress
from threading import Event, Thread

from planaria.agent import proc
from planaria.agent.suspects import Examined, as_text, frames, judge
from planaria.base import linux, signals
from planaria.base.value import as_dict, replace
from planaria.contract import blackbox
from planaria.process.descendants import descendants_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from planaria.agent.suspects import Verdict

SCHEMA = 1
DUMP_S = 2.0  # for stacks to be written: all cores may be busy
CHILD_DUMP_S = 0.3  # for one child of every rank at a time
FOLDER_S = 5.0  # for a disk to make the folder, since we began
POLL_S = 0.02
QUIET_POLLS = 3
LEAST_LOOK_S = 0.3  # between two looks at how much CPU a rank uses
COLLECTIVES_S = 1.5
MOST_CHILDREN = 8
MOST_NATIVE = 4
TOOL_S = 8.0
ALL_TOOLS_S = 16.0
KILLED_S = 1.0  # for one to end that was killed; in an uninterruptible wait it does not
_STACK_BYTES = 1 << 20
_FLIGHT_BYTES = 64 << 20


class Subject:
    """One worker that is looked at."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.known = Examined(**told["known"])
        self.pid: int = self.known.pid
        self.box: int = told["box"]
        self.has_witness: bool = told["witness"]
        self._mark = self.size
        self._cpu_s, self._at = proc.cpu_s(self.pid), time.monotonic()
        self.is_stopped = proc.is_stopped(self.pid)
        self.children: dict[int, str] = {}
        self.flight: dict[str, Any] = {}

    @property
    def size(self) -> int:
        """Return how much is in its black box."""
        return os.fstat(self.box).st_size

    @property
    def name(self) -> str:
        """Return what its files are called by."""
        return f"rank{self.known.rank}"

    def text(self, since: int | None = None) -> str:
        """Return what its black box got since we look, or since it had that size."""
        data = os.pread(self.box, _STACK_BYTES, self._mark if since is None else since)
        return blackbox.read(data).text

    def ask(self, *, resume: bool) -> bool:
        """Ask it for its stacks; tell whether it is going to answer."""
        if not linux.catches(self.pid, blackbox.DUMP_STACKS):
            return False
        _send(self.pid, blackbox.DUMP_STACKS)
        if self.is_stopped and resume:
            _send(self.pid, signals.SIGCONT)
        return resume or not self.is_stopped

    def examined(self, stack: str) -> Examined:
        """Return all that is known of it now."""
        span_s = time.monotonic() - self._at
        cpu_s = proc.cpu_s(self.pid)
        cpu = None if cpu_s is None or self._cpu_s is None or span_s <= 0 else (cpu_s - self._cpu_s) / span_s
        collective, begun = proc.collective(self.flight)
        state = "T" if self.is_stopped else proc.state(self.pid)
        return replace(
            self.known,
            state=state,
            cpu=None if cpu is None else round(cpu, 2),
            wchan=proc.wchan(self.pid),
            stack=stack,
            collective=collective,
            begun=begun,
        )


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _ask_children(subjects: list[Subject]) -> None:
    """Ask the processes below workers, such as those of a data loader.

    Those of one worker write into the same black box, so they are asked one after the other: the first of every worker at the
    same time, then the second. How long it takes does not depend on how many workers there are.
    """
    below = [(one, descendants_of(one.pid)[:MOST_CHILDREN]) for one in subjects]
    for turn in range(max((len(pids) for _, pids in below), default=0)):
        asked = [(one, pids[turn], one.size) for one, pids in below if turn < len(pids)]
        _wait_quiet([(one, before) for one, pid, before in asked if _asks_child(pid)], CHILD_DUMP_S)
        for one, pid, before in asked:
            one.children[pid] = one.text(before)


def _asks_child(pid: int) -> bool:
    """Ask a process for its stacks, if it is going to answer; tell whether it is."""
    if not linux.catches(pid, blackbox.DUMP_STACKS) or proc.is_stopped(pid) or not linux.is_running(pid):
        return False
    _send(pid, blackbox.DUMP_STACKS)
    return True


def _wait_quiet(asked: Iterable[tuple[Subject, int]], within_s: float) -> None:
    """Wait until every black box has grown and grows no more."""
    asked = list(asked)
    until = time.monotonic() + within_s
    seen, quiet = [0] * len(asked), 0
    while asked and quiet < QUIET_POLLS and time.monotonic() < until:
        time.sleep(POLL_S)  # noqa: TID251  memory that grows wakes nobody
        sizes = [subject.size for subject, _ in asked]
        grown = all(size > before for size, (_, before) in zip(sizes, asked, strict=True))
        quiet = quiet + 1 if grown and sizes == seen else 0
        seen = sizes


def _beside(work: Callable[[], object]) -> Thread | None:
    """Do something in a thread that nobody has to wait for; None where no thread is left."""
    thread = Thread(target=work, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


class Shelf:
    """The folder of evidence. A thread makes it, and reads there what workers say of their collectives.

    On a disk that hangs that thread never comes back: whoever wants something of it says until when.
    """

    def __init__(self, folder: str, witnesses: list[str]) -> None:
        self._folder = folder
        self._awaited = witnesses
        self._is_made, self._is_read, self._is_over = Event(), Event(), Event()
        self._is_there = False
        self._flights: dict[str, dict[str, Any]] = {}
        if _beside(self._work) is None:
            self._awaited = []
            self._work()

    def is_kept(self, until: float) -> bool:
        """Tell whether there is a folder, as soon as that is known."""
        self._is_made.wait(max(0.0, until - time.monotonic()))
        return self._is_there

    def flights(self, until: float) -> dict[str, dict[str, Any]]:
        """Return what workers say by then, by their names; nothing is read after that."""
        self._is_read.wait(max(0.0, until - time.monotonic()))
        self._is_over.set()
        return dict(self._flights)

    def _work(self) -> None:
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._is_there = True
        except OSError:  # who it is can be said without a place to write
            self._awaited = []
        self._is_made.set()
        while self._awaited and not self._is_over.wait(POLL_S):  # nobody tells of a new file on every kind of disk
            for name in list(self._awaited):
                data = linux.read_file(f"{self._folder}/{name}.collectives.json", _FLIGHT_BYTES)
                if data:
                    self._flights[name] = proc.as_object(data)
                    self._awaited.remove(name)
        self._is_read.set()


class Examiner:
    """Writes one folder of evidence."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._folder: str = request["folder"]
        self._subjects = [Subject(told) for told in request["ranks"]]

    def run(self) -> None:
        """Look at everything, tell the agent what it wants to know as soon as that is known, write it all down."""
        began = time.monotonic()
        asked = self._ask()
        shelf = Shelf(self._folder, [one.name for one in self._subjects if one.has_witness])
        _wait_quiet(asked, DUMP_S)
        stacks = {one.pid: one.text() for one in self._subjects}
        _ask_children(self._subjects)
        is_kept = shelf.is_kept(began + FOLDER_S)
        _tell({"kept": is_kept})
        flights = shelf.flights(time.monotonic() + (COLLECTIVES_S if is_kept else 0.0))
        for one in self._subjects:
            one.flight = flights.get(one.name, {})
        time.sleep(max(0.0, began + LEAST_LOOK_S - time.monotonic()))  # noqa: TID251  a rank uses CPU meanwhile, or does not
        examined = [one.examined(stacks[one.pid]) for one in self._subjects]
        verdict = judge(
            examined,
            host=self._request["host"],
            is_alone=self._request["alone"],
            evidence=self._folder if is_kept else "",
        )
        _tell(
            {
                "ranks": list(verdict.ranks),
                "waiting": list(verdict.waiting),
                "brief": verdict.brief,
                "sentence": verdict.sentence,
                "elsewhere": verdict.elsewhere,
                "unclear": verdict.unclear,
            }
        )
        if is_kept:
            self._write(examined, verdict)

    def _ask(self) -> list[tuple[Subject, int]]:
        """Ask workers for their stacks; return those that are going to answer, and how much their black boxes had."""
        marks = [(one, one.size) for one in self._subjects]
        return [(one, size) for one, size in marks if one.ask(resume=self._request["resume"])]

    def _write(self, examined: list[Examined], verdict: Verdict) -> None:
        """Write it down. What the GPUs are at is asked for beside the rest: each of these tools may take all its time."""
        gpus = _beside(lambda: self._save("gpu.txt", _tool(("nvidia-smi",), TOOL_S)[0]))
        self._summarize(examined, verdict.sentence, as_text(examined, verdict, self._request["heading"]), verdict.ranks)
        self._save_ranks(examined)
        self._save("host.txt", proc.host(self._folder))
        if self._request["trace"]:
            self._look_native(examined, verdict.ranks)
        if gpus is not None:
            gpus.join()

    def _save_ranks(self, examined: list[Examined]) -> None:
        for subject, one in zip(self._subjects, examined, strict=True):
            self._save(f"{subject.name}.proc.txt", proc.process(subject.pid))
            self._save(f"{subject.name}.stack.txt", one.stack)
            for pid, stack in subject.children.items():
                self._save(f"{subject.name}.child{pid}.txt", f"{proc.process(pid)}\n{stack}")

    def _look_native(self, examined: list[Examined], suspects: tuple[int, ...]) -> None:
        """Have the stacks of threads outside of Python, where a tool for it is installed: of suspects, and of the silent.

        The tools stop a process for seconds, so only one that is about to be ended is looked at.
        """
        wanted = [one for one in examined if not one.stack or one.rank in suspects[:1]][:MOST_NATIVE]
        until = time.monotonic() + ALL_TOOLS_S
        for one in wanted:
            self._save(f"rank{one.rank}.native.txt", _native(one.pid, until))

    def _summarize(self, examined: list[Examined], sentence: str, text: str, ranks: tuple[int, ...]) -> None:
        content = {
            "schema": SCHEMA,
            **self._request["about"],
            "behind": list(ranks),
            "sentence": sentence,
            "ranks": [
                {
                    **{name: value for name, value in as_dict(one).items() if name not in ("stack", "begun")},
                    "collectives_begun": {count.group: count.begun for count in one.begun},
                    "frames": [as_dict(frame) for frame in frames(one.stack)],
                }
                for one in examined
            ],
        }
        self._save("summary.json", json.dumps(content, indent=2) + "\n")
        self._save("summary.txt", text)

    def _save(self, name: str, text: str) -> None:
        """Write a file of the folder; what is empty or cannot be written is left out."""
        try:
            if text:
                descriptor = os.open(f"{self._folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(text)
        except OSError:
            return


_GDB_ORDER = ("-ex", "thread apply all bt 40")
_NATIVE = {
    "py-spy": ("py-spy", "dump", "--native", "--pid", "{pid}"),
    "gdb": ("gdb", "-q", "-nx", "-batch", "-iex", "set debuginfod enabled off", *_GDB_ORDER, "-p", "{pid}"),
}


def _native(pid: int, until: float) -> str:
    """Return what the first tool says that can; of those that cannot, why."""
    told = ""
    for words in _NATIVE.values():
        left_s = min(TOOL_S, until - time.monotonic())
        text, is_done = _tool(tuple(word.format(pid=pid) for word in words), left_s) if left_s > 0 else ("", False)
        if is_done:
            return text
        told += text
    return told


def _tool(words: tuple[str, ...], within_s: float) -> tuple[str, bool]:
    """Return what a tool says, and whether it did what it was asked for. One that cannot even be killed is left behind."""
    import subprocess

    if shutil.which(words[0]) is None:
        return "", False
    pipe = subprocess.PIPE
    try:
        started = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT)
        said = started.communicate(timeout=within_s)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        started.kill()
        with suppress(subprocess.TimeoutExpired):
            started.communicate(timeout=KILLED_S)
        return f"{words[0]} took longer than {within_s:.0f} s\n", False
    except OSError as problem:
        return f"{words[0]} cannot be run: {problem.strerror}\n", False
    return said, started.returncode == 0


def _tell(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Read the request from the descriptor that the command line names, look, answer."""
    with open(int(sys.argv[1]), encoding="utf-8") as file:
        request = json.load(file)
    Examiner(request).run()
    os.close(1)  # this is the end of it for the agent, also where a thread that hangs keeps the process
