"""The kinds of faults: how often each comes, and what is done. Pure."""

from __future__ import annotations

from planaria.base.value import Value

LONG_PART = 3  # one pause or cut in so many outlasts the lease


class Kind(Value):
    """A kind of fault. `weight` is how many of them are in a bag from which all faults are drawn."""

    name: str
    weight: int
    what: str


KINDS = (
    Kind("kill-worker", 3, "SIGKILL one worker, or all workers of a node"),
    Kind("kill-agent", 3, "SIGKILL a node's agent, its launcher, or both at once; a new node takes its place"),
    Kind("pause-worker", 2, "stop a worker for a while (SIGSTOP)"),
    Kind("pause-node", 2, "stop the agent, or the agent and all its workers; one in three outlasts the lease"),
    Kind("slow-worker", 1, "let a worker run a fifth of the time"),
    Kind("slow-network", 1, "lose every fifth packet that a node gets (root, --networks)"),
    Kind("cut-network", 2, "pull a node's cable; one in three outlasts the lease (root, --networks)"),
    Kind("fill-disk", 1, "leave no room where commits are written (root)"),
    Kind("corrupt-snapshot", 1, "flip bytes in the newest commit on disk; sometimes all nodes are lost as well"),
    Kind("hang", 1, "let a worker sleep in mid-step; for ever where the launcher finds hangs"),
    Kind("hold-gil", 1, "let a worker hold the GIL in C"),
    Kind("lose-all", 0, "kill every node at once and start the job again; one fault in a hundred, at least one"),
)
NAMES = tuple(kind.name for kind in KINDS)
BY_NAME = {kind.name: kind for kind in KINDS}
