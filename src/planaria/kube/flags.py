"""The command line of `planaria operator`. Pure: words in, values or one sentence out."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from planaria.errors import UsageError
from planaria.kube import installation
from planaria.kube.names import LABEL

if TYPE_CHECKING:
    from collections.abc import Sequence

HELP = """\
usage: planaria operator VERB [FLAGS]

  run         run the operator: keeps PyTorchJobs (training.kubedl.io/v1alpha1) alive and lets them grow while it pays
  install     put it into a cluster: namespace, CRD, account, permissions, Deployment, Service
  uninstall   take it out again; jobs, their definition and the namespace stay

planaria operator VERB --help has the flags of a verb, with examples. Exit statuses: 0 done, 2 bad input, 69 the API server
refused or did not answer, or another operator took over, 71 a port or file cannot be used, 130 after Ctrl-C (what was
applied stays, and the same command goes on from there). It needs `pip install 'planaria[kubernetes]'`.
"""

_CLUSTER = """
Everywhere:
  --kubeconfig FILE        credentials (default KUBECONFIG, then the pod's own, then ~/.kube/config)
  --context NAME           of that file (default its current one)
"""

RUN_HELP = (
    """\
usage: planaria operator run [FLAGS]

Several may run: one holds the Lease and acts, the others stand by.

  --namespace NAME         look after the jobs of this namespace; may be repeated (default all)
  --lease NAMESPACE/NAME   by which one of several acts (default the pod's own namespace, or planaria-system, and
                           planaria-operator)
  --identity NAME          who this is in the Lease (default the host's name, outside a pod with a random end); a process
                           that says the same takes over at once, so the one before must be dead
  --lease-duration S       how long the Lease lasts without being renewed (default 15)
  --host ADDRESS           where health and metrics are served (default everywhere)
  --port PORT              the same (default 8080; 0 for a free one)
  --tasks N                jobs looked at at the same time (default 8)
  --metrics-interval S     between two looks at the log of a job whose agents push no metrics (default 10)
"""
    + _CLUSTER
    + """
Examples:
  planaria operator run
  planaria operator run --kubeconfig ~/.kube/config --namespace elastic-job --port 0
"""
)

INSTALL_HELP = (
    """\
usage: planaria operator install --image IMAGE [FLAGS]

Apply everything the operator needs, and wait until it is ready. The same command again changes what is different; a newer
version is installed in the same way.

  --image IMAGE            that has planaria[kubernetes], such as one made from our Dockerfile
  --namespace NAME         where the operator lives (default planaria-system)
  --jobs-in NAMESPACE      look after the jobs of this namespace only, with a Role there instead of a ClusterRole; may be
                           repeated
  --replicas N             operators; one acts, the others stand by (default 2)
  --pull-policy POLICY     Always, IfNotPresent (default) or Never
  --flag=FLAG              one more flag for `planaria operator run`, such as --flag=--metrics-interval=30; may be repeated
  --dry-run                print what would be applied as YAML (with --json as JSON), ask nothing
  --no-wait                return when all is applied
  --timeout S              how long to wait (default 180)
  --json                   print a line of JSON for each object
"""
    + _CLUSTER
    + """
Examples:
  planaria operator install --image registry.example.com/planaria:0.1.0
  planaria operator install --image registry.example.com/planaria:0.1.0 --dry-run | kubectl diff -f -
  planaria operator install --image registry.example.com/planaria:0.1.0 --namespace=vision --jobs-in=vision
"""
)

UNINSTALL_HELP = (
    """\
usage: planaria operator uninstall [FLAGS]

Delete the operator, its account and its permissions. Jobs go on without it; their definition and the namespace stay.

  --namespace NAME         where the operator lives (default planaria-system)
  --jobs-in NAMESPACE      as it was installed with; may be repeated
  --json                   print a line of JSON for each object
"""
    + _CLUSTER
    + """
Examples:
  planaria operator uninstall
  planaria operator uninstall --namespace=vision --jobs-in=vision
"""
)

HELP_OF = {"run": RUN_HELP, "install": INSTALL_HELP, "uninstall": UNINSTALL_HELP}


class Help(Exception):
    """Somebody asked for help; the text is the argument."""


def read(argv: Sequence[str]) -> argparse.Namespace:
    """Read a command line; the verb is in `.verb`.

    Raises:
        Help: Help was asked for.
        UsageError: A word is wrong; the message names it and what was expected.
    """
    verb, rest = (argv[0], argv[1:]) if argv else ("", ())
    if verb in ("--help", "-h", "help"):
        raise Help(HELP)
    if verb not in HELP_OF:
        raise UsageError(
            f"planaria operator expects run, install or uninstall, got {verb!a}", hint="planaria operator --help"
        )
    if any(word in ("--help", "-h") for word in rest):
        raise Help(HELP_OF[verb])
    found = _parser(verb).parse_args(rest)
    found.verb = verb
    if verb == "install":
        handed = _parser("run").parse_args(found.flag)  # or pods would say it, one by one, to nobody
        if found.jobs_in and (handed.namespace or handed.lease):
            raise UsageError(
                "--jobs-in makes the Roles for its namespaces and for the Lease: --flag cannot name others by --namespace "
                "or --lease",
                hint="planaria operator install --help",
            )
    return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"{self.prog} --help")


def _parser(verb: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=f"planaria operator {verb}", add_help=False, allow_abbrev=False)
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--context", default="")
    if verb == "run":
        _add_run(parser)
        return parser
    parser.add_argument("--namespace", type=_label, default=installation.NAMESPACE)
    parser.add_argument("--jobs-in", type=_label, action="append", default=[])
    parser.add_argument("--json", action="store_true")
    if verb == "install":
        _add_install(parser)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", type=_label, action="append", default=[])
    parser.add_argument("--lease", type=_lease, default=None)
    parser.add_argument("--identity", default="")
    parser.add_argument("--lease-duration", type=_at_least(1), default=15.0)
    parser.add_argument("--host", default="")
    parser.add_argument("--port", type=_port, default=installation.PORT)
    parser.add_argument("--tasks", type=_count, default=8)
    parser.add_argument("--metrics-interval", type=_at_least(1), default=10.0)


def _add_install(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--image", type=_image, required=True)
    parser.add_argument("--replicas", type=_count, default=2)
    parser.add_argument("--pull-policy", choices=("Always", "IfNotPresent", "Never"), default="IfNotPresent")
    parser.add_argument("--flag", action="append", default=[])
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--no-wait", action="store_true")
    parser.add_argument("--timeout", type=_at_least(1), default=180.0)


def _label(text: str) -> str:
    if LABEL.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"expected a name of lower-case letters, digits and dashes, got {text!a}")
    return text


def _lease(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not slash:
        raise argparse.ArgumentTypeError(f"expected NAMESPACE/NAME, got {text!a}")
    return _label(namespace), _label(name)


def _image(text: str) -> str:
    if not text or text.split() != [text]:
        raise argparse.ArgumentTypeError(f"expected an image such as registry.example.com/planaria:0.1.0, got {text!a}")
    return text


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text!a}")
    return int(text)


def _count(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= 64):
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 64, got {text!a}")
    return int(text)


class _at_least:  # noqa: N801  reads as a type of a flag
    def __init__(self, least: float) -> None:
        self._least = least

    def __call__(self, text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = float("nan")
        if not self._least <= found <= 86400:
            raise argparse.ArgumentTypeError(f"expected seconds, at least {self._least:g}, got {text!a}")
        return found
