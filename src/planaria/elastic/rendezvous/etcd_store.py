"""torch's Store in etcd, under torch's names. etcd keeps what is written until somebody deletes it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from planaria.elastic.store import Store, StoreTimeout
from planaria.elastic.store.api import rest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.elastic.store.client import Client

_CAS_DELAY_S = 0.1


def cas_delay() -> None:
    """Pause for a random moment of at most a tenth of a second, before a change that somebody else's forestalled."""
    rest(_CAS_DELAY_S)


class EtcdStore(Store):
    """A store under a prefix of etcd; `etcd_client` as `etcd_rendezvous_backend.create_backend` makes it."""

    def __init__(self, etcd_client: Client, etcd_store_prefix: str, timeout: timedelta | None = None) -> None:
        self.client = etcd_client
        self.prefix = etcd_store_prefix if etcd_store_prefix.endswith("/") else f"{etcd_store_prefix}/"
        super().__init__(etcd_client, self.prefix, timeout)

    def get(self, key: str) -> bytes:
        """Return the value of a key once there is one.

        Raises:
            LookupError: There was none in time.
        """
        try:
            return super().get(key)
        except StoreTimeout as problem:
            raise LookupError(f"Key {key} not found in EtcdStore") from problem

    def add(self, key: str, num: int) -> int:
        """Add to a number, which is 0 as long as there is none, and return what it is then."""
        return super().add(key, num)

    def wait(self, keys: Sequence[str], override_timeout: timedelta | None = None) -> None:
        """Return once all keys are there.

        Raises:
            LookupError: Some were not in time.
        """
        try:
            super().wait(keys, override_timeout)
        except StoreTimeout as problem:
            raise LookupError("Timeout while waiting for keys in EtcdStore") from problem
