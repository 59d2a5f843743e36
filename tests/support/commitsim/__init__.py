"""Commits over several nodes in virtual time, from one seed: the shipped council, delegates, guests and stock.

`world` lets rounds and faults happen, `node` has the pretended workers and the disk, `net` the docks, and `checks` says what
must hold whatever happens.
"""

from commitsim.checks import Violation
from commitsim.world import World

__all__ = ["Violation", "World"]
