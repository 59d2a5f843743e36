"""Domain-free tools: immutable values, the event loop, signals, safe text, atomic files.

Knows nothing of training, workers or jobs. Everything here is imported by a one-node launch before the first worker
starts, so it must not import `enum`, `re`, `typing`, `json`, `signal` or `socket` at module level (6-12 ms each).
"""
