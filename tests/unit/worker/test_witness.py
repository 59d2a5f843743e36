"""The thread that says which collectives a process is in."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from waiting import wait_until

from planaria.contract.control import Drain, Look, Witness, decode, encode
from planaria.worker import witness

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"TORCH_FR_BUFFER_SIZE": "0"}, False),
        ({"TORCH_FR_BUFFER_SIZE": "x"}, False),
        ({"TORCH_FR_BUFFER_SIZE": "2000"}, True),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "1"}, True),
    ],
)
def test_it_is_wanted_where_torch_records(environ: dict[str, str], wanted: bool) -> None:
    assert witness.is_wanted(environ) is wanted


def test_the_start_up_file_looks_for_the_same_variables() -> None:
    text = Path(witness.__file__).with_name("bootstrap.py").read_text()
    looked_for = text.partition("def _call_witness")[2].partition("\ndef ")[0]
    assert set(re.findall(r'"(TORCH_\w+)"', looked_for)) == set(witness.SWITCHES)


def test_it_says_who_it_is_and_writes_what_torch_has_recorded(
    agent: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = SimpleNamespace(_dump_fr_trace_json=lambda *_: b'{"entries": []}')
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", recorded)
    witness.begin(agent.getsockname(), "3")
    peer, _ = agent.accept()
    with peer:
        assert decode(peer.recv(100)) == Witness()
        line = encode(Look(str(tmp_path / "new")))
        peer.sendall(encode(Drain("SIGTERM", 1.0)) + line[:9])
        peer.sendall(line[9:])
        found = tmp_path / "new/rank3.collectives.json"
        wait_until(found.exists, "what torch has recorded")
        assert json.loads(found.read_text()) == {"generic": {"entries": []}}
        assert (found.stat().st_mode & 0o777, found.parent.stat().st_mode & 0o777) == (0o600, 0o700)


NCCL, GENERIC = b'{"pg_status": {"0": {}}}', b'{"entries": []}'


def fails(*_: object) -> bytes:
    raise RuntimeError("the recorder is not there")


@pytest.mark.parametrize(
    ("recorders", "written"),
    [
        ({"_dump_fr_trace_json": GENERIC}, {"generic": GENERIC}),  # a build without CUDA
        ({"_dump_nccl_trace_json": NCCL}, {"nccl": NCCL}),  # torch 2.5 to 2.7
        ({"_dump_fr_trace_json": GENERIC, "_dump_nccl_trace_json": NCCL}, {"nccl": NCCL, "generic": GENERIC}),
        ({"_dump_fr_trace_json": NCCL, "_dump_nccl_trace_json": NCCL}, {"nccl": NCCL}),  # two names for one recorder
        ({"_dump_fr_trace_json": GENERIC, "_dump_nccl_trace_json": None}, {"generic": GENERIC}),
        ({"_dump_fr_trace_json": None, "_dump_nccl_trace_json": NCCL}, {"nccl": NCCL}),
        ({"_dump_fr_trace_json": b"", "_dump_nccl_trace_json": None}, None),
        ({}, None),
    ],
)
def test_every_recorder_that_torch_has_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorders: dict[str, bytes | None],
    written: dict[str, bytes] | None,
) -> None:
    """None: it is there and raises."""
    asked: list[tuple[object, ...]] = []

    def recorder(told: bytes) -> Callable[..., bytes]:
        return lambda *arguments: (asked.append(arguments), told)[1]

    functions = {name: fails if told is None else recorder(told) for name, told in recorders.items()}
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", SimpleNamespace(**functions))
    witness._look(encode(Look(str(tmp_path))), "3")
    found = tmp_path / "rank3.collectives.json"
    assert set(asked) <= {(True, False)}, "with entries, and not only those that are open"
    if written is None:
        assert not found.exists()
    else:
        assert json.loads(found.read_text()) == {name: json.loads(told) for name, told in written.items()}


def test_without_torch_or_a_listener_there_is_nothing(
    agent: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch._C._distributed_c10d", raising=False)  # other tests may have imported it
    witness._look(encode(Look(str(tmp_path / "new"))), "3")
    witness._look(b'{"look": "nonsense"', "3")
    assert not (tmp_path / "new").exists()
    witness.begin(str(tmp_path / "nobody"), "3")
