"""Stores by name: ours, those of other packages, and what is said when there is none."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from programs import install

from planaria.base.loop import Loop
from planaria.errors import UsageError
from planaria.store.api import Where
from planaria.store.backends import open_store
from planaria.store.memory import MemoryStore
from planaria.store.model import Absent, Get
from planaria.testing.store_client import Client

if TYPE_CHECKING:
    from pathlib import Path

PLUGIN = """
from planaria.store.memory import MemoryStore

class Theirs(MemoryStore):
    def __init__(self, loop, where):
        super().__init__(loop)
        self.where = where
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is installed like any other: a module and its metadata in a folder of sys.path."""
    (tmp_path / "their_store.py").write_text(PLUGIN)
    points = {"theirs": "their_store:Theirs", "broken": "their_store:Missing", "lost": "nowhere_at_all:Store"}
    install(tmp_path, "their-store", {"planaria.stores": points})
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_store_of_another_package_is_found_by_its_entry_point(plugin: None, loop: Loop) -> None:
    where = Where(("host:1",), options=(("colour", "red"),))
    store = open_store("theirs", loop, where)
    assert store.where == where  # type: ignore[attr-defined]
    assert Client(loop, store).ask(Get("k")) == Absent()


@pytest.mark.parametrize("name", ["broken", "lost"])
def test_a_store_that_cannot_be_loaded_is_named(plugin: None, loop: Loop, name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}'"):
        open_store(name, loop, Where())


def test_a_name_that_nobody_has_is_answered_with_those_there_are(plugin: None, loop: Loop) -> None:
    with pytest.raises(UsageError, match=r"no store called 'zookeeper'.*embedded, etcd.*memory, theirs"):
        open_store("zookeeper", loop, Where())


def test_the_memory_store_is_there(loop: Loop) -> None:
    assert isinstance(open_store("memory", loop, Where()), MemoryStore)


def test_an_embedded_store_needs_an_endpoint_and_readable_certificates(loop: Loop) -> None:
    with pytest.raises(UsageError, match="--rdzv-endpoint"):
        open_store("embedded", loop, Where())
    with pytest.raises(UsageError, match="certificates"):
        open_store("embedded", loop, Where(("host:1",), ca="/nowhere/ca.pem"))


def test_secrets_are_not_shown() -> None:
    where = Where(("host:1",), token=b"secret-1", user="ann", password="secret-2", options=(("x", "secret-3"),))
    assert "secret" not in repr(where)
    assert "secret" not in str(where)


def python(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


def test_without_its_library_etcd_says_what_to_install(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["etcd3gw"] = None
from planaria.base.loop import Loop
from planaria.errors import UsageError
from planaria.store.api import Where
from planaria.store.backends import open_store
try:
    open_store("etcd", Loop(), Where(("host:2379",)))
except UsageError as error:
    print(error)
"""
    done = python(tmp_path, code)
    assert done.stderr == ""
    assert "pip install 'planaria[etcd]'" in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_only_who_asks_for_etcd_imports_its_library_and_only_unknown_names_cost_metadata(tmp_path: Path) -> None:
    code = """
import sys
from planaria.base.loop import Loop
from planaria.store.api import Where
from planaria.store.backends import open_store
open_store("memory", Loop(), Where())
open_store("embedded", Loop(), Where(("127.0.0.1:1",)))
print([name for name in ("etcd3gw", "requests", "importlib.metadata", "asyncio", "ssl", "threading") if name in sys.modules])
"""
    done = python(tmp_path, code)
    assert done.stdout == "[]\n", done.stdout + done.stderr
