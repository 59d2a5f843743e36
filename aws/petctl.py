#!/usr/bin/env python3
"""`petctl` from a checkout, with nothing installed but boto3: `python3 petctl.py run_job ...`."""

import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036  it is the Python of whoever types, and nothing has been installed
    sys.exit("petctl: this is Python {}.{}, and 3.11 or newer is needed".format(*sys.version_info))
sys.path[0] = str(Path(__file__).resolve().parents[1] / "src")  # in the place of this folder

from planaria.aws.main import main  # noqa: E402  the line above finds it

main()
