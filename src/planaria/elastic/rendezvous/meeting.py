"""What a handler is made from becomes the description of a meeting, the same that `planaria run` makes of its flags. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planaria.agent import conf
from planaria.agent.settings import Meeting
from planaria.base.addresses import join_address
from planaria.contract.env import PASSWORD_VARIABLE
from planaria.elastic.rendezvous.utils import parse_rendezvous_endpoint
from planaria.errors import UsageError

if TYPE_CHECKING:
    from planaria.agent.conf import Conf, Credentials, Pairs
    from planaria.elastic.rendezvous.api import RendezvousParameters

SOURCE = "the rendezvous configuration option"
_LONGEST_RUN_ID = 255  # it becomes part of keys and file names, as in `planaria run`
_WITH_A_STORE = ("etcd", "kubernetes")
_TIMEOUT_IS_TO_JOIN = ("etcd", "static")  # where torch's `timeout` is the time to find the others


def meeting_of(params: RendezvousParameters, credentials: Credentials, kind: str = "") -> Meeting | None:
    """Return the meeting that `params` describe; None for a node that has nobody to meet.

    `kind` is what the backend is, whatever `params` call it.

    Raises:
        ValueError: One sentence that names what is wrong, in torch's words where torch has them.
    """
    backend = kind or conf.BACKENDS[params.backend]
    if not 0 < len(params.run_id) <= _LONGEST_RUN_ID:
        raise ValueError(
            "The run id must be a non-empty string."
            if not params.run_id
            else f"The run id must be a string of at most {_LONGEST_RUN_ID} characters."
        )
    try:
        settled = conf.settle(_settings(params, backend, credentials), backend)
    except UsageError as problem:
        raise ValueError(str(problem)) from problem
    if params.max_nodes == 1 and backend not in _WITH_A_STORE:
        return None
    return _described(params, backend, settled, credentials)


def _described(params: RendezvousParameters, backend: str, settled: Conf, credentials: Credentials) -> Meeting:
    return Meeting(
        backend=backend,
        endpoints=_endpoints(params, backend),
        run_id=params.run_id,
        min_nodes=params.min_nodes,
        max_nodes=params.max_nodes,
        node_rank=_node_rank(params) if backend == "static" else None,
        local_addr=params.local_addr,
        token=credentials.token,
        ttl_s=settled.ttl_s,
        quiet_s=settled.quiet_s,
        join_timeout_s=settled.join_timeout_s,
        options=settled.options,
    )


def _settings(params: RendezvousParameters, backend: str, credentials: Credentials) -> Pairs:
    given = conf.known_of(params.config, SOURCE)
    if params.backend in _TIMEOUT_IS_TO_JOIN and "timeout" in given:
        given.setdefault("join_timeout", given["timeout"])
    if backend == "etcd" and credentials.etcd_password is not None and "username" in given:
        given.setdefault("password", (credentials.etcd_password, PASSWORD_VARIABLE))
    if backend == "kubernetes" and credentials.kube_server:
        given.setdefault("server", (credentials.kube_server, "KUBERNETES_SERVICE_HOST"))
    if str(params.get("store_type", "tcp")).strip().lower() != "tcp":
        raise UsageError(f"{SOURCE} 'store_type' must be 'tcp': agents do not meet in files")
    return given


def _endpoints(params: RendezvousParameters, backend: str) -> tuple[str, ...]:
    if backend == "kubernetes":
        return (params.endpoint.strip(),)
    found: dict[str, None] = {}
    for part in params.endpoint.split(","):
        host, port = parse_rendezvous_endpoint(part, conf.DEFAULT_PORTS.get(backend, 0))
        if port == 0:
            raise ValueError(
                f"The port number of the rendezvous endpoint '{part.strip()}' must be one that every node knows."
            )
        found[join_address(host, port)] = None
    return tuple(found)


def _node_rank(params: RendezvousParameters) -> int:
    rank = params.get_as_int("rank")
    if rank is None or not 0 <= rank < params.max_nodes:
        raise ValueError(f"{SOURCE} 'rank' must be a number from 0 to {params.max_nodes - 1}, got {rank}.")
    return rank
