"""Wrong command lines of `planaria chaos`."""

from __future__ import annotations

from wrong_row import Row

TABLE: tuple[Row | str, ...] = (
    "planaria chaos",
    Row(
        ["--seed=7"],
        {},
        "planaria chaos expects the job behind its flags (planaria chaos [flags] -- SCRIPT [ARGS])",
        "chaos",
    ),
    Row(["--fault=3", "--", "ok.py"], {}, "planaria chaos has no flag '--fault' (--help lists them all)", "chaos"),
    Row(["--faults"], {}, "--faults expects a value, got nothing", "chaos"),
    Row(["--faults=0", "ok.py"], {}, "--faults expects a whole number from 1 to 100000, got '0'", "chaos"),
    Row(["--faults=many", "ok.py"], {}, "--faults expects a whole number from 1 to 100000, got 'many'", "chaos"),
    Row(["--seed=-1", "ok.py"], {}, "--seed expects a whole number from 0 to 9223372036854775807, got '-1'", "chaos"),
    Row(["--nodes=1", "ok.py"], {}, "--nodes expects a whole number from 2 to 64, got '1'", "chaos"),
    Row(
        ["--nproc-per-node=auto", "ok.py"],
        {},
        "--nproc-per-node expects a whole number from 1 to 256, got 'auto'",
        "chaos",
    ),
    Row(
        ["--kinds=kill-worker,flood", "ok.py"],
        {},
        "--kinds expects names that --help lists, separated by commas, got 'flood'",
        "chaos",
    ),
    Row(["--pace=soon", "ok.py"], {}, "--pace expects a number of seconds, got 'soon'", "chaos"),
    Row(["--time-limit=0", "ok.py"], {}, "--time-limit expects seconds from 1 to 1000000000, got '0'", "chaos"),
    Row(["--ttl=1", "ok.py"], {}, "--ttl expects seconds from 2 to 1000000000, got '1'", "chaos"),
    Row(["--networks=yes", "ok.py"], {}, "--networks takes no value, got 'yes'", "chaos"),
)
