"""Hosts to try things on: network namespaces on a switch of their own, on this machine, as root.

A `Network` is one namespace with a bridge in it (two for hosts with two NICs) and one namespace for every host; nothing of
it is in the machine's own namespace but names under /run/netns, so several networks at once may use the same addresses.
Host n has 10.77.0.n and fd77::n on eth0, and 10.78.0.n and fd78::n on eth1 where it has one.

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
import sys
import time
from typing import Any, Self

PATIENCE_S = 30.0
NAMES = "/run/netns"
MARK = "plt"  # our namespaces are called plt<pid of its maker>x<number>

# Packets of a host wait in a queue for a while: what `tc netem delay` does where the kernel has it. Reads the queue's
# netlink socket; only ids come, and each is let go when its time has come. Says "ready" once packets go through it.
DELAY = """\
import collections, os, select, socket, struct, sys, time
delay_s, number = float(sys.argv[1]), 1
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)  # NETLINK_NETFILTER
link.bind((0, 0))
def send(kind, attribute, body, flags=1):
    attribute = struct.pack("HH", 4 + len(body), attribute) + body + bytes(-len(body) % 4)
    packet = struct.pack("BBH", 0, 0, socket.htons(number)) + attribute
    link.send(struct.pack("IHHII", 16 + len(packet), 3 << 8 | kind, flags, 0, 0) + packet)
send(2, 1, struct.pack("!BBH", 1, 0, 0), 5)       # config: bind
answer = link.recv(65536)
assert struct.unpack_from("i", answer, 16)[0] == 0, answer
send(2, 2, struct.pack("!IB", 0, 1))              # config: copy nothing but the header
send(2, 3, struct.pack("!I", 65536))              # config: length of the queue
print("ready", flush=True)
waiting = collections.deque()
while True:
    left_s = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
    if select.select([link], [], [], left_s)[0]:
        data, at = link.recv(1 << 20), time.monotonic() + delay_s
        while len(data) >= 16:
            size, kind = struct.unpack_from("IH", data)
            if kind == 3 << 8:
                waiting.append((at, struct.unpack_from("!I", data, 24)[0]))
            data = data[(size + 3) & ~3:]
    while waiting and waiting[0][0] <= time.monotonic():
        send(1, 2, struct.pack("!II", 1, waiting.popleft()[1]))  # verdict: accept
"""


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
        self.address6 = f"fd77::{number:x}"
        self.second_address = f"10.78.0.{number}"
        self._helpers: list[subprocess.Popen[bytes]] = []

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

    # Links.

    def cut(self, nic: int = 0) -> None:
        """Take the link down at the switch: the host's own side sees no carrier, and nobody gets an answer."""
        self._network.run("ip", "link", "set", self._port(nic), "down")

    def mend(self, nic: int = 0) -> None:
        """Put the cable back."""
        self._network.run("ip", "link", "set", self._port(nic), "up")

    def _port(self, nic: int) -> str:
        return f"v{self.number}n{nic}"

    def kill_everything(self) -> list[int]:
        """End the host as a power cut does: not one packet more, and every process dead; return their pids."""
        self.cut()
        if self._network.nics > 1:
            self.cut(1)
        killed: list[int] = []
        while found := [pid for pid in self.pids() if _lives(pid)]:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed += found
        return killed

    # Packets.

    def drop_from(self, other: Host) -> None:
        """Hear nothing from another host. It hears us: a partition in one direction."""
        self.run("iptables", "-A", "INPUT", "-s", f"{other.address},{other.second_address}", "-j", "DROP")
        self.run("ip6tables", "-A", "INPUT", "-s", other.address6, "-j", "DROP")

    def refuse_new(self, other: Host) -> None:
        """Answer every new connection of another host as if nobody listened."""
        rule = ("-p", "tcp", "--syn", "-j", "REJECT", "--reject-with", "tcp-reset")
        self.run("iptables", "-A", "INPUT", "-s", other.address, *rule)
        self.run("ip6tables", "-A", "INPUT", "-s", other.address6, *rule)

    def lose(self, share: float) -> None:
        """Lose this share of all packets that arrive from others."""
        rule = ("-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", str(share), "-j", "DROP")
        self.run("iptables", "-A", "INPUT", *rule)
        self.run("ip6tables", "-A", "INPUT", *rule)

    def delay(self, delay_s: float) -> None:
        """Let every packet to others wait."""
        words = [*self.command(), sys.executable, "-c", DELAY, str(delay_s)]
        helper = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self._helpers.append(helper)
        assert helper.stdout is not None
        assert helper.stdout.readline() == b"ready\n", "no queue for packets"
        self.run("iptables", "-A", "OUTPUT", "-o", "eth0", "-j", "NFQUEUE", "--queue-num", "1")

    def count(self, *rule: str) -> None:
        """Count packets that leave and fit a rule (`-p udp --dport 53`); they go on."""
        self.run("iptables", "-I", "OUTPUT", *rule, "-m", "comment", "--comment", "counted")

    def counted(self) -> int:
        """Return how many packets fitted a rule so far."""
        lines = self.run("iptables", "-L", "OUTPUT", "-v", "-x", "-n").splitlines()
        return sum(int(line.split()[0]) for line in lines if "counted" in line)

    def heal(self) -> None:
        """Forget all rules for packets."""
        for tool in ("iptables", "ip6tables"):
            self.run(tool, "-F")
        self.close_helpers()

    def close_helpers(self) -> None:
        """End the programs that delay packets."""
        for helper in self._helpers:
            helper.kill()
            helper.communicate(timeout=PATIENCE_S)
        self._helpers.clear()


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].strip()[:1] not in (b"Z", b"X")
    return False


class Network:
    """Hosts on one switch, or on two. Everything goes when the block ends, whatever happens in it."""

    _made = 0

    def __init__(self, hosts: int, *, nics: int = 1, ipv4: bool = True) -> None:
        sweep()
        Network._made += 1
        self.name = f"{MARK}{os.getpid()}x{Network._made}"
        self.nics = nics
        self._ipv4 = ipv4
        self.hosts = [Host(self, number) for number in range(1, hosts + 1)]
        self._is_open = False

    def __enter__(self) -> Self:
        _Sign.give()
        self._is_open = True
        try:
            _run("ip", "netns", "add", self.name)
            for nic in range(self.nics):
                self.run("ip", "link", "add", f"br{nic}", "type", "bridge")
                self.run("ip", "link", "set", f"br{nic}", "up")
            for host in self.hosts:
                self._plug_in(host)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *words: str) -> str:
        """Run a command on the switch."""
        return _run("ip", "netns", "exec", self.name, *words)

    def _plug_in(self, host: Host) -> None:
        _run("ip", "netns", "add", host.namespace)
        host.run("ip", "link", "set", "lo", "up")
        for nic in range(self.nics):
            port, device, net = f"v{host.number}n{nic}", f"eth{nic}", 77 + nic
            self.run("ip", "link", "add", port, "type", "veth", "peer", "name", device, "netns", host.namespace)
            self.run("ip", "link", "set", port, "master", f"br{nic}", "up")
            if self._ipv4:
                host.run("ip", "addr", "add", f"10.{net}.0.{host.number}/24", "dev", device)
            # No duplicate address detection: it would keep the address from being used for a second or two.
            host.run("ip", "addr", "add", f"fd{net}::{host.number:x}/64", "dev", device, "nodad")
            host.run("ip", "link", "set", device, "up")

    def partition(self, *sides: tuple[Host, ...]) -> None:
        """Let no packet pass between hosts of different sides, at the same time on all of them. Nobody is told."""
        cuts = []
        for side in sides:
            others = [host for other in sides if other is not side for host in other]
            four = "".join(f"-A INPUT -s {one.address},{one.second_address} -j DROP\n" for one in others)
            six = "".join(f"-A INPUT -s {one.address6} -j DROP\n" for one in others)
            rules = (("iptables", four), ("ip6tables", six))
            script = "".join(f"{tool}-restore --noflush <<.\n*filter\n{text}COMMIT\n.\n" for tool, text in rules)
            cuts += [
                subprocess.Popen(["ip", "netns", "exec", host.namespace, "sh", "-ec", script], stdin=subprocess.DEVNULL)
                for host in side
            ]
        ends = [cut.wait(PATIENCE_S) for cut in cuts]
        if any(ends):
            raise RuntimeError(f"{sides} could not be cut from each other")

    def heal(self) -> None:
        """Let every packet pass again."""
        for host in self.hosts:
            host.heal()

    def close(self) -> None:
        """Kill whatever still runs on the hosts, by pid, and remove them."""
        problems: list[Any] = []
        for host in self.hosts:
            host.close_helpers()
        for name in (*(host.namespace for host in self.hosts), self.name):
            if not os.path.exists(f"{NAMES}/{name}"):
                continue
            try:
                deadline = time.monotonic() + PATIENCE_S
                while [pid for pid in _pids_in(name) if _lives(pid)] and time.monotonic() < deadline:
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
