"""The store that the agents of one round share, with the methods of torch's Store that an agent calls.

`thread.py` runs a loop beside callers that block, `client.py` asks a store on it, `api.py` is the object with torch's methods.
What is stored is bytes and stays bytes: nothing that came over a network is ever unpickled.
"""

from __future__ import annotations

from planaria.elastic.store.api import DistNetworkError, DistStoreError, Store, StoreTimeout

__all__ = ["DistNetworkError", "DistStoreError", "Store", "StoreTimeout"]
