"""Write the text of `--help` from the table of flags. Plain text, 100 columns, no argparse."""

from __future__ import annotations

from planaria.contract.exit_status import SIGNAL_ROW, TABLE
from planaria.launch.flags import GROUPS, OURS, TORCHRUN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.launch.flags import Flag

_WIDTH = 100
_COLUMN = 40

_ABOUT = (
    "Start one training process per GPU or CPU on this node, alone or together with other nodes, restart them together "
    "when one fails or a node comes or goes, and say why. "
    "Takes every flag of torchrun, with dashes or underscores; a unique beginning of a torchrun flag is enough. "
    "Flags come before the script; what follows the script is the script's."
)

_EXAMPLES = (
    ("one worker per GPU, or per CPU where there is none", "--nproc-per-node=auto train.py --epochs=3"),
    (
        "restart up to 3 times; every worker's output in files and here",
        "--nproc-per-node=8 --max-restarts=3 -t3 train.py",
    ),
    ("a module instead of a file; keep the logs", "--nproc-per-node=2 --log-dir=logs -r3 -m my_project.train"),
    (
        "2 to 4 nodes, the same line on each; node-a is one of them",
        "--nnodes=2:4 --rdzv-backend=c10d --rdzv-endpoint=node-a --rdzv-id=job7 train.py",
    ),
    ("only show what would run", "--dry-run --nproc-per-node=4 train.py"),
)

_VARIABLES = (
    ("PET_<FLAG>", "sets a flag, e.g. PET_NPROC_PER_NODE=4; the command line wins; on/off flags take 1 or 0"),
    ("PLANARIA_TOKEN", "secret that all nodes of a job share; without it whoever reaches their ports can join"),
    ("PLANARIA_TOKEN_FILE", "file with that secret, not readable by everybody; workers see neither variable"),
    ("PLANARIA_ETCD_PASSWORD", "password of the user that --rdzv-conf=username=... names"),
    ("PYTHON_EXEC", "the interpreter of the workers, instead of the launcher's own"),
    ("OMP_NUM_THREADS", "set to 1 for the workers when there are several and you did not set it"),
    ("CUDA_VISIBLE_DEVICES", "counted by auto and gpu, dealt out by --virtual-local-rank"),
    ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "seconds, when --shutdown-timeout is not given"),
    ("TORCHELASTIC_HEALTH_CHECK_PORT", "port, when --health-check-port is not given"),
    ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "prefix of console lines: ${role_name}, ${rank}, ${local_rank}"),
)


def text(program: str = "planaria run") -> str:
    """Return the whole help text, ending in a newline."""
    lines = [f"usage: {program} [flags] script [arguments of the script]", "", *_wrapped(_ABOUT, 0)]
    for group in GROUPS:
        lines += ["", f"{group}:"]
        for flag in (*TORCHRUN, *OURS):
            if flag.group == group:
                lines += _row(_spelling(flag), _meaning(flag))
    lines += ["", "Examples:"]
    for what, command in _EXAMPLES:
        lines += [f"  # {what}", f"  {program} {command}"]
    lines += ["", "Variables:"]
    for name, what in _VARIABLES:
        lines += _row(name, what)
    lines += ["", "Exit statuses:"]
    for row in TABLE:
        lines += _row(f"{row.status:<5}  {row.name}", row.meaning)
    status, name, meaning = (part.strip() for part in SIGNAL_ROW.split("|"))
    lines += _row(f"{status:<5}  {name}", meaning)
    return "\n".join(lines) + "\n"


def _spelling(flag: Flag) -> str:
    names = ", ".join(name for name in flag.names if "_" not in name)
    value = "|".join(flag.choices) or flag.metavar
    if flag.kind == "optional":
        return f"{names}[={value}]"
    return f"{names} {value}" if value else names


def _meaning(flag: Flag) -> str:
    shown = flag.default not in (None, False, "", ())
    return f"{flag.help} (default {flag.default})" if shown else flag.help


def _row(left: str, right: str) -> list[str]:
    """Return a line in two columns, or two lines where the left one is too long."""
    lines = _wrapped(right, _COLUMN)
    if len(left) + 4 > _COLUMN:
        return [f"  {left}", *lines]
    return [f"  {left}".ljust(_COLUMN) + lines[0].lstrip(), *lines[1:]]


def _wrapped(paragraph: str, indent: int) -> list[str]:
    lines = [""]
    for word in paragraph.split():
        if lines[-1] and indent + len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [" " * indent + line for line in lines]
