"""A small store of keys with revisions, leases and watches: what agents agree through when no leader can be asked.

`model.py` has requests and replies, `machine.py` decides what they mean, `api.py` is the door that callers use; the rest
are backends behind that door. One contract (`planaria.testing.store_contract`) holds for all of them, so that no caller
asks which one it has. This room knows nothing of rounds, ranks or agents. See docs/store.md.
"""
