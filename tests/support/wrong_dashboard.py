"""Wrong command lines of `planaria dashboard`."""

from __future__ import annotations

from wrong_row import Row

TABLE: tuple[Row | str, ...] = (
    "planaria dashboard",
    Row(["--open"], {}, "planaria dashboard has no flag '--open' (--help lists them all)", "dashboard"),
    Row(["runs"], {}, "planaria dashboard takes nothing but flags, got 'runs' (--help lists them all)", "dashboard"),
    Row(["--port=http"], {}, "--port expects a port from 0 to 65535, got 'http'", "dashboard"),
    Row(["--port=65536"], {}, "--port expects a port from 0 to 65535, got '65536'", "dashboard"),
    Row(["--port=1", "--port=2"], {}, "--port was given twice", "dashboard"),
    Row(["--host=my host"], {}, "--host expects a host name or an IP address, got 'my host'", "dashboard"),
    Row(["--at=node-a"], {}, "--at expects HOST:PORT, got 'node-a'", "dashboard"),
    Row(["--run-dir="], {}, "--run-dir expects a directory, got ''", "dashboard"),
    Row(["--run-dir"], {}, "--run-dir expects a value, got nothing", "dashboard"),
    Row(
        ["--host=0.0.0.0"],
        {},
        "--host expects 127.0.0.1, ::1 or localhost where there is no token (set PLANARIA_TOKEN)",
        "dashboard",
    ),
)
