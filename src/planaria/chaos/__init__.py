"""The fault kit: strike a training job of one's own, one seeded fault after the other, and say which promises it kept.

What is struck when is planned by a pure function of the seed, and judged by a pure function of what was seen; drivers start
the nodes, strike and watch. This room stands above the launcher and uses it as any user does: by its command line, its events
and its door. Nothing that trains imports it, and it never touches a process that it has not started.
"""
