"""What an agent and a standby, a worker started ahead of its life, say to each other.

Everything is a list of triples of text, each part ended by a NUL: what can be in an environment or in the name of a file
has none. `worker/standby.py` speaks the same without importing it, and a test compares the two.

    papers, agent to standby     mode preload|join · rank NAME · load MODULE FILE · own MODULE FILE
    report, standby to agent     failed MODULE WHY · differs MODULE FILE · reads MODULE NAME · device MODULE · draws MODULE
                                 watch FILE
    memory, agent to standby     memory · memory NUMBER [new], with the descriptors of the new ones
    promotion, agent to standby  set NAME VALUE, with the descriptors of stdout, stderr and the black box
"""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Triple = tuple[str, str, str]

PRELOAD = "preload"
"""The standby loads modules and waits; the program begins when it is promoted."""
JOIN = "join"
"""The standby runs the program, which waits in `planaria.worker.join()`."""
READY = b"ready"
"""The last packet that a standby sends: its report is written, and it waits."""
JOINED = b"joined"
"""What it sends before that where it runs the program: this has called `join()`, and will not go on by itself."""
MEMORY = "memory"
"""The first word of a packet about memory for snapshots: all that this local rank has. Any other packet is the promotion."""
MOST_MEMORIES = 16
"""More descriptors are not sent in one packet."""
_PARTS = 3


class Report(Value):
    """What became of a standby that is ready, by name of a module.

    `failed`: it could not be imported, which harms nobody. `differs`: another file answers to the name than in the life
    before. `reads`: it read a variable, named second, that is not known yet. `device`: it started a device. `draws`: it
    drew from random numbers that the program may have seeded. `watched`: loaded files that their owner may edit.
    """

    failed: tuple[tuple[str, str], ...] = ()
    differs: tuple[tuple[str, str], ...] = ()
    reads: tuple[tuple[str, str], ...] = ()
    device: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    draws: tuple[str, ...] = ()

    @property
    def unfit(self) -> frozenset[str]:
        """Return the modules that must not be loaded ahead: a program that finds them loaded could tell."""
        return frozenset((*(name for name, _ in (*self.differs, *self.reads)), *self.device, *self.draws))


def encode(triples: Iterable[Triple]) -> bytes:
    """Return triples as bytes.

    Raises:
        ValueError: There is a NUL in one of them.
    """
    parts = [part for triple in triples for part in triple]
    if any("\0" in part for part in parts):
        raise ValueError("a part with a NUL in it")
    return "".join(f"{part}\0" for part in parts).encode("utf-8", "surrogateescape")


def decode(data: bytes) -> list[Triple]:
    """Return the triples of `data`; a torn end is left out."""
    parts = data.decode("utf-8", "surrogateescape").split("\0")[:-1]
    whole = len(parts) - len(parts) % _PARTS
    return [(parts[at], parts[at + 1], parts[at + 2]) for at in range(0, whole, _PARTS)]


def read_report(data: bytes) -> Report:
    """Read what a standby wrote; words that are not known are left out."""
    told = decode(data)

    def pairs(word: str) -> tuple[tuple[str, str], ...]:
        return tuple((first, second) for said, first, second in told if said == word)

    return Report(
        failed=pairs("failed"),
        differs=pairs("differs"),
        reads=pairs("reads"),
        device=tuple(first for first, _ in pairs("device")),
        watched=tuple(first for first, _ in pairs("watch")),
        draws=tuple(first for first, _ in pairs("draws")),
    )
