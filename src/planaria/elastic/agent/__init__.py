"""The agent under torch's names: what runs beside the workers of one node and starts them again.

`server` is the only part torch has, and the only one here.
"""
