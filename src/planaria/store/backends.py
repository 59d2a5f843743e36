"""Backends by name: ours, and those that other packages offer under the entry point group `planaria.stores`.

An entry point names a callable `(loop, where) -> Store`. It must keep the contract in `planaria.testing.store_contract`.
"""

from __future__ import annotations

from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from planaria.base.loop import Loop
    from planaria.store.api import Store, Where

    Factory = Callable[[Loop, Where], Store]

GROUP = "planaria.stores"


def open_store(name: str, loop: Loop, where: Where) -> Store:
    """Return a client of the store of this kind. It connects in its own time; nothing is waited for here.

    Raises:
        UsageError: There is no such backend, it lacks its library, or it cannot use what `where` says.
    """
    return (_OURS.get(name) or _from_elsewhere(name))(loop, where)


def _memory(loop: Loop, _where: Where) -> Store:
    from planaria.store.memory import MemoryStore

    return MemoryStore(loop)


def _embedded(loop: Loop, where: Where) -> Store:
    from planaria.store.client import RemoteStore

    if not where.endpoints:
        raise UsageError("the embedded store needs an endpoint", hint="--rdzv-endpoint=host:29400")
    return RemoteStore(loop, where.endpoints, token=where.token, tls=_tls(where))


def _etcd(loop: Loop, where: Where) -> Store:
    from planaria.store.etcd import EtcdStore

    return EtcdStore(loop, where)


def _kubernetes(loop: Loop, where: Where) -> Store:
    from planaria.store.kubernetes import KubernetesStore

    return KubernetesStore(loop, where)


_OURS: dict[str, Factory] = {"memory": _memory, "embedded": _embedded, "etcd": _etcd, "kubernetes": _kubernetes}


def _tls(where: Where) -> SSLContext | None:
    """Return how to check the server's certificate and show ours; None when no file was named."""
    if not where.ca and not where.cert:
        return None
    import ssl

    try:
        context = ssl.create_default_context(cafile=where.ca or None)
        if where.cert:
            context.load_cert_chain(where.cert, where.key or None)
    except OSError as exc:  # SSLError is one
        raise UsageError(f"the certificates cannot be read: {exc}") from exc
    return context


def _from_elsewhere(name: str) -> Factory:
    from importlib.metadata import entry_points

    found = entry_points(group=GROUP)
    if name not in found.names:
        known = ", ".join(sorted({*_OURS, *found.names}))
        raise UsageError(f"there is no store called {name!r}", hint=f"installed are {known}")
    point = found[name]
    try:
        factory: Factory = point.load()
    except (ImportError, AttributeError) as exc:
        raise UsageError(f"the store {name!r} of {point.value} cannot be loaded: {exc}") from exc
    return factory
