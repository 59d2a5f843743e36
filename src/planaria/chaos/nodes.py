"""One node of a job that is struck: its launcher, its files, its door."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

from planaria.agent.door import SOCKET_NAME
from planaria.base.files import remove_tree
from planaria.base.linux import set_parent_death_signal
from planaria.base.value import Value
from planaria.chaos.processes import MARK, kill_all, marked
from planaria.launch.owner_http import Door, NotAnswered, ask
from planaria.launch.owner_runs import FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from planaria.chaos.hosts import Host

KEPT = "planaria_"
"""How the folders begin that an agent leaves for its owner to read."""
_FOREIGN = ("PET_", "TORCHELASTIC_", "PLANARIA_", "MASTER_", "LOCAL_", "GROUP_", "ROLE_", "RANK", "WORLD_SIZE")
"""What would make a launcher another one, or belongs to a job that we are in ourselves."""


class Start(Value):
    """How a node is started: the words behind `planaria run`, its variables, and where it keeps its files."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    logs: str
    scratch: str
    mark: str


def surroundings(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job: ours, without what means something to a launcher."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_FOREIGN)}
    return {"OMP_NUM_THREADS": "1", **kept, **variables}


def _end_with_us() -> None:
    set_parent_death_signal(signal.SIGKILL)


class Node:
    """A launcher that was started. `name` is n1, n2, ...; `life` counts how often a node of that name was."""

    def __init__(self, name: str, life: int, start: Start, host: Host | None) -> None:
        self.name = f"{name}.{life}"
        self.host = host
        self.mark = f"{start.mark}:{self.name}:"
        self.events = os.path.join(start.logs, f"{self.name}.events.jsonl")
        self.err = os.path.join(start.logs, f"{self.name}.err")
        self.out = os.path.join(start.logs, f"{self.name}.out")
        self._logs = start.logs
        self.scratch = os.path.join(start.scratch, self.name)
        self.is_silent = False
        """Somebody has stopped it: there is no use in asking."""
        self.is_struck = False
        """Its end is our doing."""
        self.is_littered = False
        """Nobody could clean up behind it."""
        os.mkdir(self.scratch)
        before = host.command(name) if host is not None else []
        handler = f"--event-log-handler=jsonl:{self.events}"
        words = [*before, sys.executable, "-m", "planaria", "run", handler, *start.words]
        env = {**start.variables, "TMPDIR": self.scratch, MARK: self.mark}
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                words,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,  # Ctrl-C is for us
                preexec_fn=_end_with_us,  # noqa: PLW1509  one prctl: whatever ends us ends the job
            )

    @property
    def is_running(self) -> bool:
        """Tell whether the launcher lives."""
        return self.process.poll() is None

    @property
    def exit_status(self) -> int:
        """How a launcher has ended, as a shell says it."""
        status = self.process.wait()
        return 128 - status if status < 0 else status

    def status(self) -> Mapping[str, Any] | None:
        """Return what the agent says of itself; None: it says nothing."""
        if self.is_silent or not self.is_running:
            return None
        for folder in os.listdir(self.scratch):
            door = Door(os.path.join(self.scratch, folder, SOCKET_NAME), os.geteuid())
            try:
                code, answer = ask(door, "GET", "/v1/status")
            except NotAnswered:
                continue
            if code == 200 and isinstance(answer, dict):
                return answer
        return None

    def processes(self) -> dict[int, str]:
        """Return every living process of this node, however detached."""
        return marked(self.mark)

    def litter(self) -> tuple[str, ...]:
        """Return the private folders of agents that it has left, and remove all temporary files; some go to the logs."""
        names = sorted(os.listdir(self.scratch))
        for name in names:
            if name.startswith(KEPT):
                shutil.move(os.path.join(self.scratch, name), os.path.join(self._logs, f"{self.name}.{name}"))
        remove_tree(self.scratch)
        return () if self.is_littered else tuple(name for name in names if name.startswith(FOLDER))


def run_undisturbed(words: Sequence[str], start: Start, time_limit_s: float) -> tuple[int, str, str]:
    """Run the job as one node to its end; return its status, what rank 0 printed, and all that was said."""
    node = Node(
        "undisturbed", 1, Start((*words, *start.words), start.variables, start.logs, start.scratch, start.mark), None
    )
    try:
        node.process.wait(time_limit_s)
    except subprocess.TimeoutExpired:
        node.process.kill()
        return -1, "", f"it did not end within {time_limit_s:g} s"
    except BaseException:
        node.process.kill()
        raise
    finally:
        status = node.process.wait()
        while kill_all():
            continue
        node.litter()
    with open(node.out, errors="replace") as out, open(node.err, errors="replace") as err:
        return status, out.read(), err.read()
