"""Who of the ranks that stand still is the cause, as far as stacks, states and collectives tell. Pure.

In this order: a process that is stopped; one that has begun fewer collectives of a process group than another that waits in it;
one that does not wait while others do; the lowest step; one that is where few others are; one in a phase of its own; one that
is inside of the standard library, whose waits are for nothing of torch's, while others may wait for a tensor in C code. Waiting
is to be in a collective, or idle in a backward pass, where DDP has its collectives, or in a wait for the GPU.
"""

from __future__ import annotations

from planaria.base.text import safe_line
from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STOPPED = {"T": "stopped", "t": "stopped by a debugger", "Z": "a zombie", "X": "dead"}
_STATES = {"R": "running", "S": "asleep", "D": "in an uninterruptible wait of the kernel", "I": "idle", **STOPPED}
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>", "/planaria/worker/")
_COLLECTIVES = ("/torch/distributed/", "/planaria/worker/agreement.py", "/planaria/worker/exchange.py")
_BACKWARD = ("/torch/autograd/graph.py", "_engine_run_backward")
_DEVICE = (("/torch/cuda/__init__.py", "synchronize"), ("/torch/cuda/streams.py", "synchronize"))
_STANDARD = "/lib/python3"
_IDLE_CPU = 0.5  # of a core; a rank that computes takes a whole one
_INNER_FRAMES = 8
UNKNOWN = "unknown"
"""The phase of a rank that has never reported."""
SHOWN_OTHERS = 4


class Frame(Value):
    """A line of a Python stack."""

    file: str
    line: int
    function: str

    @property
    def words(self) -> str:
        """Return it the way people read it."""
        return f"{self.file} line {self.line} in {self.function}"


class Count(Value):
    """How many collectives of a process group a rank has begun. `members` is empty where torch does not record them."""

    group: str
    members: str
    begun: int
    is_open: bool = False
    """The last of them is not over."""


class Examined(Value):
    """What was found out about one rank. `cpu` is the share of a core it used while we looked, `native` says by which tool."""

    rank: int
    local_rank: int
    pid: int
    phase: str
    step: int | None
    silent_s: float
    usual_s: float
    still: bool = True
    state: str = ""
    cpu: float | None = None
    wchan: str = ""
    stack: str = ""
    collective: str = ""
    begun: tuple[Count, ...] = ()
    """By process group; empty where nobody has recorded it."""


class Verdict(Value):
    """The ranks that are behind, the first suspect first, those that stand still because of them, and all in a sentence."""

    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    brief: str
    """What the first suspect does, without its name."""
    sentence: str
    elsewhere: bool = False
    """All of this node wait for somebody who is not here."""
    unclear: bool = False
    """Somebody who is not here may be the cause as well."""


def frames(stack: str) -> tuple[Frame, ...]:
    """Return the main thread's frames of what Python's fault handler wrote, innermost first. Of several dumps, the last."""
    sections = _sections(stack)
    if not sections:
        return ()
    own = [found for _, found in sections if found and found[-1].file.endswith("/worker/bootstrap.py")]
    current = [found for title, found in sections if title.startswith("Current thread")]
    chosen = own[-1] if own else current[-1] if current else sections[-1][1]
    return tuple(frame for frame in chosen if not frame.file.endswith("/worker/bootstrap.py"))


def _sections(stack: str) -> list[tuple[str, list[Frame]]]:
    found: list[tuple[str, list[Frame]]] = []
    for line in stack.splitlines():
        if line.startswith(("Current thread ", "Thread ")):
            found.append((line, []))
        elif found and line.startswith('  File "'):
            file, _, rest = line[8:].rpartition('", line ')
            number, _, function = rest.partition(" in ")
            if file and number.isdecimal():
                found[-1][1].append(Frame(file, int(number), function))
    return found


def place(found: Sequence[Frame]) -> Frame | None:
    """Return the innermost line of the user's own code; of a library, where there is none of the user's."""
    own = [frame for frame in found if not any(part in frame.file for part in _LIBRARIES)]
    return own[0] if own else found[0] if found else None


def is_in_collective(one: Examined) -> bool:
    """Tell whether a rank waits for the others in a collective."""
    inner = frames(one.stack)[:_INNER_FRAMES]
    return bool(one.collective) or any(part in frame.file for frame in inner for part in _COLLECTIVES)


def is_waiting(one: Examined) -> bool:
    """Tell whether a rank waits for others, as far as its stack tells: C code that waits has no line of its own."""
    inner = frames(one.stack)[:_INNER_FRAMES]
    if is_in_collective(one) or any(_is_at(frame, where) for frame in inner[:1] for where in _DEVICE):
        return True
    return _is_idle(one) and any(_is_at(frame, _BACKWARD) for frame in inner[:1])


def _is_at(frame: Frame, where: tuple[str, str]) -> bool:
    return frame.file.endswith(where[0]) and frame.function == where[1]


def _is_idle(one: Examined) -> bool:
    return one.state != "R" and (one.cpu is None or one.cpu < _IDLE_CPU)


def _may_wait(one: Examined) -> bool:
    """Tell whether a rank may wait for others after all: in C code below its innermost line, such as that of `.item()`.

    One that runs may, too: a wait for a GPU takes a whole core.
    """
    found = frames(one.stack)
    if one.state in STOPPED or one.state == "D":
        return False
    return not found or _STANDARD not in found[0].file or "-packages/" in found[0].file


def judge(examined: Sequence[Examined], *, host: str, is_alone: bool, evidence: str = "") -> Verdict:
    """Say who is behind among the ranks that stand still, and where the `evidence` is.

    Where all of those wait, one that has never reported anything and does not wait is behind.
    """
    still = [one for one in examined if one.still]
    if not still:
        return Verdict((), (), "", "")
    silent = [one for one in examined if not one.still and one.phase == UNKNOWN]
    if all(map(is_waiting, still)):
        still += [one for one in silent if not is_waiting(one)]
    facts = _Facts(still)
    ordered = sorted(still, key=lambda one: (*facts.key(one), -one.silent_s, one.rank))
    suspects = [one for one in ordered if facts.key(one) == facts.key(ordered[0])]
    others = [one for one in ordered if one not in suspects]
    elsewhere = not is_alone and all(map(is_waiting, still)) and all(one.still or one in silent for one in examined)
    told = _Told(suspects, others, host, evidence)
    guilty = [] if elsewhere else suspects
    ranks, waiting = (tuple(one.rank for one in ordered if (one in guilty) is wanted) for wanted in (True, False))
    is_clear = len(suspects) == 1 and (not _may_wait(suspects[0]) or any(map(is_waiting, others)))
    unclear = not is_alone and not elsewhere and not is_clear
    return Verdict(ranks, waiting, told.brief, told.sentence(elsewhere=elsewhere), elsewhere, unclear)


class _Told:
    """The words for a verdict. Of several suspects none is presented as the cause."""

    def __init__(self, suspects: Sequence[Examined], others: Sequence[Examined], host: str, evidence: str) -> None:
        self._suspects = suspects
        self._others = others
        self._host = host
        self._evidence = [f"evidence in {evidence}"] * bool(evidence)
        self._silence = _silence(suspects[0])
        self._is_one_place = len({place(frames(one.stack)) for one in suspects}) == 1

    @property
    def brief(self) -> str:
        """Return what the first suspect does, without its name."""
        also = ""
        if len(self._suspects) > 1:  # first, for it may be cut off at its end
            does = "do" if len(self._suspects) > 2 else "does"
            also = f" as {does} {_named(self._suspects[1:])}, nothing tells which is the cause,"
        return "; ".join((f"hangs{also} {self._silence}", *_condition(self._suspects[0]), *self._evidence))

    def sentence(self, *, elsewhere: bool) -> str:
        """Return all of it."""
        told = [f"{_who(self._suspects, self._host, waits=elsewhere)} {self._silence}"]
        if self._is_one_place:
            told += _condition(self._suspects[0], all_of_them=len(self._suspects) > 1)
        told += self._evidence
        if elsewhere:
            where = "a collective" if all(map(is_in_collective, self._suspects)) else "a collective or a backward pass"
            told.append(f"all ranks of this node wait in {where}: the one they wait for is on another node")
        elif not self._is_one_place:
            told += [_other(one) for one in self._suspects[:SHOWN_OTHERS]]
            told.append("nothing tells which of them is the cause")
        elif len(self._suspects) > 1:
            told.append("all of them stand alike" if not self._others else "these stand alike")
        told += [_other(one) for one in self._others[:SHOWN_OTHERS]]
        told += [f"{len(self._others) - SHOWN_OTHERS} more stand still"] * (len(self._others) > SHOWN_OTHERS)
        return "; ".join(told)


class _Facts:
    """What ranks that stand still are compared by."""

    def __init__(self, still: Sequence[Examined]) -> None:
        self._waits = {one.rank: is_waiting(one) for one in still}
        places = {one.rank: place(frames(one.stack)) for one in still}
        self._company = {one.rank: _company(one, still, places) for one in still}
        self._of_phase = {one.phase: sum(other.phase == one.phase for other in still) for one in still}
        self._is_missed = {one.rank: any(_misses(one, other) for other in still) for one in still}

    def key(self, one: Examined) -> tuple[bool, bool, bool, int, int, int, bool]:
        """Return what makes a rank suspect; the lowest is."""
        return (
            one.state not in STOPPED,
            not self._is_missed[one.rank],
            self._waits[one.rank],
            -1 if one.step is None else one.step,
            self._company[one.rank],
            self._of_phase[one.phase],
            _may_wait(one),
        )


def _misses(one: Examined, other: Examined) -> bool:
    """Tell whether the other waits in a collective that this one has not begun. Groups are compared one by one: who is behind
    in one of them may be ahead in another.
    """
    begun = {(count.group, count.members): count.begun for count in one.begun}
    waits = (count for count in other.begun if count.is_open)
    return any(begun.get((count.group, count.members), count.begun) < count.begun for count in waits)


def _company(one: Examined, still: Sequence[Examined], places: Mapping[int, Frame | None]) -> int:
    """Return how many ranks are where this one is; nobody knows where one without a stack is, but it is not with the others."""
    own = places[one.rank]
    return 1 if own is None else sum(places[other.rank] == own for other in still)


def _who(suspects: Sequence[Examined], host: str, *, waits: bool) -> str:
    if len(suspects) == 1:
        does = "waits" if waits else "hangs"
        return f"rank {suspects[0].rank} (pid {suspects[0].pid} on {safe_line(host)}) {does}"
    return f"{_named(suspects)} on {safe_line(host)} {'wait' if waits else 'hang'}"


def _named(ranks: Sequence[Examined]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0].rank}"
    return "ranks " + ", ".join(str(one.rank) for one in ranks[:SHOWN_OTHERS]) + ", ..." * (len(ranks) > SHOWN_OTHERS)


def _silence(one: Examined) -> str:
    if one.phase == UNKNOWN:
        return f"{one.silent_s:.1f} s after its start: it has reported nothing, and the others wait"
    since = f"after step {one.step}" if one.step is not None else "before its first step"
    usual = f", usually {one.usual_s:.{'1f' if one.usual_s >= 1 else '2g'}} s" if one.usual_s else ""
    return f"in phase {safe_line(one.phase)} {since}: no sign for {one.silent_s:.1f} s{usual}"


def _condition(one: Examined, *, all_of_them: bool = False) -> list[str]:
    told = []
    at = place(frames(one.stack))
    if at is not None:
        told.append(f"{'they are' if all_of_them else 'it is'} at {safe_line(at.words)}")
    if all_of_them:
        return told
    if one.state in STOPPED:
        told.append(f"its process is {STOPPED[one.state]} (state {one.state})")
    elif one.state == "R":
        told.append("it is running" + ("" if one.cpu is None else f", with {one.cpu:.0%} of a core"))
    elif one.state == "D":
        told.append(f"its process is {_STATES['D']} ({safe_line(one.wchan) or 'state D'})")
    if one.collective:
        told.append(f"in the collective {safe_line(one.collective)}")
    return told


def _other(one: Examined) -> str:
    at = place(frames(one.stack))
    how = "waits" if is_waiting(one) else "stands still"
    where = f" in {safe_line(one.collective)}" if one.collective else ""
    line = f" at {safe_line(at.words)}" if at is not None else ""
    return f"rank {one.rank} {how}{where}{line}"


def as_text(examined: Sequence[Examined], verdict: Verdict, heading: str) -> str:
    """Return the summary for people: the sentence, then every rank with its place."""
    lines = [heading, "", verdict.sentence, "", "rank  pid       phase         step       silent   state  place"]
    for one in examined:
        at = place(frames(one.stack))
        step = "-" if one.step is None else str(one.step)
        mark = "*" if one.rank in verdict.ranks else " "
        where = safe_line(at.words) if at is not None else "no Python stack" + (f", {one.wchan}" if one.wchan else "")
        doing = f" [{safe_line(one.collective)}]" if one.collective else ""
        lines.append(
            f"{one.rank:>4}{mark} {one.pid:<9} {safe_line(one.phase):<13} {step:<10} {one.silent_s:>6.1f} s "
            f"{one.state or '?':<6} {where}{doing}"
        )
    states = sorted({one.state for one in examined if one.state in _STATES})
    lines += ["", *(f"state {letter}: {_STATES[letter]}" for letter in states), "* suspected"]
    return "\n".join(lines) + "\n"
