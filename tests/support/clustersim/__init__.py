"""Whole clusters in virtual time, from one seed: the shipped rendezvous, codec and store among simulated hosts.

`plan` draws what happens, `cluster` lets it happen on one heap of events; `net` and `keys` stand for the network and the
store, `agent` for a process with its connections (`talking`), its workers and their guardian (`working`, `jobs`).
`checks` watches the invariants after every step, `story` shrinks what went wrong and tells it, and `bugs` breaks the
protocol on purpose.
"""

from clustersim.checks import Violation
from clustersim.cluster import Cluster
from clustersim.plan import Fault, Plan, Spec, draw
from clustersim.story import explain, shrink, tell

__all__ = ["Cluster", "Fault", "Plan", "Spec", "Violation", "draw", "explain", "shrink", "tell"]
