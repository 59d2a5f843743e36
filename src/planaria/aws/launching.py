"""Check the flags of `planaria run` that a specs file gives, by the launcher's own reading of them. Pure.

A host only learns that a flag is wrong when it has booted. `--help` would even be a job that is done: it ends with 0.
"""

from __future__ import annotations

from planaria.base.value import replace
from planaria.errors import UsageError
from planaria.launch.devices import Counts
from planaria.launch.parse import Options, parse
from planaria.launch.plan import Machine, plan

_SCRIPT = "script.py"
# A machine that has everything: what is wrong on it is wrong on every host.
_ANY_MACHINE = Machine("python", 1, "run", accelerators=Counts(gpus=1, xpus=1, discrete_xpus=0))

_OURS = "which petctl sets itself"
_REFUSED = {
    **dict.fromkeys(
        (
            *("nnodes", "node_rank", "standalone", "local_addr", "master_addr", "master_port"),
            *("rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "tee"),
        ),
        _OURS,
    ),
    **dict.fromkeys(("help", "dry_run"), "with which nothing is run"),
    **dict.fromkeys(("module", "no_python"), "and what petctl ships is a Python script"),
    "exit_code": "and a script's own status could be one that tells hosts to start it again",
}


def problem_of(flag: str) -> str | None:
    """Return what is wrong with one flag, its value in the same text; None where hosts can be given it."""
    try:
        options = parse([flag, "--", _SCRIPT], {})
    except UsageError as problem:
        return f"has {flag!r}: {problem}"
    if options.training_script not in ("", _SCRIPT):  # a word that the launcher would run as the script
        return f"has {flag!r}, which is no flag, expected each with its value in one text, such as --max-restarts=3"
    refused = [why for dest, why in _REFUSED.items() if dest in options.given]
    return f"has {flag!r}, {refused[0]}, expected flags of one node" if refused else _wrong_value(flag, options)


def _wrong_value(flag: str, options: Options) -> str | None:
    # What only a host can tell: which of its CPUs are near, which packages are in the image.
    asked = replace(options, numa_binding=None, event_log_handler="null")
    try:
        plan(asked, {}, _ANY_MACHINE)
    except UsageError as problem:
        return f"has {flag!r}: {problem}"
    return None
