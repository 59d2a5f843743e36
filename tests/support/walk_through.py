"""The failed run of three nodes that docs/dashboard.md walks through, and its pictures. Linux, as root, with a browser.

    .venv/bin/python tests/support/walk_through.py docs/images

Takes half a minute and prints what `planaria why` says. The page's figures are those of one run: put them there by hand.
Processes and files are in namespaces of their own and go with them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from browser import Browser
from ports import free_port
from programs import clean_environment
from served import dashboard
from waiting import wait_until

HOSTS = ("node-a", "node-b", "node-c")
PLACE = Path("/srv/resnet")  # not below /home, where this checkout may be: what is there is hidden from the run
RUNS = PLACE / "runs"
FLAGS = (
    "--nnodes=3",
    "--nproc-per-node=2",
    "--max-restarts=1",
    "--rdzv-backend=c10d",
    "--rdzv-id=resnet-50",
    "--tee=3",
)
PLANARIA = (sys.executable, "-m", "planaria")
WAIT_S = 60.0  # twice what the longest of them takes: the second life, 540 steps
TRAIN = """\
import os, pathlib, time
from planaria import worker

rank, life = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
kept = pathlib.Path(__file__).with_name(f"step.{rank}")
classes = 1000
step = int(kept.read_text()) if kept.exists() else 0
while True:
    step, begun = step + 1, time.monotonic()
    time.sleep(0.065 if life == 1 and rank == 4 else 0.05)  # the work
    worker.report_progress(step, samples=32 * step, busy_s=time.monotonic() - begun)
    if step % 10 == 0:
        print(f"step {step}: loss {3 / step:.4f}", flush=True)
    if step % 20 == 0:
        kept.write_text(str(step))
    if life == 0 and step == 70 and rank == 4:
        os.kill(os.getpid(), 9)
    label = 1007 if life == 1 and step == 600 and rank == 3 else step % classes
    if label >= classes:
        raise ValueError(f"label {label} is out of range: there are {classes} classes")
"""


class Node:
    """A launcher under a host name of its own. What it says is kept, for whoever has to know why it ended."""

    def __init__(self, host: str, endpoint: str) -> None:
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]
        flags = [*FLAGS, f"--rdzv-endpoint={endpoint}", "--local-addr=127.0.0.1", f"--run-dir={RUNS}"]
        words = [*named, *PLANARIA, "run", *flags, str(PLACE / "train.py")]
        self._said = PLACE / f"{host}.said"
        with self._said.open("wb") as said:
            self._launcher = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=said, env=clean_environment())
        # The next one starts after that: ranks are given in the order of arrival.
        wait_until(lambda: self.is_up() and [*RUNS.glob(f"*/{host}-*")], f"{host} has begun", WAIT_S)

    def is_up(self) -> bool:
        """Be sure that it runs.

        Raises:
            AssertionError: It has ended; with what it said.
        """
        assert self._launcher.poll() is None, self._said.read_text()
        return True

    def wait(self) -> int:
        return self._launcher.wait(WAIT_S)


def see(browser: Browser, text: str, *running: Node) -> None:
    """Wait until the page says so; all these have to run until then."""

    def is_said() -> bool:
        return all(node.is_up() for node in running) and text in browser.text("body")

    wait_until(is_said, f"the page says {text!r}", WAIT_S)


def walk(pictures: Path) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    nodes = [Node(host, endpoint) for host in HOSTS]
    with dashboard(f"--run-dir={RUNS}") as (_, url), Browser() as browser:
        browser.go(url)
        see(browser, "Slower than the others: rank 4 on node-c", *nodes)
        see(browser, "step 200: ", *nodes)  # in the log: some time after the restart
        browser.screenshot(str(pictures / "dashboard-live.png"))
        assert [node.wait() for node in nodes] == [1, 1, 1]
        browser.go(url)  # as whoever comes to see why it failed
        see(browser, "Rank 3 on node-b failed: ValueError: label 1007 is out of range")
        browser.wait_for_text("#log", "raise ValueError")
        browser.screenshot(str(pictures / "dashboard-failed.png"))
        browser.show_as("dark")
        browser.screenshot(str(pictures / "dashboard-failed-dark.png"))
    subprocess.run([*PLANARIA, "why", f"--run-dir={RUNS}"], check=True, env=clean_environment())


def main() -> None:
    pictures = Path(sys.argv[1]).resolve(strict=True)
    if os.environ.get("WALK_THROUGH") == "inside":
        (PLACE / "train.py").write_text(TRAIN)
        walk(pictures)
        return
    place = 'mount -t tmpfs none /srv && mkdir "$0" && exec "$@"'
    apart = ["unshare", "--mount-proc", "--pid", "--kill-child", "sh", "-c", place, str(PLACE)]
    variables = {"WALK_THROUGH": "inside", "HOME": str(PLACE), "TMPDIR": str(PLACE)}
    os.execvpe("unshare", [*apart, sys.executable, __file__, str(pictures)], {**os.environ, **variables})


if __name__ == "__main__":
    main()
