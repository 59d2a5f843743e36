"""Wrong command lines of `planaria drain` and `planaria stop`."""

from __future__ import annotations

from wrong_row import Row

TABLE: tuple[Row | str, ...] = (
    "planaria drain and planaria stop",
    Row(["--force"], {}, "planaria drain has no flag '--force' (--help lists them all)", "drain"),
    Row(["--drain"], {}, "planaria drain has no flag '--drain' (--help lists them all)", "drain"),
    Row(["job7"], {}, "planaria stop takes nothing but flags, got 'job7' (--help lists them all)", "stop"),
    Row(["--json=1"], {}, "--json takes no value, got '1'", "drain"),
    Row(["--run-id"], {}, "--run-id expects a value, got nothing", "drain"),
    Row(["--port=0"], {}, "--port expects a port from 1 to 65535, got '0'", "drain"),
    Row(["--port=http"], {}, "--port expects a port from 1 to 65535, got 'http'", "stop"),
    Row(["--pid=me"], {}, "--pid expects the pid of a launcher, got 'me'", "drain"),
    Row(["--host=node-a"], {}, "--host expects a --port beside it, got none", "drain"),
    Row(["--port=80", "--host=my host"], {}, "--host expects a host name or an IP address, got 'my host'", "drain"),
    Row(["--timeout=soon"], {}, "--timeout expects a number of seconds, got 'soon'", "drain"),
    Row(["--timeout=-1"], {}, "--timeout expects seconds from 0 to 1000000000, got '-1'", "stop"),
    Row(["--grace=5"], {}, "--grace has a meaning with --drain only", "stop"),
    Row(["--drain", "--grace=nan"], {}, "--grace expects seconds from 0 to 1000000000, got 'nan'", "stop"),
    Row(
        [],
        {"TORCHELASTIC_HEALTH_CHECK_PORT": "eighty"},
        "TORCHELASTIC_HEALTH_CHECK_PORT expects a port from 0 to 65535, got 'eighty'",
        "drain",
    ),
)
