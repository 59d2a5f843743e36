"""What every store has to keep, as tests. Inherit, say how your store is made, and let pytest collect it:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def make_store(self):
            return lambda loop: MyStore(loop, where)

        @pytest.fixture
        def forget_history(self):
            return lambda client: ...

Every store that one test makes must lead to the same data. Data of earlier tests may be there: each test has a prefix of
its own. Nothing is skipped; a store that cannot do one of these is not a store that Planaria can use.
"""

from __future__ import annotations

from planaria.testing.contract.clients import Clients
from planaria.testing.contract.keys import Keys
from planaria.testing.contract.leases import Leases
from planaria.testing.contract.watches import Watches


class StoreContract(Keys, Leases, Watches, Clients):
    """All of it. The fixtures `make_store` and `forget_history` are yours to define."""
