"""Planaria: an elastic, fault-tolerant runtime for distributed training.

Nothing is imported here: `planaria run` starts in milliseconds, so every room is imported by whoever uses it.
"""

__version__ = "0.1.0"
