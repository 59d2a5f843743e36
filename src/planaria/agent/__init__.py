"""Keep one node's worker group alive: decide in `machine.py`, act in `driver.py`, explain in `report.py`.

Never imports torch, and does not know command lines: the launcher hands it a `Job`.
"""
