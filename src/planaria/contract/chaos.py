"""What `planaria chaos` and a worker agree on: how a worker is asked, from outside, to misbehave.

A worker that finds the variable listens to a signal. When it comes, it reads a file that is called like its pid, deletes it and
does what is in it: a word and a number of seconds. `worker/chaos.py` has the same names, and a test compares them.
"""

from __future__ import annotations

ORDERS = "PLANARIA_CHAOS"
"""The variable with the folder of orders. Only `planaria chaos` sets it."""
SIGNAL = 61
"""SIGRTMAX-3 says that there is an order."""
HANG = "hang"
"""Sleep in the main thread."""
HOLD_GIL = "hold-gil"
"""Sleep in C without letting any other thread of Python run."""
