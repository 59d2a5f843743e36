"""Whose the agent's memory is: that of one state at a time. An agent knows a worker by its place, not which state of it writes.

Two of them would be lent memory that the other still writes to, and would give their commits the same numbers.
"""

from __future__ import annotations

import gc
import threading
from time import monotonic
from weakref import ref

from planaria.contract.commit import next_line
from planaria.errors import StateRefused
from planaria.worker import here
from planaria.worker.vault import LocalVault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.contract.commit import Order
    from planaria.worker.state import ElasticState
    from planaria.worker.vault import Vault

PARTING_S = (
    5.0  # for a thread to let go of a state whose commit it has sealed: microseconds, unless the machine is busy
)
LOOK_EVERY_S = 0.05


class Tenancy:
    """Which state uses a vault now, and how far those that have used it have counted their commits.

    `generation` is the highest that was used or restored. All ranks make the same calls, so it is the same on all of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tenant: Callable[[], ElasticState | None] = lambda: None
        self.generation = 0
        self._has_begun = False

    def next_generation(self) -> int:
        """Return the generation of a call of commit(), which is used by it whatever comes of the call."""
        self._has_begun = True
        self.generation += 1
        return self.generation

    def restored(self, order: Order | None) -> None:
        """Count on from the commit that was restored, if there was one.

        The first one of a life follows that commit. Any later one begins a new line: a commit of the old line may be sealed
        on some ranks only, and must not be completed by what others make now.
        """
        generation = order[2] if order is not None else 0
        self.generation = next_line(max(self.generation, generation), order) if self._has_begun else generation
        self._has_begun = True

    def take(self, state: ElasticState) -> None:
        """Have a state use the vault. One that the program has let go of makes room; its last commit is sealed first.

        Raises:
            StateRefused: Another one uses it.
        """
        with self._lock:
            if self._tenant() is state:
                return
            if self._is_held():
                raise StateRefused(
                    "another ElasticState of this process is in the agent's memory, which has room for one of each worker",
                    hint="name all there is to keep in one, ElasticState(model=..., critic=...), or give this one a "
                    "vault=LocalVault(directory=...) of its own",
                )
            self._tenant = ref(state)

    def _is_held(self) -> bool:
        """Tell whether there is a tenant that does not go. One without a commit, made or restored, has nothing to lose."""
        tenant = self._tenant()
        if tenant is None or tenant.stamp is None:
            return False
        sealing = vars(tenant)["_sealing"]
        del tenant
        if sealing:
            sealing.exception()  # its thread holds the state until then
        deadline, never = monotonic() + (PARTING_S if sealing else 0.0), threading.Event()
        while self._tenant() is not None:
            gc.collect()  # a traceback or a cycle may be all that holds it
            if self._tenant() is None or monotonic() >= deadline:
                break
            never.wait(LOOK_EVERY_S)
        return self._tenant() is not None


_AGENTS = Tenancy()


def vault_here() -> tuple[Vault, Tenancy]:
    """Return the agent's memory where there is an agent, else this process's own."""
    path = here.control()
    if not path:
        return LocalVault(), Tenancy()
    from planaria.worker.agent_vault import AgentVault

    return AgentVault(path), _AGENTS
