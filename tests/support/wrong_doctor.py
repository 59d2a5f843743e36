"""Wrong command lines of `planaria doctor`."""

# ruff: noqa: E501  (a row is a command line and its sentence; both stay whole)
from __future__ import annotations

from wrong_row import Row

GROUPS = "dns, network, ports, clock, shm, limits, gpu, disk, system, environment"

TABLE: tuple[Row | str, ...] = (
    "planaria doctor",
    Row(["--fix"], {}, "planaria doctor has no flag '--fix' (--help lists them all)", "doctor"),
    Row(["node-a"], {}, "planaria doctor takes nothing but flags, got 'node-a' (--help lists them all)", "doctor"),
    Row(["--checks=luck"], {}, f"--checks expects all or some of {GROUPS}, got 'luck'", "doctor"),
    Row(["--checks=peers"], {}, f"--checks expects all or some of {GROUPS}, got 'peers'", "doctor"),
    Row(["--nproc-per-node=auto"], {}, "--nproc-per-node expects a number of workers, got 'auto'", "doctor"),
    Row(["--rdzv-endpoint=node a"], {}, "--rdzv-endpoint expects HOST or HOST:PORT, with brackets around an IPv6 address, got 'node a'", "doctor"),
    Row(["--peer=::1"], {}, "--peer expects HOST or HOST:PORT, with brackets around an IPv6 address, got '::1'", "doctor"),
    Row(["--peer=node-a,"], {}, "--peer expects HOST or HOST:PORT, with brackets around an IPv6 address, got ''", "doctor"),
    Row(["--rdzv-backend="], {}, "--rdzv-backend expects the name of a backend, got ''", "doctor"),
    Row(["--listen", "--peer=node-a"], {}, "--listen and --peer exclude each other: one host listens, the other looks", "doctor"),
    Row(["--port=5"], {}, "--port has a meaning with --listen only (a peer's port goes with it: HOST:PORT)", "doctor"),
    Row(["--listen", "--port=high"], {}, "--port expects a port from 0 to 65535, got 'high'", "doctor"),
    Row(["--timeout=soon"], {}, "--timeout expects a number of seconds, got 'soon'", "doctor"),
    Row(["--timeout=0"], {}, "--timeout expects seconds from 0.1 to 1000000000, got '0'", "doctor"),
    Row(["--json=1"], {}, "--json takes no value, got '1'", "doctor"),
)  # fmt: skip
