"""What surrounds the checks: names, groups, flags, what is shown, what doctors say to each other."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from planaria.base.colours import COLOURS, Style
from planaria.doctor import gather, look_gpu, look_machine, look_network, talk
from planaria.doctor.flags import HELP, Order, read_flags
from planaria.doctor.gpu import GpuFacts, check_gpu
from planaria.doctor.gpu_log import Xid, read_log
from planaria.doctor.model import CHECKS, HERE, Asked, Finding, as_json, fail, failures, ok, read_groups, size, warn
from planaria.doctor.show import as_text
from planaria.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

FINDINGS = [
    ok("dns.own-name", "fine"),
    ok("dns.slow", "fine"),
    warn("clock.synchronised", "nobody keeps it", "start chronyd"),
    fail("disk.space", "\x1b[31mfull\n", "remove files"),
]


def test_findings_of_a_group_without_trouble_are_one_line_and_others_have_their_remedies() -> None:
    assert as_text(FINDINGS, Style()).splitlines() == [
        "ok    dns: 2 checks",
        "warn  clock.synchronised: nobody keeps it",
        "      -> start chronyd",
        "fail  disk.space: \\x1b[31mfull\\n",
        "      -> remove files",
        "4 checks: 1 failure and 1 warning",
    ]


def test_all_is_shown_when_asked_for_and_colours_stay_outside_of_words() -> None:
    lines = as_text(FINDINGS[:2], COLOURS, is_long=True).splitlines()
    assert lines[0] == "\x1b[32mok  \x1b[0m  dns.own-name: fine"
    assert lines[-1] == "2 checks: all is well"


def test_json_says_which_findings_keep_a_node_from_joining() -> None:
    assert [one["ok"] for one in as_json(FINDINGS)] == [True, True, True, False]
    assert [one.check for one in failures(FINDINGS)] == ["disk.space"]
    assert set(as_json(FINDINGS)[0]) == {"check", "ok", "verdict", "sentence", "remedy"}


def test_groups_are_read_in_the_order_of_the_table() -> None:
    assert read_groups("all", "--checks") == HERE
    assert read_groups("gpu, dns", "--checks") == ("dns", "gpu")
    with pytest.raises(UsageError, match=r"--preflight expects all or some of dns, .*, got ''"):
        read_groups("", "--preflight")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (2048, "2.0 KiB"), (64 << 20, "64 MiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_flags_become_an_order() -> None:
    argv = [
        "--nproc-per-node=8",
        "--rdzv-endpoint",
        "n0,[::1]:80",
        "--peer=n1:5,[fd77::1]",
        "--snapshot-dir=/data",
        "-v",
    ]
    order = read_flags(argv, {"TMPDIR": "/t"})
    assert order.asked.endpoints == ("n0:29400", "[::1]:80")
    assert order.asked.folders == (("TMPDIR", "/t"), ("--snapshot-dir", "/data"))
    assert (order.peers, order.asked.workers, order.is_long) == (("n1:5", "[fd77::1]:29400"), 8, True)
    assert read_flags(["--rdzv-backend=etcd", "--rdzv-endpoint=e"], {}).asked.endpoints == ("e:2379",)
    assert read_flags(["--peer=n1", "--checks=peers"], {}).asked.groups == ()
    assert read_flags(["--peer=n1", "--checks=peers,disk"], {}).asked.groups == ("disk",)
    assert read_flags(["--listen", "--port=0"], {}) == Order(read_flags([], {}).asked, listens=True, port=0)
    assert read_flags(["--help"], {}).help


def test_the_help_fits_a_terminal_and_names_every_group() -> None:
    assert max(map(len, HELP.splitlines())) <= 130
    assert all(group in HELP for group in CHECKS)


def asked(**changes: object) -> list[Finding]:
    return gather.examine(Asked(**changes), version="1.0", wall_s=1.8e9, token=None)  # type: ignore[arg-type]


def test_every_finding_here_has_a_name_of_the_table(tmp_path: Path) -> None:
    found = asked(folders=(("TMPDIR", str(tmp_path)),), endpoints=("127.0.0.1:1",), environ=(("RANK", "1"),))
    names = {f"{group}.{check}" for group, checks in CHECKS.items() for check in checks}
    assert {one.check for one in found} <= names
    assert {one.check.partition(".")[0] for one in found} == set(HERE)


def test_only_groups_that_are_asked_for_are_looked_at() -> None:
    assert {one.check.partition(".")[0] for one in asked(groups=("system", "clock"))} == {"system", "clock"}


def test_a_group_that_hangs_is_a_failure_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()

    def look(group: str, *_: object) -> Callable[[], list[Finding]]:
        return lambda: [ok("clock.wall", "fine")] if group == "clock" else [ok("x", "")] * stuck.wait(60)

    monkeypatch.setattr(gather, "_look", look)
    groups = Asked(groups=("clock", "disk"))
    found = gather.examine(groups, version="1.0", wall_s=0.0, token=None, within_s=0.2)
    stuck.set()
    assert [(one.check, one.verdict) for one in found] == [("clock.wall", "ok"), ("disk.answer", "fail")]
    assert "network file systems" in found[1].remedy


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_group_that_breaks_is_a_failure_of_its_own_and_the_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_machine, "clock_facts", lambda _wall_s: 1 / 0)
    found = asked(groups=("clock", "system"))
    assert (found[0].check, found[0].verdict) == ("clock.bug", "fail")
    assert "bug" in found[0].sentence
    assert found[-1].check == "system.planaria"


def test_a_folder_that_is_not_there_yet_is_judged_by_what_is_above_it(tmp_path: Path) -> None:
    folder = look_machine.folder_facts("--log-dir", str(tmp_path / "logs" / "job7"))
    assert (folder.checked, folder.problem) == (str(tmp_path), "")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert look_machine.folder_facts("--log-dir", str(tmp_path / "file" / "x")).checked == str(tmp_path)


def test_interfaces_are_seen_with_their_addresses() -> None:
    [lo] = [nic for nic in look_network.nics() if nic.name == "lo"]
    assert "127.0.0.1" in lo.addresses
    assert (lo.works, lo.mtu >= 1280) == (True, True)


def test_interfaces_are_not_taken_from_files_that_may_show_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_network.os, "listdir", lambda _path: ["eth9"])
    monkeypatch.setattr(look_network, "read_file", lambda path, *_: b"" if "/proc/" in path else b"0x1003")
    assert [nic.name for nic in look_network.nics()] == sorted(name for _, name in socket.if_nameindex())


DEVICE = "PCI:0000:3b:00"
XID = b"4,1234,%d000000,-;NVRM: Xid (PCI:0000:3b:00): %s\n"
FELL = b"79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
LOADED = b"4,9,7000000,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.1\n"
WANTS = b"154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
RESET = b"154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


@pytest.mark.parametrize(
    ("records", "xids"),
    [
        ([XID % (5, FELL)], [Xid(DEVICE, 79, 5.0)]),
        ([(XID % (5, FELL)).replace(b"):", b" GPU-I:05):")], [Xid(DEVICE, 79, 5.0)]),
        ([XID % (5, b"x, pid=1")], []),
        ([b"6,1,2,-;usb 1-1: new device\n"], []),
        ([b"NVRM: Xid ("], []),
        ([XID % (5, FELL), LOADED, XID % (8, FELL)], [Xid(DEVICE, 79, 5.0, True), Xid(DEVICE, 79, 2.0)]),
        ([XID % (5, FELL), XID % (6, WANTS)], [Xid(DEVICE, 79, 5.0)]),
        ([XID % (5, FELL), XID % (6, RESET)], [Xid(DEVICE, 79, 5.0, True)]),
        ([XID % (5, FELL), (XID % (6, RESET)).replace(b"3b", b"5e")], [Xid(DEVICE, 79, 5.0)]),
    ],
)
def test_errors_of_gpus_are_read_from_the_log_of_the_kernel_and_what_a_reset_has_mended(
    records: list[bytes], xids: list[Xid]
) -> None:
    assert list(read_log(records, 10.0)) == xids


class Nvml:
    """The driver's library for two GPUs: the second is gone, or has no memory to tell of. It answers nothing else."""

    def __init__(self, *, handle: int = 0, memory: int = 0) -> None:
        self.refusals = {"nvmlDeviceGetHandleByIndex_v2": handle, "nvmlDeviceGetMemoryInfo": memory}
        self.index = 0

    def __getattr__(self, name: str) -> Callable[..., int | bytes]:
        def call(*words: Any) -> int | bytes:
            if name == "nvmlErrorString":
                return b"GPU is lost" if words[0] == 15 else b"Not Supported"
            if name == "nvmlDeviceGetCount_v2":
                words[0]._obj.value = 2
            if name == "nvmlDeviceGetHandleByIndex_v2":
                self.index = words[0]
            if name == "nvmlDeviceGetName":
                words[1].value = b"H200"
            if name in self.refusals:
                return self.refusals[name] if self.index else 0
            return 0 if name.startswith(("nvmlInit", "nvmlSystem")) or "Count" in name or "Name" in name else 3

        return call


def gpu_facts(monkeypatch: pytest.MonkeyPatch, library: Nvml) -> GpuFacts:
    monkeypatch.setattr(look_gpu.ctypes, "CDLL", lambda _name: library)
    monkeypatch.setattr(look_gpu, "_devices", lambda: 2)
    monkeypatch.setattr(look_gpu, "_log", lambda: iter(()))
    return look_gpu.gpu_facts({}, 1)


def test_a_gpu_that_does_not_tell_its_memory_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = gpu_facts(monkeypatch, Nvml(memory=3))
    assert ([gpu.index for gpu in facts.gpus], facts.lost, facts.problem) == ([0, 1], (), "")
    assert check_gpu(facts)[0].verdict == "ok"


@pytest.mark.parametrize("library", [Nvml(handle=15), Nvml(memory=15)])
def test_a_gpu_that_is_lost_is_told_and_the_others_are_asked(monkeypatch: pytest.MonkeyPatch, library: Nvml) -> None:
    facts = gpu_facts(monkeypatch, library)
    assert ([gpu.index for gpu in facts.gpus], facts.lost) == ([0], ("GPU 1: GPU is lost",))
    assert check_gpu(facts)[0].verdict == "fail"


def test_greetings_and_reports_come_back_as_they_were_sent() -> None:
    greeting = talk.Greeting("1.0", "n1", 1.5)
    assert talk.read_greeting(talk.greet(greeting)) == greeting
    found = [fail("peers.large", "lost", "one MTU")]
    assert talk.read_report(talk.report(found)) == found


@pytest.mark.parametrize(
    "message", [b"", b"\xff", b"[]", b"{}", b'{"doctor": 2}', b'{"doctor": 1, "version": 1}', b"[" * 9999]
)
def test_what_is_no_greeting_is_none(message: bytes) -> None:
    assert talk.read_greeting(message) is None
    assert talk.read_report(b"r" + message) == []


def test_what_another_host_reports_cannot_paint_on_our_screen_nor_pretend_to_be_ours() -> None:
    rows = '[["peers.reach", "ok", "\\u001b[2Jx", ""], ["disk.space", "fail", "x", ""], ["peers.reach", "fine", "", ""], [1]]'
    [one] = talk.read_report(b"r" + rows.encode())
    assert one.sentence == "\\x1b[2Jx"
