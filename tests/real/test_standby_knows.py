"""What a standby knows before it is needed: all of its start but the round, and the memory of its rank's commits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import wait_until
from standing import Job

from planaria.base.value import replace
from planaria.contract.standby import JOIN
from planaria.process.spares import Plan, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from standing import Ended

    from planaria.process.standby import Standby

# What a library may read when it is loaded, and a cold start has by then.
SEES = """\
import os
NAMES = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PLANARIA_CONTROL", "ROLE_NAME")
SEEN = [sorted(os.sched_getaffinity(0)), *(os.environ.get(name) for name in NAMES)]
SEEN += [line for line in open("/proc/self/status") if line.startswith(("Mems_allowed_list", "SigBlk"))]
"""


class Bound(Job):
    """A worker that is bound to one CPU, as `--numa-binding` binds it."""

    cpu = min(os.sched_getaffinity(0))

    def order(self, black_box: int = -1, stdout: int | None = None, stderr: int | None = None) -> Any:
        return replace(super().order(black_box, stdout, stderr), cpus=frozenset({self.cpu}))


@pytest.mark.parametrize("way", ["preload", "join"])
def test_devices_threads_and_cpus_are_known_when_libraries_are_loaded(tmp_path: Path, way: str) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "sees.py").write_text(SEES)
    (tmp_path / "main.py").write_text("import sees\nfrom planaria import worker\nworker.join()\nprint(sees.SEEN)\n")
    known = {"CUDA_VISIBLE_DEVICES": "7", "PLANARIA_CONTROL": "/nowhere", "ROLE_NAME": "trainer"}
    job = Bound(tmp_path, "script", "main.py", PYTHONPATH=str(library), **known)
    cold = job.cold()
    assert f"[[{job.cpu}], '1', '2', '7', '1', '/nowhere', 'trainer', " in cold.stdout
    plan = Plan(JOIN) if way == "join" else make_plan(cold.learned, (str(tmp_path),))
    assert way == "join" or "sees" in dict(plan.load)
    assert job.promoted(plan)[:3] == cold[:3]


# Memory for commits. The program says what was mapped, and how many descriptors it has but for one of each map.
KEEPS = """\
import os
from planaria import worker
from planaria.worker import agent_vault
worker.join()
print(len(os.listdir("/proc/self/fd")) - len(agent_vault._AHEAD))
print({number: bytes(memory[:4]) for number, memory in sorted(agent_vault._AHEAD.items())})
"""


def memory(content: bytes) -> int:
    descriptor = os.memfd_create("planaria-snapshot", os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.ftruncate(descriptor, 1 << 16)
    return descriptor


def maps(standby: Standby) -> int:
    return Path(f"/proc/{standby.pid}/maps").read_text().count("planaria-snapshot")


@pytest.fixture
def slots() -> Any:
    found = {number: memory(b"%04d" % number) for number in (4, 5, 6)}
    yield found
    for descriptor in found.values():
        os.close(descriptor)


def lend(standby: Standby, slots: dict[int, int], *numbers: int) -> None:
    """Lend some of the slots, and wait until the standby has mapped just these."""
    standby.lend({number: slots[number] for number in numbers})
    wait_until(lambda: maps(standby) == len(numbers), f"maps of {numbers}")


def keeping(folder: Path, text: str = KEEPS) -> tuple[Job, Ended]:
    (folder / "main.py").write_text(text)
    job = Job(folder, "script", "main.py")
    return job, job.cold()


def check_knows(folder: Path, text: str, before: Callable[[Standby], None], *numbers: int) -> None:
    """Check that a script whose standby was treated like that begins with just these slots, and no descriptor of any."""
    job, cold = keeping(folder, text)
    promoted = job.promoted(Plan(JOIN), before=before)
    known = {number: b"%04d" % number for number in numbers}
    assert promoted[:3] == (0, f"{cold.stdout.splitlines()[0]}\n{known}\n", "")


@pytest.mark.parametrize("way", ["preload", "join"])
def test_memory_that_is_lent_is_mapped_while_a_standby_waits(tmp_path: Path, slots: dict[int, int], way: str) -> None:
    job, cold = keeping(tmp_path)
    plan = Plan(JOIN) if way == "join" else make_plan(cold.learned, (str(tmp_path),))
    promoted = job.promoted(plan, before=lambda standby: lend(standby, slots, 4, 5))
    count, told = cold.stdout.splitlines()
    assert told == "{}"
    assert promoted[:3] == (0, f"{count}\n{{4: b'0004', 5: b'0005'}}\n", "")


# Mapping a piece takes until there is something else to be heard; a file says how many were begun.
LATE = """\
import os, select
from planaria import worker
from planaria.worker import agent_vault
map_slot = agent_vault._map_slot
def map_late(descriptor):
    with open("begun", "ab") as file:
        file.write(b"x")
    select.select([1022], [], [])
    return map_slot(descriptor)
agent_vault._map_slot = map_late
worker.join()
print(len(os.listdir("/proc/self/fd")) - len(agent_vault._AHEAD))
print({number: bytes(memory[:4]) for number, memory in sorted(agent_vault._AHEAD.items())})
"""


def begun(folder: Path) -> int:
    file = folder / "begun"
    return file.stat().st_size if file.exists() else 0


def test_a_promotion_does_not_wait_for_all_memory_to_be_mapped(tmp_path: Path, slots: dict[int, int]) -> None:
    def before(standby: Standby) -> None:
        standby.lend(slots)
        wait_until(lambda: begun(tmp_path) == 1, "the first piece")

    check_knows(tmp_path, LATE, before, 4)


def test_more_memory_does_not_keep_a_standby_from_what_it_was_lent_before(
    tmp_path: Path, slots: dict[int, int]
) -> None:
    def before(standby: Standby) -> None:
        standby.lend({number: slots[number] for number in (4, 5)})
        standby.lend(slots)
        wait_until(lambda: begun(tmp_path) == 3, "the last piece")

    check_knows(tmp_path, LATE, before, 4, 5, 6)


def test_memory_that_is_lent_no_more_is_let_go_and_what_is_known_is_not_sent_again(
    tmp_path: Path, slots: dict[int, int]
) -> None:
    def before(standby: Standby) -> None:
        lend(standby, slots, 4, 5)
        sent: list[object] = []
        standby._send, send = lambda *packet: bool(sent.append(packet)) or send(*packet), standby._send  # type: ignore[method-assign]
        lend(standby, slots, 4, 5)
        assert sent == []
        lend(standby, slots, 5, 6)
        lend(standby, slots)
        lend(standby, slots, 6)

    check_knows(tmp_path, KEEPS, before, 6)


def test_a_program_that_keeps_no_state_maps_nothing_and_holds_no_descriptor(
    tmp_path: Path, slots: dict[int, int]
) -> None:
    job, cold = keeping(
        tmp_path, "import os\nprint(os.listdir('/proc/self/fd'), 'snapshot' in open('/proc/self/maps').read())\n"
    )
    promoted = job.promoted(before=lambda standby: standby.lend({4: slots[4]}))
    assert promoted[:3] == cold[:3]
    assert cold.stdout.endswith(" False\n")


def test_one_that_has_died_is_lent_nothing(tmp_path: Path, slots: dict[int, int]) -> None:
    job, _ = keeping(tmp_path)
    standby = job.standby(Plan(JOIN))
    standby.end()
    os.waitpid(standby.pid, 0)
    standby.lend(slots)
    standby.close()
