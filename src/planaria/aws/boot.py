"""User data: the one bash script a host runs at every boot, made from templates and from what the host is told. No clock.

Values go into a quoted here-document as `name=value` lines, where no shell expands them; so a value is one line of text,
and that is all that has to be checked. What the scripts do is in `templates/*.sh` and in docs/aws-hosts.md.
"""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import TYPE_CHECKING

from planaria.aws.hosts import (
    DRAIN_HOOK,
    EFS_FOLDER,
    MAX_REPLACED,
    MAX_RESTARTS,
    NODES_NAME,
    NODES_PORT,
    READY_HOOK,
    STORE_NAME,
    STORE_PORT,
    run_key,
)
from planaria.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.aws.hosts import StoreHost, WorkerHost

_LEAVE_S = 15  # of the grace: to hear of the notice's order, to end the container, to say goodbye to the group
_PLACE = re.compile(r"@([a-z_]+)@")
_NOTE = re.compile(r"(?:^|[ \t])# (?!shellcheck).*$", re.MULTILINE)
_MARGIN = re.compile(r"^[ \t]*\n|^[ \t]+", re.MULTILINE)


def worker_user_data(host: WorkerHost) -> str:
    """Return the script of a host that runs a container of the job. Raises UsageError for what no script can hold."""
    settings = {
        "job": host.job,
        "run": host.run,
        "region": host.region,
        "bucket": host.bucket,
        "folder": run_key(host.prefix, host.job, host.run, ""),
        "result_head": json.dumps({"version": 1, "job": host.job, "run": host.run})[:-1],
        "image": host.image,
        "gpus": "yes" if host.gpus else "no",
        "worker_group": host.worker_group,
        "store_group": host.store_group or "",
        "log_group": host.log_group,
        "token_parameter": host.token_parameter,
        "size": str(host.size),
        "efs_id": host.efs_id or "",
        "commits": f"{EFS_FOLDER}/planaria/{host.job}/{host.run}" if host.efs_id else "",
        "shm_gb": str(host.shm_gb or ""),
        "grace_s": str(host.grace_s),
        "shutdown_timeout_s": str(max(host.grace_s - _LEAVE_S, 1)),
        "endpoint": host.endpoint or "",
    }
    return _script("worker", "it runs one container of the job", settings)


def store_user_data(host: StoreHost) -> str:
    """Return the script of a host that runs etcd. Raises UsageError for what no script can hold."""
    settings = {
        "job": host.job,
        "run": host.run,
        "region": host.region,
        "store_group": host.store_group,
        "etcd_url": host.etcd_url,
        "etcd_sha256": host.etcd_sha256,
        "endpoint": host.endpoint or "",
    }
    return _script("store", "it runs etcd", settings)


def _script(name: str, kind: str, settings: Mapping[str, str]) -> str:
    fixed = {
        "kind": kind,
        "settings": "\n".join(f"{key}={_line(key, value)}" for key, value in settings.items()),
        "efs_folder": EFS_FOLDER,
        "nodes_name": NODES_NAME,
        "nodes_port": str(NODES_PORT),
        "store_name": STORE_NAME,
        "port": str(STORE_PORT),
        "ready_hook": READY_HOOK,
        "drain_hook": DRAIN_HOOK,
        "max_restarts": str(MAX_RESTARTS),
        "max_replaced": str(MAX_REPLACED),
    }
    # The head says what this file is; all other notes, and the margin, stay in the templates, for EC2 takes 16 KiB.
    head, begin, rest = (_template("common") + _template(name)).partition("set -euo pipefail\n")
    # One pass: what stands in a value is never taken for a place.
    return _PLACE.sub(lambda found: fixed[found[1]], head + begin + _pressed(rest))


def _pressed(text: str) -> str:
    return _MARGIN.sub("", _NOTE.sub("", text))


def _line(name: str, value: str) -> str:
    if any(not char.isprintable() for char in value):
        raise UsageError(f"{name} expects one line of printable text, got {value!r}")
    return value


def _template(name: str) -> str:
    return resources.files("planaria.aws").joinpath("templates", f"{name}.sh").read_text(encoding="utf-8")
