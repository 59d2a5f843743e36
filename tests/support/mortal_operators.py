"""Operators as processes of their own that die by SIGKILL at a call: `python mortal_operators.py KUBECONFIG FOLDER`.

Importing a Kubernetes client takes longer than a whole life in these tests, so this process imports it once and forks.
Orders come as lines of JSON on standard input: `{"start": "a", "namespace": "x", "kill_at": 7, "lasts_s": 15}` or
`{"kill": "a"}`. Each end is a line on standard output: `{"ended": "a", "status": -9}`. Every call of operator `a` is a line of
FOLDER/a before it is made. When standard input ends, so do all operators.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import sys
import time
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import aiohttp  # noqa: F401  before the fork
import kubernetes_asyncio.config  # noqa: F401  the same

from planaria.kube.api import connect
from planaria.kube.operator import Means, Operator, Settings
from planaria.kube.tenure import Terms

if TYPE_CHECKING:
    from planaria.kube.api import Call


def operate(kubeconfig: str, folder: str, order: dict[str, Any]) -> None:
    """Be one operator, until a signal."""
    calls = os.open(f"{folder}/{order['start']}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    left = order.get("kill_at") or -1

    def before_call(call: Call) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(calls, f"{call.method} {call.path}\n".encode())

    async def run() -> None:
        api = await connect(kubeconfig, before_call=before_call)
        namespace = order["namespace"]
        settings = Settings(
            order.get("identity", order["start"]),
            (namespace, "operator"),
            (namespace,),
            "127.0.0.1",
            0,
            terms=Terms.of(order.get("lasts_s", 15.0)),
        )
        said = open(f"{folder}/{order['start']}.log", "a", buffering=1)  # noqa: SIM115  as long as the process
        means = Means(lambda text: said.write(text + "\n"), time.time, lambda: token_hex(8), lambda: 0.5)
        await Operator(api, settings, means).run()

    asyncio.run(run())


def main(kubeconfig: str, folder: str) -> None:
    """Obey."""
    children: dict[int, str] = {}
    waker, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    os.set_blocking(0, False)
    rest = b""
    while True:
        readable = select.select([0, waker], [], [])[0]
        if waker in readable:
            os.read(waker, 4096)
            bury(children)
        if 0 in readable:
            chunk = os.read(0, 65536)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                obey(kubeconfig, folder, json.loads(line), children)
            if not chunk:
                break
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def obey(kubeconfig: str, folder: str, order: dict[str, Any], children: dict[int, str]) -> None:
    if "kill" in order:
        for pid in [pid for pid, name in children.items() if name == order["kill"]]:  # none: it was deadly just now
            os.kill(pid, signal.SIGKILL)
        return
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(0)
        try:
            operate(kubeconfig, folder, order)
        finally:
            with contextlib.suppress(Exception):
                sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]  # there is one
            os._exit(1)
    children[pid] = order["start"]


def bury(children: dict[int, str]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        ended = {"ended": children.pop(pid), "status": os.waitstatus_to_exitcode(status)}
        os.write(1, json.dumps(ended).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
