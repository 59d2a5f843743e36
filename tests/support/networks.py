"""Networks of `planaria.chaos.hosts` on which more can go wrong: partitions, slow packets, closed ports, power cuts, two NICs.

A host has fd77::n beside its address, and with a second NIC 10.78.0.n and fd78::n on it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from waiting import PATIENCE_S

from planaria.base.linux import is_running
from planaria.chaos import hosts

if TYPE_CHECKING:
    pass

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


class Host(hosts.Host):
    """One host. Rules for packets hold until `heal`."""

    def __init__(self, network: Network, number: int) -> None:
        super().__init__(network, number)
        self.address6 = f"fd77::{number:x}"
        self.second_address = f"10.78.0.{number}"
        self._helpers: list[subprocess.Popen[bytes]] = []

    def kill_everything(self) -> list[int]:
        """End the host as a power cut does: not one packet more, and every process dead; return their pids."""
        self.cut()
        killed: list[int] = []
        while found := [pid for pid in self.pids() if is_running(pid)]:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed += found
        return killed

    def drop_from(self, other: Host) -> None:
        """Hear nothing from another host. It hears us: a partition in one direction."""
        self.run("iptables", "-A", "INPUT", "-s", f"{other.address},{other.second_address}", "-j", "DROP")
        self.run("ip6tables", "-A", "INPUT", "-s", other.address6, "-j", "DROP")

    def refuse_new(self, other: Host) -> None:
        """Answer every new connection of another host as if nobody listened."""
        rule = ("-p", "tcp", "--syn", "-j", "REJECT", "--reject-with", "tcp-reset")
        self.run("iptables", "-A", "INPUT", "-s", other.address, *rule)
        self.run("ip6tables", "-A", "INPUT", "-s", other.address6, *rule)

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
        super().heal()
        self.close_helpers()

    def close_helpers(self) -> None:
        """End the programs that delay packets."""
        for helper in self._helpers:
            helper.kill()
            helper.communicate(timeout=PATIENCE_S)
        self._helpers.clear()


class Network(hosts.Network):
    """Hosts on one switch, or on two; without IPv4 where it is not wanted."""

    host_class = Host
    hosts: list[Any]  # of `Host`

    def __init__(self, hosts: int, *, nics: int = 1, ipv4: bool = True) -> None:
        super().__init__(hosts)
        self._nics = nics
        self._ipv4 = ipv4

    def connect(self, nic: int = 0) -> None:
        super().connect(nic)
        for host in self.hosts if not self._ipv4 else ():
            host.run("ip", "-4", "addr", "flush", "dev", f"eth{nic}")
        if nic + 1 < self._nics:
            self.connect(nic + 1)

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
        for host in self.hosts:
            host.close_helpers()
        super().close()
