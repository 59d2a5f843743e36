"""The environment a worker may rely on: everything torchrun sets, and ours beside it."""

from __future__ import annotations

from planaria.base.text import safe_line
from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
OMP_NUM_THREADS = "OMP_NUM_THREADS"
NCCL_ERRORS = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
ENABLE_FILE_TIMER = "TORCHELASTIC_ENABLE_FILE_TIMER"
"""The agent opens a pipe for torch's expiration timers when this is 1."""
TIMER_FILE = "TORCHELASTIC_TIMER_FILE"
"""Path of that pipe."""

CONTROL = "PLANARIA_CONTROL"
"""Path of the agent's control socket."""
ROUND = "PLANARIA_ROUND"
"""Number of the round this worker belongs to, counted from 0."""
RESTART_REASON = "PLANARIA_RESTART_REASON"
"""Why the workers were last restarted, in one line; empty in the first life."""
RANK_VARIABLES = frozenset(
    {
        "RANK",
        "GROUP_RANK",
        "ROLE_RANK",
        "WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        RESTART_COUNT,
        ERROR_FILE,
        ROUND,
        RESTART_REASON,
    }
)
"""What is known only when a round begins. All else is the same in every life of a local rank."""
TOKEN = "PLANARIA_TOKEN"  # noqa: S105  (its name)
"""The secret of a run; no worker gets it."""
TOKEN_FILE = "PLANARIA_TOKEN_FILE"  # noqa: S105  (its name)
"""Path of a file that holds it."""
PASSWORD_VARIABLE = "PLANARIA_ETCD_PASSWORD"  # noqa: S105  (its name)
"""The password of an etcd store; no worker gets it either."""
KUBE_PROGRESS = "PLANARIA_KUBE_PROGRESS"
"""The ConfigMap, `[NAMESPACE/]NAME`, in which the leading agent tells how far its run is."""
POD_UID = "PLANARIA_POD_UID"
"""The UID of the pod that the agent runs in, by which a cluster knows whose pod it was."""
_NEVER_INHERITED = (TOKEN, TOKEN_FILE, PASSWORD_VARIABLE)
_MAY_HAVE_A_PASSWORD = ("PET_RDZV_CONF", "PET_RDZV_ENDPOINT")
LONGEST_REASON = 1000  # it names other nodes: whatever they are called, it must not keep a worker from being started


class Round(Value):
    """What all workers of one node share in one life."""

    number: int
    run_id: str
    role: str
    group_rank: int
    group_world_size: int
    first_rank: int
    world_size: int
    first_role_rank: int
    role_world_size: int
    local_world_size: int
    master_addr: str
    master_port: int
    restart_count: int
    max_restarts: int
    restart_reason: str = ""


def for_workers(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what workers may inherit of the environment of a launcher or agent: all but the secrets of the run.

    This keeps them out of what workers start, log and dump. A worker that was forked has a copy of its parent's memory.
    """
    return {
        name: value
        for name, value in environ.items()
        if name not in _NEVER_INHERITED and not (name in _MAY_HAVE_A_PASSWORD and "password" in value)
    }


def worker_environment(
    inherited: Mapping[str, str], life: Round, local_rank: int, *, error_file: str, control: str, virtual_rank: bool
) -> dict[str, str]:
    """Return the whole environment of one worker: what the launcher had, then torchrun's names, then ours."""
    env = {**inherited, **torchrun_variables(life, local_rank)}
    env.update(
        {
            "LOCAL_RANK": "0" if virtual_rank else str(local_rank),
            ERROR_FILE: error_file,
            CONTROL: control,
            ROUND: str(life.number),
            RESTART_REASON: safe_line(life.restart_reason, LONGEST_REASON),
        }
    )
    env.setdefault(NCCL_ERRORS, "1")
    if virtual_rank:
        env[CUDA_VISIBLE_DEVICES] = visible_device(inherited.get(CUDA_VISIBLE_DEVICES), local_rank)
    return env


def torchrun_variables(life: Round, local_rank: int) -> dict[str, str]:
    """Return what torchrun tells a worker about its place."""
    return {
        "RANK": str(life.first_rank + local_rank),
        "LOCAL_RANK": str(local_rank),
        "GROUP_RANK": str(life.group_rank),
        "ROLE_RANK": str(life.first_role_rank + local_rank),
        "ROLE_NAME": life.role,
        "LOCAL_WORLD_SIZE": str(life.local_world_size),
        "WORLD_SIZE": str(life.world_size),
        "GROUP_WORLD_SIZE": str(life.group_world_size),
        "ROLE_WORLD_SIZE": str(life.role_world_size),
        "MASTER_ADDR": life.master_addr,
        "MASTER_PORT": str(life.master_port),
        RESTART_COUNT: str(life.restart_count),
        "TORCHELASTIC_MAX_RESTARTS": str(life.max_restarts),
        "TORCHELASTIC_RUN_ID": life.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def visible_device(inherited: str | None, local_rank: int) -> str:
    """Return the one device a worker with a virtual local rank sees, out of those the launcher may use."""
    if inherited is None:
        return str(local_rank)
    return inherited.split(",")[local_rank].strip()
