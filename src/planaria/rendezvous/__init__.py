"""Who is in this round, and with which rank.

`leader.py` and `member.py` decide, `quorum.py`, `roll.py` and `ranks.py` count; they have no clock and no sockets.
`driver.py` gives them both. The whole protocol is in docs/protocol.md.
This room starts no process: it tells the agent when to stop and when to start.
"""
