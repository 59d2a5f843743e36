"""The contract of a store by subject. `planaria.testing.store_contract` puts the parts together; inherit from that."""
