"""Wait for Gloo's threads before the interpreter ends. `bootstrap.py` loads it by path; `exchange` has it for other starts.

A collective is over for the program a little sooner than for the thread that did it. That thread needs the interpreter's
lock to free a tensor that nobody else holds, and a thread that waits for the lock while the interpreter goes away is ended
in the middle of C++ code: "terminate called without an active exception", SIGABRT, after a training that went well.
Programs that destroy their process group are not safe either: a model that is wrapped holds on to it.
"""

import os
import sys
import time

_THREAD = b"pt_gloo_runloop"  # as torch names them
_LOOK_EVERY_S = 0.001
_LOOKS = 3  # in a row: a thread that asks for the lock just while it is looked at seems to rest
_WITHIN_S = 1.0


def wait_for_gloo() -> None:
    """Let Gloo's threads come to rest. One that is busy for longer than a second does not wait for the lock."""
    deadline, rested = time.monotonic() + _WITHIN_S, 0
    while "torch.distributed" in sys.modules and rested < _LOOKS and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)  # noqa: TID251  without the lock; nobody tells when a thread rests
        try:
            tasks = os.listdir("/proc/self/task")
        except OSError:  # no /proc
            return
        rested = 0 if any(map(_is_at_work, tasks)) else rested + 1


def _is_at_work(task: str) -> bool:
    """Tell whether a thread of this process is one of Gloo's and has something to do."""
    try:
        with open(f"/proc/self/task/{task}/stat", "rb") as file:
            named = file.read().partition(b"(")[2]
    except OSError:  # it has ended
        return False
    name, _, fields = named.rpartition(b") ")
    return name == _THREAD and not fields.startswith(b"S")
