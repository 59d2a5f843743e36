"""What others may see of an agent: its metrics, its events, and the HTTP door they are read through.

This room knows nothing of jobs: the agent hands it values, and it must not change any of them.
"""
