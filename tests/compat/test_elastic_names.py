"""Every public name of `torch.distributed.{elastic,launcher,run}` exists here, with the same signature and fields.

What does not is in `ON_PURPOSE`, with a reason and a test of ours. `python tests/compat/test_elastic_names.py` prints what
is missing or differs now. The names of torch are those of the torch that is installed.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DESCRIBE = ROOT / "tests" / "support" / "public_names.py"
TIMEOUT_S = 110


class Difference(NamedTuple):
    """What differs (a module, a name, or a name's attribute), why, and a test of ours for what there is instead."""

    what: str
    reason: str
    test: str


ON_PURPOSE = (
    Difference(
        "elastic.control_plane",
        "a door to the C++ server inside torch, which its own agent never opens; ours is the control socket",
        "tests/real/test_control.py::test_a_drain_notice_is_there_when_the_signal_arrives",
    ),
    Difference(
        "elastic.rendezvous.etcd_server",
        "starts an etcd binary with the v2 API for torch's own tests; etcd 3.6 has no v2",
        "tests/contract/test_etcd.py::test_a_restart_loses_nothing",
    ),
    Difference(
        "elastic.rendezvous.etcd_rendezvous.EtcdRendezvous",
        "the steps of torch's old protocol on etcd; ours has other steps, and the handler of this name runs them",
        "tests/unit/elastic/rendezvous/test_handlers.py"
        "::test_every_name_that_torchrun_and_we_have_makes_a_handler_that_describes_its_meeting",
    ),
    Difference(
        "elastic.rendezvous.dynamic_rendezvous.DynamicRendezvousHandler",
        "its constructor takes private parts of torch's protocol; create_handler and from_backend are the documented ways",
        "tests/unit/elastic/rendezvous/test_handlers.py"
        "::test_every_name_that_torchrun_and_we_have_makes_a_handler_that_describes_its_meeting",
    ),
    Difference(
        "elastic.multiprocessing.redirects.IS_MACOS",
        "we run on Linux only, where it would always be False",
        "tests/unit/elastic/multiprocessing/test_redirects.py::test_python_c_and_programs_are_redirected_and_come_back",
    ),
    Difference(
        "elastic.multiprocessing.redirects.IS_WINDOWS",
        "we run on Linux only, where it would always be False",
        "tests/unit/elastic/multiprocessing/test_redirects.py::test_python_c_and_programs_are_redirected_and_come_back",
    ),
)

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is what is compared with")


def described(*words: str) -> Any:
    """Run the description in a process of its own: of torch, or of ours where torch cannot be imported."""
    command = [sys.executable, "-W", "ignore", str(DESCRIBE), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def compared(folder: Path) -> dict[str, str]:
    """Return what is missing or differs in ours, with a line about how."""
    theirs = described("torch.distributed")
    (folder / "theirs.json").write_text(json.dumps(theirs))
    ours = described("planaria", str(folder / "theirs.json"))
    assert sum(map(len, theirs.values())) > 150, "that cannot be all of torch"
    return differences(theirs, ours)


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for module, names in theirs.items():
        if ours[module] is None:
            found[module] = "there is no such module"
            continue
        for name, their in names.items():
            found.update(_compared(f"{module}.{name}", their, ours[module][name]))
    return found


def _compared(what: str, their: dict[str, Any], our: dict[str, Any] | None) -> dict[str, str]:
    if our is None:
        return {what: "missing"}
    if "property" in (their["kind"], our["kind"]):  # a property may be an attribute and the other way round
        return {}
    if their["kind"] == "function" and their["signature"] is None:  # written in C
        return {}
    if their["kind"] != our["kind"]:
        return {what: f"is a {their['kind']} there and a {our['kind']} here"}
    found = {}
    for part in ("signature", "fields", "members", "value"):
        if their.get(part) != our.get(part):
            found[what] = f"{part}\n    there {their.get(part)}\n    here  {our.get(part)}"
    for name, attribute in their.get("attributes", {}).items():
        found.update(_compared(f"{what}.{name}", attribute, our["attributes"].get(name)))
    return found


@needs_torch
def test_every_public_name_of_torch_is_here_or_is_missing_on_purpose(tmp_path: Path) -> None:
    found = compared(tmp_path)
    purposes = {entry.what for entry in ON_PURPOSE}
    unexpected = [f"{what}: {how}" for what, how in found.items() if what not in purposes]
    assert not unexpected, "\n".join(unexpected)
    assert purposes - set(found) == set(), "these do not differ any more"


def test_at_most_twenty_things_differ_each_with_a_reason_and_a_test() -> None:
    assert len(ON_PURPOSE) <= 20
    for entry in ON_PURPOSE:
        assert len(entry.reason) > 20
        file, _, name = entry.test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), entry.test


def test_every_module_is_imported_where_there_is_no_torch() -> None:
    found = described("planaria", "--import-everything")
    assert "planaria.elastic.multiprocessing.errors" in found


@pytest.mark.parametrize(
    ("their", "our", "found"),
    [
        ({"kind": "value", "value": "1"}, None, {"m.x": "missing"}),
        ({"kind": "function", "signature": None}, {"kind": "function", "signature": []}, {}),
        ({"kind": "function", "signature": []}, {"kind": "class"}, {"m.x": "is a function there and a class here"}),
        ({"kind": "value", "value": "1"}, {"kind": "value", "value": "1"}, {}),
        ({"kind": "property"}, {"kind": "value", "value": "1"}, {}),
    ],
)
def test_a_difference_is_seen(their: dict[str, Any], our: dict[str, Any] | None, found: dict[str, str]) -> None:
    assert differences({"m": {"x": their}}, {"m": {"x": our}}) == found


GO = {"kind": "function", "signature": []}


def test_a_changed_signature_or_a_missing_method_is_seen() -> None:
    there = {"kind": "class", "signature": [["a", "KEYWORD_ONLY", "1"]], "attributes": {"go": GO}}
    here = {"kind": "class", "signature": [["a", "KEYWORD_ONLY", "2"]], "attributes": {}}
    found = differences({"m": {"X": there}, "gone": {}}, {"m": {"X": here}, "gone": None})
    assert list(found) == ["m.X", "m.X.go", "gone"]
    assert found["m.X"].startswith("signature")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        reasons = {entry.what: entry.reason for entry in ON_PURPOSE}
        for what, how in compared(Path(folder)).items():
            print(f"{'on purpose' if what in reasons else 'UNEXPECTED'}  {what}: {reasons.get(what, how)}")
