"""The `planaria` command: `planaria run`, what looks at runs and ends them, `doctor`, `chaos`, `k8s` and `operator`."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

USAGE = """\
usage: planaria COMMAND ...

  planaria run [FLAGS] SCRIPT [ARGS]   start and supervise the workers of a training job (torchrun's flags)
  planaria run --help                  every flag, with examples
  planaria status [FLAGS]              show a run: world, ranks, steps a second, restarts, what happened last
  planaria top [FLAGS]                 show it again and again
  planaria why [FLAGS]                 explain the last restart, or the end
  planaria logs [-f] [FLAGS]           show what its workers write
  planaria drain [FLAGS]               end a run on this node in good order; the other nodes go on
  planaria stop [FLAGS]                end a run on all of its nodes
  planaria health [FLAGS]              ask the agents on this node whether they are alive
  planaria doctor [FLAGS]              look for what keeps jobs from running well here, or between hosts
  planaria chaos [FLAGS] -- SCRIPT     strike a job of your own with faults, and say which promises it kept
  planaria dashboard [FLAGS]           serve a web page of your runs
  planaria k8s render [FLAGS] SCRIPT   print the Kubernetes manifests of an elastic job
  planaria operator VERB [FLAGS]       run or install the Kubernetes operator for PyTorchJobs
  planaria --version                   print the version
"""


def main() -> None:
    """Run the command and leave at once: tearing the interpreter down would cost 7 ms and do nothing for us."""
    leave(_dispatch, sys.argv[1:])


def leave(command: Callable[[list[str]], int], argv: list[str]) -> None:
    """Run a command and exit with its status; what nobody foresaw is printed whole, with status 70."""
    status = 70
    if not sys.flags.safe_path:
        del sys.path[0]  # `python -m` put the current directory there, where a user's json.py would stand in for ours
    try:
        status = command(argv)
    except KeyboardInterrupt:
        status = 130
    except BaseException:  # noqa: BLE001  the last door
        sys.excepthook(*sys.exc_info())
        _print(2, "planaria: this is a bug in planaria: please report it with the lines above\n", status)
    finally:
        os._exit(status)


def _dispatch(argv: list[str]) -> int:
    match argv:
        case ["--version" | "-V"]:
            from planaria import __version__

            return _print(1, f"planaria {__version__}\n", 0)
        case ["--help" | "-h" | "help"]:
            return _print(1, USAGE, 0)
        case []:
            return _print(2, USAGE, 2)
        case [command, *rest]:
            return _call(command, rest)
    raise AssertionError(argv)


def _call(command: str, rest: list[str]) -> int:
    """Call a command. Each imports what it needs, and nothing of the others."""
    match command:
        case "run":
            from planaria.launch.main import run

            return run(rest)
        case "drain" | "stop" | "health":
            from planaria.launch.main import order

            return order(command, rest)
        case "status" | "top" | "why" | "logs":
            from planaria.insight.main import look

            return look(command, rest)
        case "dashboard":
            from planaria.dashboard.main import dashboard

            return dashboard(rest)
        case "doctor":
            from planaria.doctor.main import doctor

            return doctor(rest)
        case "chaos":
            from planaria.chaos.main import chaos

            return chaos(rest)
        case "k8s":
            from planaria.kube.render import run as k8s

            return k8s(rest)
        case "operator":
            from planaria.kube.main import operator

            return operator(rest)
    return _print(2, f"planaria: there is no command {command[:80]!a}: try planaria --help\n", 2)


def _print(descriptor: int, text: str, status: int) -> int:
    try:
        os.write(descriptor, text.encode())
    except OSError:
        return status or 1
    return status


if __name__ == "__main__":
    main()
