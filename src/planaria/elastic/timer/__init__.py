"""Expiration timers: a worker says how long a block may take, and is ended when it takes longer.

    from planaria.elastic import timer
    timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
    with timer.expires(after=60):
        ...

Under an agent with `TORCHELASTIC_ENABLE_FILE_TIMER=1` there is a server already, and it restarts the worker group. The
servers in here are for programs that start processes themselves. No server ever ends its own process.
"""

from planaria.elastic.timer.api import TimerClient, TimerRequest, TimerServer, configure, expires
from planaria.elastic.timer.file_based_local_timer import FileTimerClient, FileTimerRequest, FileTimerServer
from planaria.elastic.timer.local_timer import LocalTimerClient, LocalTimerServer

__all__ = [
    "FileTimerClient",
    "FileTimerRequest",
    "FileTimerServer",
    "LocalTimerClient",
    "LocalTimerServer",
    "TimerClient",
    "TimerRequest",
    "TimerServer",
    "configure",
    "expires",
]
