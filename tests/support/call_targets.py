"""Functions that tests start in processes of their own. A module of its own: a spawned worker imports it by this name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any, NoReturn

from waiting import wait_until


class Point:
    """A value that is pickled by reference to its class."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self.x == other.x

    __hash__ = None  # type: ignore[assignment]


class OneWay:
    """A value that can be pickled, and not unpickled."""

    def __reduce__(self) -> Any:
        return explode, ()


def explode() -> NoReturn:
    raise ValueError("this cannot be made here")


def add(a: int, b: int) -> int:
    return a + b


def same(value: Any) -> Any:
    return value


def large(size_bytes: int) -> bytes:
    return b"\xa5" * size_bytes


def broken(text: str) -> NoReturn:
    raise ValueError(text)


def unpicklable() -> Any:
    return {"fine": 1, "lock": [threading.Lock()]}


def one_way() -> OneWay:
    return OneWay()


def leave(code: Any) -> NoReturn:
    sys.exit(code)


def vanish(code: int) -> NoReturn:
    os._exit(code)


def kill_self(number: int) -> None:
    os.kill(os.getpid(), number)
    signal.pause()


def wait_forever(*_: Any) -> NoReturn:
    while True:
        signal.pause()


def say_and_wait(told: str) -> NoReturn:
    """Write this process's pid into a file, then wait for ever."""
    tell(told)
    wait_forever()


def deaf_and_wait(told: str) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say_and_wait(told)


def tell(path: str, text: str = "") -> None:
    """Let a file appear whole, with a text or this process's pid in it."""
    with open(f"{path}.new", "w") as file:
        file.write(text or str(os.getpid()))
    os.rename(f"{path}.new", path)


def read_when_told(path: str) -> str:
    """Return what `tell` wrote there, once it is there."""
    wait_until(lambda: os.path.exists(path), path)
    with open(path) as file:
        return file.read()


def has_a_child(told: str, then: str) -> int:
    """Start a process in our group that sleeps, tell its pid, then end as told."""
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    tell(told, str(child.pid))
    if then == "fail":
        raise RuntimeError("with a child")
    return child.pid


def surroundings(*names: str) -> dict[str, Any]:
    """Tell what a worker finds around it."""
    import multiprocessing

    parent = multiprocessing.parent_process()
    return {
        "pid": os.getpid(),
        "leads_session": os.getsid(0) == os.getpid(),
        "env": {name: os.environ.get(name) for name in names},
        "parent": None if parent is None else (parent.pid, parent.is_alive()),
        "argv": sys.argv[:1],
        "descriptors": len(os.listdir("/proc/self/fd")),
        "sigterm": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    }


def say(out: str, err: str) -> None:
    print(out)
    print(err, file=sys.stderr)
    os.write(1, b"from the descriptor\n")


def use_queue(queue: Any, lock: Any, rank: int) -> None:
    with lock:
        queue.put(rank)


def use_parts(connection: Any, number: Any) -> None:
    with number.get_lock():
        number.value += 1
    connection.send("hello")
    connection.close()


def chatter() -> NoReturn:
    os.write(1, b"go")
    wait_forever()


def wait_or_fail(what: str) -> None:
    if what == "fail":
        raise RuntimeError("told to")
    wait_forever()


def willing_or_deaf(told: str, what: str) -> None:
    if what == "deaf":
        deaf_and_wait(told)
    say_and_wait(told)


def signal_parent_and_wait(told: str, waits: str, pid: int) -> None:
    """Send SIGTERM to the parent once a file says that it waits, then wait for ever."""
    tell(told)
    read_when_told(waits)
    os.kill(pid, signal.SIGTERM)
    wait_forever()


class NoLock:
    """Stands in for a lock."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def rank_and(*args: Any) -> Any:
    print(f"rank {os.environ['RANK']}")
    return int(os.environ["RANK"]), *args


def fail_once(marker: str) -> int:
    if not os.path.exists(marker):
        raise RuntimeError("the first time")
    return int(os.environ["RANK"])


class NumaOptions:
    """Stands in for torch's; whoever has options also has the two functions below beside them."""


def _maybe_wrap_command_args_with_numa_binding(argv: Any, *, gpu_index: int, numa_options: Any) -> Any:
    return "env", f"BOUND={gpu_index}", *argv


def _maybe_wrap_with_numa_binding(function: Any, *, gpu_index: int, numa_options: Any) -> Any:
    return lambda *args: (gpu_index, function(*args))
