"""Wrong command lines of `planaria status`, `top`, `why` and `logs`."""

from __future__ import annotations

from wrong_row import Row

TABLE: tuple[Row | str, ...] = (
    "planaria status, top, why and logs",
    Row(["job7"], {}, "planaria status takes nothing but flags, got 'job7' (--help lists them all)", "status"),
    Row(["--follow"], {}, "planaria status has no flag '--follow' (--help lists them all)", "status"),
    Row(["--run-dir="], {}, "--run-dir expects a directory, got ''", "status"),
    Row(["--run-dir"], {}, "--run-dir expects a value, got nothing", "status"),
    Row(["--host=node-a"], {}, "--host expects a --port beside it, got none", "status"),
    Row(["--at=node-a"], {}, "--at expects HOST:PORT, got 'node-a'", "status"),
    Row(["--at=node-a:http"], {}, "--at expects HOST:PORT with a port up to 65535, got 'node-a:http'", "status"),
    Row(["--port=0"], {}, "--port expects a port from 1 to 65535, got '0'", "status"),
    Row(["--every=soon"], {}, "--every expects a number of seconds, got 'soon'", "top"),
    Row(["--every=0"], {}, "--every expects seconds from 0.1 to 3600, got '0'", "top"),
    Row(["--round=last"], {}, "--round expects the number of a round, got 'last'", "why"),
    Row(["--rank=0-3"], {}, "--rank expects ranks such as 0 or 0,3, got '0-3'", "logs"),
    Row(["--stream=both"], {}, "--stream expects stdout or stderr, got 'both'", "logs"),
    Row(["--lines=-1"], {}, "--lines expects a number of lines, got '-1'", "logs"),
)
