"""Hosts to try things on: network namespaces on a switch of their own, on this machine, as root.

A `Network` is one namespace with a bridge in it and one namespace for every host; nothing of it is in the machine's own
namespace but names under /run/netns, so several networks at once may use the same addresses. Host n has 10.77.0.n and fd77::n
on eth0.

    with Network(3) as network:
        one, two, three = network.hosts
        subprocess.Popen([*one.command("one"), "sleep", "60"])
        two.cut()
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from typing import Any, Self

from planaria.base.linux import is_running

PATIENCE_S = 30.0
NAMES = "/run/netns"
MARK = "plt"  # our namespaces are called plt<pid of its maker>x<number>


def why_not() -> str:
    """Return why there can be no namespaces here; empty when there can."""
    if os.geteuid() != 0:
        return "hosts are network namespaces, which only root can make"
    missing = [tool for tool in ("ip", "iptables", "ip6tables", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"hosts need the programs {', '.join(missing)}"
    name = f"{MARK}{os.getpid()}xtry"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"no network namespace can be made: {' '.join(tried.stderr.split())}"
    rule = ("-A", "INPUT", "-m", "statistic", "--mode", "random", "--probability", "0.5", "-j", "DROP")
    words = ["ip", "netns", "exec", name, "iptables", *rule]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    _run("ip", "netns", "del", name)
    return f"iptables cannot drop packets at random: {' '.join(tried.stderr.split())}" if tried.returncode else ""


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def sweep() -> None:
    """Remove what a maker that was killed left behind: namespaces whose maker does not live. One at a time does that."""
    if not os.path.isdir(NAMES):
        return
    folder = os.open(NAMES, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        for name in os.listdir(NAMES):
            maker = name.removeprefix(MARK).partition("x")[0]
            if name.startswith(MARK) and maker.isdecimal() and not _is_at_work(maker):
                _remove(name)
    finally:
        os.close(folder)


def _sign_of_life(maker: str) -> str:
    return f"/run/{MARK}{maker}.alive"


def _is_at_work(maker: str) -> bool:
    """Tell whether a maker of networks lives: it holds a lock then. A pid alone may be another's by now."""
    try:
        sign = os.open(_sign_of_life(maker), os.O_RDONLY)
    except FileNotFoundError:  # it is about to have one, or has just put it away
        return os.path.exists(f"/proc/{maker}")
    try:
        fcntl.flock(sign, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(sign)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_sign_of_life(maker))
    return False


class _Sign:
    """This process's sign of life: it is there as long as it has networks."""

    _fd = -1
    _networks = 0

    @classmethod
    def give(cls) -> None:
        if cls._networks == 0:
            cls._fd = os.open(_sign_of_life(str(os.getpid())), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(cls._fd, fcntl.LOCK_EX)
        cls._networks += 1

    @classmethod
    def take_back(cls) -> None:
        cls._networks -= 1
        if cls._networks == 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_sign_of_life(str(os.getpid())))
            os.close(cls._fd)


def _remove(name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for pid in _pids_in(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            _run("ip", "netns", "del", name)
        except RuntimeError:
            if os.path.exists(f"{NAMES}/{name}"):  # else it is gone meanwhile
                raise


def _pids_in(name: str) -> list[int]:
    """Return the processes in a namespace. `ip netns pids` does the same, and starts a program for it."""
    wanted = os.stat(f"{NAMES}/{name}")
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError):
                ours = os.stat(f"/proc/{entry}/ns/net")
                if (ours.st_dev, ours.st_ino) == (wanted.st_dev, wanted.st_ino):
                    found.append(int(entry))
    return found


class Host:
    """One host. Rules that drop packets hold for what arrives, until `heal`."""

    def __init__(self, network: Network, number: int) -> None:
        self._network = network
        self.number = number
        self.namespace = f"{network.name}h{number}"
        self.address = f"10.77.0.{number}"

    def command(self, hostname: str = "") -> list[str]:
        """Return the words before a command that shall run on this host, under a host name nobody can look up."""
        name = hostname or f"host{self.number}"
        rename = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]
        return ["ip", "netns", "exec", self.namespace, *rename]

    def run(self, *words: str) -> str:
        """Run a command on this host to its end; return what it printed."""
        return _run("ip", "netns", "exec", self.namespace, *words)

    def pids(self) -> list[int]:
        """Return the processes of this host."""
        return _pids_in(self.namespace)

    def cut(self) -> None:
        """Take the link down at the switch: the host's own side sees no carrier, and nobody gets an answer."""
        self._network.run("ip", "link", "set", self.port(), "down")

    def mend(self) -> None:
        """Put the cable back."""
        self._network.run("ip", "link", "set", self.port(), "up")

    def port(self, nic: int = 0) -> str:
        """Return what the switch calls its end of a cable."""
        return f"v{self.number}n{nic}"

    def lose(self, share: float) -> None:
        """Lose this share of all packets that arrive from others."""
        rule = ("-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", str(share), "-j", "DROP")
        self.run("iptables", "-A", "INPUT", *rule)
        self.run("ip6tables", "-A", "INPUT", *rule)

    def heal(self) -> None:
        """Forget all rules for packets."""
        for tool in ("iptables", "ip6tables"):
            self.run(tool, "-F")


class Network:
    """Hosts on one switch. Everything goes when the block ends, whatever happens in it."""

    _made = 0
    host_class = Host

    def __init__(self, hosts: int) -> None:
        sweep()
        Network._made += 1
        self.name = f"{MARK}{os.getpid()}x{Network._made}"
        self.hosts = [self.host_class(self, number) for number in range(1, hosts + 1)]
        self._is_open = False

    def __enter__(self) -> Self:
        _Sign.give()
        self._is_open = True
        try:
            for name in (self.name, *(host.namespace for host in self.hosts)):
                _run("ip", "netns", "add", name)
            for host in self.hosts:
                host.run("ip", "link", "set", "lo", "up")
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *words: str) -> str:
        """Run a command on the switch."""
        return _run("ip", "netns", "exec", self.name, *words)

    def connect(self, nic: int = 0) -> None:
        """Add a switch, and a cable from it to every host."""
        self.run("ip", "link", "add", f"br{nic}", "type", "bridge")
        self.run("ip", "link", "set", f"br{nic}", "up")
        for host in self.hosts:
            port, device, net = host.port(nic), f"eth{nic}", 77 + nic
            self.run("ip", "link", "add", port, "type", "veth", "peer", "name", device, "netns", host.namespace)
            self.run("ip", "link", "set", port, "master", f"br{nic}", "up")
            host.run("ip", "addr", "add", f"10.{net}.0.{host.number}/24", "dev", device)
            # No duplicate address detection: it would keep the address from being used for a second or two.
            host.run("ip", "addr", "add", f"fd{net}::{host.number:x}/64", "dev", device, "nodad")
            host.run("ip", "link", "set", device, "up")

    def close(self) -> None:
        """Kill whatever still runs on the hosts, by pid, and remove them."""
        problems: list[Any] = []
        for name in (*(host.namespace for host in self.hosts), self.name):
            if not os.path.exists(f"{NAMES}/{name}"):
                continue
            try:
                deadline = time.monotonic() + PATIENCE_S
                while [pid for pid in _pids_in(name) if is_running(pid)] and time.monotonic() < deadline:
                    for pid in _pids_in(name):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                _remove(name)
            except (OSError, RuntimeError) as exc:
                problems.append(exc)
        if self._is_open:
            self._is_open = False
            _Sign.take_back()
        if problems:
            raise RuntimeError(f"hosts were not removed: {problems}")
