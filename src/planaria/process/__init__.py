"""Start processes, wait for them, carry their output, collect their errors, and leave none behind.

Reports what happened and does what it is told. It has no opinion about restarts: the agent decides.
"""
