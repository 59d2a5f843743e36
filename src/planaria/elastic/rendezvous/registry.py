"""Handlers by name: ours, and those that other packages offer under the entry point group `torchrun.handlers`."""

from __future__ import annotations

from importlib.metadata import entry_points
from logging import getLogger
from typing import TYPE_CHECKING

from planaria.elastic.rendezvous.api import rendezvous_handler_registry as handler_registry

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from planaria.elastic.rendezvous.api import RendezvousHandler, RendezvousHandlerCreator, RendezvousParameters

__all__ = ["get_rendezvous_handler"]

log = getLogger(__name__)

GROUP = "torchrun.handlers"
"""An entry point of it names a function without arguments that returns a `RendezvousHandlerCreator`."""


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Return a handler for the backend that `params` name.

    Raises:
        ValueError: There is no such backend, it cannot be loaded, or it cannot use what `params` say.
    """
    return handler_registry.create_handler(params)


def register_all() -> None:
    """Make ours known, and then those of other packages that have names of their own."""
    for name in ("c10d", "embedded", "etcd-v2", "kubernetes"):
        handler_registry.register(name, _create_dynamic)
    handler_registry.register("etcd", _create_etcd)
    handler_registry.register("static", _create_static)
    for point in entry_points(group=GROUP):
        try:
            handler_registry.register(point.name, _Elsewhere(point))
        except ValueError as problem:  # no reason to be without the others
            log.warning("the rendezvous handler %r of %s is not used: %s", point.name, point.value, problem)


def _create_dynamic(params: RendezvousParameters) -> RendezvousHandler:
    from planaria.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

    return DynamicRendezvousHandler.from_parameters(params)


def _create_etcd(params: RendezvousParameters) -> RendezvousHandler:
    from planaria.elastic.rendezvous.etcd_rendezvous import create_rdzv_handler

    return create_rdzv_handler(params)


def _create_static(params: RendezvousParameters) -> RendezvousHandler:
    from planaria.elastic.rendezvous.static_tcp_rendezvous import create_rdzv_handler

    return create_rdzv_handler(params)


class _Elsewhere:
    """A creator of another package, which is loaded when it is asked for: a broken one hurts only those who want it."""

    def __init__(self, point: EntryPoint) -> None:
        self._point = point

    def __repr__(self) -> str:
        return self._point.value

    def __call__(self, params: RendezvousParameters) -> RendezvousHandler:
        return self._load()(params)

    def _load(self) -> RendezvousHandlerCreator:
        try:
            creator: RendezvousHandlerCreator = self._point.load()()
        except Exception as problem:  # a package of others may raise whatever it likes
            name, value = self._point.name, self._point.value
            raise ValueError(
                f"The rendezvous backend '{name}' of {value} cannot be loaded: {type(problem).__name__}: {problem}"
            ) from problem
        return creator
