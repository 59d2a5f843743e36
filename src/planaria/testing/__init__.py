"""What we test ourselves with, for those who extend Planaria. Stands above every room; nothing of ours imports it.

`store_contract` is the suite that every store has to pass; it needs pytest, which this package does not install.
"""
