"""What launchers find first that run with `fences.early()`: a lease is half of its TTL, and not all but a second."""

import sys

if sys.orig_argv[1:4] == ["-m", "planaria", "run"]:
    from planaria.rendezvous.model import Settings

    Settings.lease_s = property(lambda settings: settings.ttl_s / 2)
