"""`planaria operator`: read the command line, do what the verb says, map errors to exit statuses."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import shlex
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from planaria.base.files import tell
from planaria.contract import exit_status
from planaria.errors import PlanariaError
from planaria.kube.flags import Help, read

if TYPE_CHECKING:
    from planaria.kube.api import Api
    from planaria.kube.model import Json

_LACKS = "planaria operator needs `pip install 'planaria[kubernetes]'`"


def operator(argv: Sequence[str]) -> int:
    """Do what a command line says; return the exit status."""
    try:
        asked = read(argv)
        if asked.verb == "install" and asked.dry_run:
            return _dry_run(asked, argv)
        return asyncio.run(_do(asked, dict(os.environ)))
    except Help as text:
        _show(str(text))
        return exit_status.DONE
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("kubernetes_asyncio", "aiohttp"):
            raise
        _complain(_LACKS)
        return exit_status.USAGE
    except BrokenPipeError:  # planaria operator install --dry-run | head
        return exit_status.DONE
    except (PlanariaError, OSError) as problem:  # the last: an address that is taken, a file that cannot be read
        _complain(str(problem))
        return exit_status.of_error(problem)


async def _do(asked: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from planaria.kube.api import connect

    in_cluster = not asked.kubeconfig and not environ.get("KUBECONFIG") and "KUBERNETES_SERVICE_HOST" in environ
    kubeconfig = asked.kubeconfig or environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
    api = await connect(kubeconfig, asked.context, in_cluster=in_cluster)
    try:
        match asked.verb:
            case "run":
                return await _run(api, asked, in_cluster=in_cluster)
            case "install":
                return await _install(api, asked)
            case _:
                return await _uninstall(api, asked)
    finally:
        await api.close()


async def _run(api: Api, asked: argparse.Namespace, *, in_cluster: bool) -> int:
    """Run the operator until it loses its Lease, or is told to end."""
    from planaria.kube.installation import NAMESPACE
    from planaria.kube.operator import Means, Operator, Settings
    from planaria.kube.tenure import Terms
    from planaria.store.kubernetes_account import own_namespace

    name = socket.gethostname()
    settings = Settings(
        identity=asked.identity or (name if in_cluster else f"{name}-{secrets.token_hex(4)}"),
        lease=asked.lease or (own_namespace(NAMESPACE), "planaria-operator"),
        namespaces=tuple(dict.fromkeys(asked.namespace)),
        host=asked.host,
        port=asked.port,
        dashboard_port=asked.dashboard_port,
        tasks=asked.tasks,
        metrics_every_s=asked.metrics_interval,
        terms=Terms.of(asked.lease_duration),
    )
    means = Means(_complain, time.time, lambda: secrets.token_urlsafe(32), random.random)
    running = asyncio.ensure_future(Operator(api, settings, means).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        return exit_status.DONE
    return exit_status.DONE


def _objects(asked: argparse.Namespace) -> tuple[Json, ...]:
    from planaria.kube.crd import definition
    from planaria.kube.installation import Install, objects

    flags = tuple(getattr(asked, "flag", ()))
    image, replicas = getattr(asked, "image", "-"), getattr(asked, "replicas", 1)
    policy = getattr(asked, "pull_policy", "IfNotPresent")
    return objects(Install(image, asked.namespace, replicas, policy, flags, tuple(asked.jobs_in)), definition())


def _dry_run(asked: argparse.Namespace, argv: Sequence[str]) -> int:
    from planaria.kube.yaml_text import documents

    made = _objects(asked)
    comments = [f"planaria operator {shlex.join(argv)}", *[""] * len(made)]  # the first line says how to make it anew
    text = documents(zip(comments, made, strict=False))
    _show("".join(json.dumps(obj) + "\n" for obj in made) if asked.json else text)
    return exit_status.DONE


async def _install(api: Api, asked: argparse.Namespace) -> int:
    from planaria.kube.install import apply, wait
    from planaria.kube.installation import NAME

    say = _as_json if asked.json else _line
    await apply(api, _objects(asked), say)
    if not asked.no_wait:
        await wait(api, asked.namespace, NAME, asked.timeout, _complain)
    return exit_status.DONE


async def _uninstall(api: Api, asked: argparse.Namespace) -> int:
    from planaria.kube.install import remove

    await remove(api, _objects(asked), _as_json if asked.json else _line)
    return exit_status.DONE


def _line(name: str, result: str) -> None:
    _show(f"{name} {result}\n")


def _as_json(name: str, result: str) -> None:
    _show(json.dumps({"object": name, "result": result}) + "\n")


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _complain(text: str) -> None:
    tell(2, "".join(f"planaria: {line}\n" for line in text.split("\n")))
