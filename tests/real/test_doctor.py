"""`planaria doctor` on this machine, in situations made with private mounts and limits, and between hosts. Partly as root."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import select
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from programs import clean_environment
from waiting import PATIENCE_S

from planaria.chaos import hosts
from planaria.chaos.hosts import Network

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from planaria.chaos.hosts import Host

DOCTOR = (sys.executable, "-m", "planaria", "doctor")
needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="private mounts are root's to make")


def doctor(*flags: str, before: Sequence[str] = (), **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run it; return its status, and what is not well by check."""
    done = subprocess.run(
        [*before, *DOCTOR, "--json", *flags],
        env=clean_environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["schema"] == 1
    assert done.returncode == int(not found["ok"])
    return done.returncode, {one["check"]: one for one in found["findings"] if one["verdict"] != "ok"}


def mounted(script: str, *words: str) -> list[str]:
    """Return the words before a command that shall see mounts of its own; `script` makes them, with $1, $2, ..."""
    count = len(words)
    return ["unshare", "--mount", "sh", "-ec", f'{script}\nshift {count}\nexec "$@"', "sh", *words]


def test_this_machine_is_looked_at_without_torch_and_for_people(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    done = subprocess.run(
        [*DOCTOR, "--verbose", "--rdzv-endpoint=localhost:1"],
        env=clean_environment(PYTHONPATH=str(tmp_path), TMPDIR=str(tmp_path)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    lines = done.stdout.splitlines()
    assert "\x1b" not in done.stdout
    assert any(line.startswith("ok    clock.monotonic: ") for line in lines)
    assert any(line.startswith("ok    system.kernel: ") for line in lines)
    assert " checks: " in lines[-1]
    for line, following in itertools.pairwise(lines):
        assert not line.startswith(("warn", "fail")) or following.startswith("      -> ")
    assert list(tmp_path.iterdir()) == [tmp_path / "torch.py"]


def test_a_wrong_command_line_is_a_sentence_and_status_2() -> None:
    done = subprocess.run([*DOCTOR, "--checks=luck"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("planaria: --checks expects all or some of dns, ")


PARENT = """import os, sys
argv = [sys.executable, "-m", "planaria", "doctor", "--listen", "--port=0", f"--parent={os.getpid()}"]
os.posix_spawn(argv[0], argv, os.environ)
sys.stdin.read()
"""


def test_the_doctor_of_an_agent_ends_with_it() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], env=clean_environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stderr is not None
        assert select.select([process.stderr], [], [], PATIENCE_S)[0]
        assert b"answering at port" in process.stderr.readline()
        process.kill()
        assert select.select([process.stderr], [], [], PATIENCE_S)[0]
        assert process.stderr.read() == b""  # nobody is left who could write there


def test_a_doctor_whose_parent_is_gone_does_not_begin() -> None:
    done = subprocess.run(
        [*DOCTOR, "--checks=system", "--parent=1"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (137, "", "")


def test_few_files_are_found() -> None:
    status, found = doctor("--checks=limits", before=["sh", "-c", 'ulimit -n 100 && exec "$@"', "sh"])
    assert (status, found["limits.open-files"]["verdict"]) == (1, "fail")


def test_an_interface_that_is_not_there_is_found() -> None:
    status, found = doctor("--checks=network", GLOO_SOCKET_IFNAME="nosuch0")
    assert (status, "lo" in found["network.chosen"]["remedy"]) == (1, True)


PLUGGED = """ip link set lo up
ip link add far0 type veth peer name far1
ip address add 10.79.0.1/24 dev far0
ip link set far0 up
ip link set far1 up
until ip link show far0 | grep -q "state UP"; do :; done"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a network of one's own is root's to make")
def test_interfaces_are_those_of_the_process_though_the_folder_of_the_kernel_shows_others() -> None:
    before = ["unshare", "--net", "sh", "-ec", f'{PLUGGED}\nexec "$@"', "sh"]
    status, found = doctor("--checks=network", "--rdzv-endpoint=10.79.0.2:1", before=before, GLOO_SOCKET_IFNAME="far0")
    assert (status, found) == (0, {})


@needs_mounts
@pytest.mark.root
@pytest.mark.parametrize(("megabytes", "status", "verdict"), [(64, 0, "warn"), (4, 1, "fail")])
def test_the_small_shared_memory_of_a_container_is_found(megabytes: int, status: int, verdict: str) -> None:
    before = mounted('mount -t tmpfs -o "size=${1}m" tmpfs /dev/shm', str(megabytes))
    found_status, found = doctor("--checks=shm", before=before)
    assert (found_status, found["shm.size"]["verdict"]) == (status, verdict)
    assert "--shm-size" in found["shm.size"]["remedy"]


DISKS = [
    ('mount -t tmpfs -o size=100m tmpfs "$1"\nhead -c 95000000 /dev/zero >"$1/x"', "disk.space"),
    ('mount -t tmpfs -o size=1m tmpfs "$1"\nhead -c 2000000 /dev/zero >"$1/x" 2>/dev/null || true', "disk.space"),
    ('mount -t tmpfs -o nr_inodes=20,size=100m tmpfs "$1"', "disk.inodes"),
    ('mount -t tmpfs -o ro tmpfs "$1"', "disk.writable"),
]


@needs_mounts
@pytest.mark.root
@pytest.mark.parametrize(("script", "check"), DISKS, ids=["little room", "no room", "few files", "read-only"])
def test_a_disk_that_takes_nothing_is_found(tmp_path: Path, script: str, check: str) -> None:
    status, found = doctor("--checks=disk", f"--log-dir={tmp_path}/logs", before=mounted(script, str(tmp_path)))
    assert (status, found[check]["verdict"]) == (1, "fail")
    assert f"--log-dir {tmp_path}/logs" in found[check]["sentence"]


@needs_mounts
@pytest.mark.root
def test_names_that_cannot_be_looked_up_and_the_one_that_is_only_loopback_are_found(tmp_path: Path) -> None:
    own = os.uname().nodename
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    script = 'mount --bind "$1/resolv.conf" /etc/resolv.conf\nmount --bind "$1/hosts" /etc/hosts'
    alone = ["unshare", "--net", *mounted(script, str(tmp_path))]  # where no name server can be reached
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n")
    status, found = doctor("--checks=dns", "--rdzv-endpoint=far.example", before=alone)
    assert (status, found["dns.endpoint"]["verdict"], found["dns.own-name"]["verdict"]) == (1, "fail", "warn")
    (tmp_path / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {own}\n10.9.9.9 far.example\n")
    status, found = doctor("--checks=dns", "--rdzv-endpoint=far.example", before=alone)
    assert (status, list(found)) == (0, ["dns.loopback"])
    assert "127.0.1.1" in found["dns.loopback"]["remedy"]


# Between hosts.


@functools.cache
def why_not() -> str:
    return hosts.why_not()


@pytest.fixture
def pair() -> Iterator[tuple[Host, Host]]:
    """Two hosts on a switch."""
    if why_not():
        pytest.skip(why_not())
    with Network(2) as network:
        yield network.hosts[0], network.hosts[1]


@contextlib.contextmanager
def listening(host: Host, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Have a doctor listen there."""
    process = subprocess.Popen(
        [*host.command("a"), *DOCTOR, "--listen", "--json"],
        env=clean_environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stdout is not None
    try:
        assert select.select([process.stderr], [], [], PATIENCE_S)[0]
        assert "answering at port 29400" in process.stderr.readline()
        yield process
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()
        process.stderr.close()


def visit(here: Host, there: Host, timeout_s: float = 1.0, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
    flags = (f"--peer={there.address}", "--checks=peers", f"--timeout={timeout_s}")
    return doctor(*flags, before=here.command("b"), **variables)


@pytest.mark.root
def test_two_hosts_find_each_other_well_and_both_say_so(pair: tuple[Host, Host]) -> None:
    one, two = pair
    with listening(one, PLANARIA_TOKEN="secret") as process:
        status, found = visit(two, one, 20.0, PLANARIA_TOKEN="secret")
        assert (status, set(found) <= {"peers.round-trip", "peers.bandwidth"}) == (0, True)  # on a busy machine
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], PATIENCE_S)[0]
        told = json.loads(process.stdout.readline())
        assert told["peer"].startswith("b (10.77.0.2:")
        names = ("reach", "version", "round-trip", "large", "bandwidth", "clock")
        assert [one["check"] for one in told["findings"]] == [f"peers.{name}" for name in names]
        assert all(one["ok"] for one in told["findings"])
        status, found = visit(two, one, 20.0, PLANARIA_TOKEN="another")
        assert (status, list(found)) == (1, ["peers.token"])
        status, found = visit(two, one, 20.0)
        assert (status, list(found)) == (1, ["peers.token"])


@pytest.mark.root
def test_lost_large_packets_are_found_in_both_directions(pair: tuple[Host, Host]) -> None:
    one, two = pair
    black_hole = ("iptables", "-A", "INPUT", "-m", "length", "--length", "1000:65535", "-j", "DROP")
    with listening(one):
        for host, way in ((one, "large ones to 10.77.0.1"), (two, "large ones from 10.77.0.1")):
            host.run(*black_hole)
            status, found = visit(two, one, 4.0)
            host.heal()
            assert (status, set(found) - {"peers.round-trip"}) == (1, {"peers.large"})  # on a busy machine, both
            assert way in found["peers.large"]["sentence"]
            assert "MTU" in found["peers.large"]["remedy"]


@pytest.mark.root
def test_a_firewall_a_port_where_nobody_listens_and_a_cut_cable_are_told_apart(pair: tuple[Host, Host]) -> None:
    one, two = pair
    status, found = visit(two, one, 20.0)
    assert "nobody listens" in found["peers.reach"]["sentence"]
    with listening(one):
        one.run("iptables", "-A", "INPUT", "-p", "tcp", "--dport", "29400", "-j", "DROP")
        status, found = visit(two, one)
        assert (status, list(found)) == (1, ["peers.reach"])
        assert "a firewall drops what is sent to port 29400" in found["peers.reach"]["sentence"]
        endpoint = ("--checks=ports", f"--rdzv-endpoint={one.address}")
        status, found = doctor(*endpoint, before=two.command("b"))
        assert (status, "a firewall drops" in found["ports.reach"]["sentence"]) == (1, True)
        one.heal()
        one.cut()
        status, found = visit(two, one)
        assert (status, "cable" in found["peers.reach"]["remedy"]) == (1, True)
        status, found = doctor("--checks=network", f"--rdzv-endpoint={two.address}", before=one.command("a"))
        assert (status, "eth0 has no carrier" in found["network.interfaces"]["sentence"]) == (0, True)
