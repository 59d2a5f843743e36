"""The torchrun-compatible command line: what the user wrote becomes one checked `agent.model.Job`.

`flags.py` is the table of flags, `parse.py` reads argv, `script.py` looks at files, `plan.py` decides, `main.py` wires.
Several nodes: `meeting.py` decides how they meet, `conf.py` reads `--rdzv-conf`, `credentials.py` finds the token.
torchrun's words (`nnodes`, `rdzv_*`) end here: no other room knows them. Whatever is wrong with a command line is
found here, before anything starts, and told in one sentence with exit status 2.

Must not start processes, import torch, or read the environment outside `main.py`. What the default path imports is
counted in milliseconds: help, device counting, NUMA, dry-run and everything about other nodes are imported only when a
flag asks for them.
"""
