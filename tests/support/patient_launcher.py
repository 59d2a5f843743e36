"""A launcher whose agent gives its workers more time to show their stacks, for who has to see them on a busy machine.

python patient_launcher.py ... run FLAGS script
"""

import sys

from planaria.agent import machine
from planaria.launch.main import run
from planaria.process import turns

if __name__ == "__main__":
    machine.LOOK_S = 3.0
    turns.TURN_S, turns.QUIET_S = 2.0, 0.4
    sys.exit(run(sys.argv[sys.argv.index("run") + 1 :]))
