"""`planaria doctor`: what about this machine, or between two of them, would keep a job from running well.

`look_*.py` gather facts and judge nothing; every other file is checks: facts in, findings out, pure. It only looks: nothing
here changes a setting, needs a library or starts a job. It runs as a process of its own, also for `--preflight`: a disk or a
name server that hangs then hangs nothing but the check of it.
"""
