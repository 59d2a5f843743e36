"""Decide how the nodes of a job meet: the outcome of `--nnodes`, `--node-rank`, the `--rdzv-*` flags and the token. Pure.

Only a run of several nodes, or one with a store of its own, loads this module. The same words on every node give the same
meeting, so that the same command line works everywhere.
"""

from __future__ import annotations

from planaria.agent import conf
from planaria.agent.conf import BACKENDS
from planaria.agent.settings import Meeting
from planaria.agent.trust import OPEN_DOOR, is_trusting, is_within_host
from planaria.base.usage import quoted
from planaria.base.value import Value
from planaria.contract.env import PASSWORD_VARIABLE
from planaria.errors import UsageError
from planaria.launch import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.agent.conf import Credentials
    from planaria.launch.parse import Options

PLUGIN_GROUP = "planaria.stores"
HANDLER_GROUP = "torchrun.handlers"
URL_SCHEME = "etcd://"
_HIGHEST_PORT = 65535
_LONGEST_RUN_ID = 255  # it becomes part of keys and file names
_LONGEST_OBJECT_NAME = 253  # Kubernetes' own limit
_ONLY_OURS = (
    "report_file",
    "run_dir",
    "always_restart",
    "no_bootstrap",
    "resize_grace",
    "on_lost_majority",
    "snapshot_dir",
    "snapshot_keep",
    "snapshot_buddy",
    "standbys",
    "preflight",
    "preflight_cooldown",
    "hang_floor",
    "hang_policy",
    "progress_pattern",
    "stall_restarts",
)
_OPEN_PASSWORD = "a password on a command line can be read by others on this machine"  # noqa: S105  (what is said of it)


class Arranged(Value):
    """The meeting, and what the user should be told once before."""

    meeting: Meeting
    notices: tuple[str, ...]


class Asked(Value):
    """A meeting that a handler of another package holds. What its settings mean is the handler's to know."""

    backend: str
    endpoint: str
    run_id: str
    min_nodes: int
    max_nodes: int
    settings: Mapping[str, str]
    notices: tuple[str, ...] = ()


class _Url(Value):
    """`etcd://host:port,.../run id?key=value&...`, taken apart. What it does not say is empty."""

    hosts: str
    run_id: str
    nodes: str
    settings: conf.Pairs


def arrange(options: Options, credentials: Credentials, plugins: frozenset[str]) -> Arranged:
    """Check every value and return the meeting. `plugins` are the names of installed backends that are not ours.

    Raises:
        UsageError: One sentence that names the flag or variable and what it expects.
    """
    source = options.source("rdzv_endpoint")
    url = _url(options.rdzv_endpoint.strip(), source)
    backend = _backend(options, bool(url.hosts), plugins)
    least, most = _nodes(options, url, backend)
    settled = conf.settle(_settings(options, url, backend, credentials), backend)
    meeting = Meeting(
        backend=backend,
        endpoints=_endpoints(options, url.hosts or options.rdzv_endpoint, backend),
        run_id=_run_id(options, url),
        min_nodes=least,
        max_nodes=most,
        node_rank=values.node_rank(options, most) if backend == "static" else None,
        local_addr=values.host(options.local_addr, options.source("local_addr")) if options.local_addr else None,
        token=credentials.token,
        ttl_s=settled.ttl_s,
        quiet_s=settled.quiet_s,
        join_timeout_s=settled.join_timeout_s,
        resize_grace_s=options.resize_grace,
        on_lost_majority=options.on_lost_majority,
        require_token=options.require_token,
        options=settled.options,
    )
    return Arranged(meeting, (*_said_of_conf(options, url, backend, settled), *_said_of_trust(options, meeting)))


def is_asked(options: Options, plugins: frozenset[str], handlers: frozenset[str]) -> bool:
    """Tell whether a handler of torchrun's kind is meant, which can only be asked. Our names and stores come first."""
    return options.rdzv_backend in handlers and options.rdzv_backend not in (*BACKENDS, *plugins)


def arrange_asked(options: Options) -> Asked:
    """Check what can be checked of a meeting that somebody else's handler holds.

    Raises:
        UsageError: One sentence that names the flag or variable and what it expects.
    """
    if options.require_token:
        raise UsageError(
            f"{options.source('require_token')} expects a rendezvous of planaria's"
            f", got the handler {quoted(options.rdzv_backend)} of another package"
        )
    if options.local_addr:
        values.host(options.local_addr, options.source("local_addr"))
    least, most = values.node_range(options.nnodes, options.source("nnodes"))
    given = conf.pairs(options.rdzv_conf, options.source("rdzv_conf"))
    return Asked(
        backend=options.rdzv_backend,
        endpoint=options.rdzv_endpoint,
        run_id=values.run_id(options),
        min_nodes=least,
        max_nodes=most,
        settings={key: value for key, (value, _) in given.items()},
        notices=(*_idle_when_asked(options), *_said_of_password(options, given)),
    )


def _idle_when_asked(options: Options) -> list[str]:
    """Say in one line which flags of ours change nothing for an agent that asks."""
    idle = [options.source(dest) for dest in _ONLY_OURS if options.is_set(dest)]
    if not idle:
        return []
    how = "has" if len(idle) == 1 else "have"
    return [f"{', '.join(idle)} {how} no effect with the rendezvous handler {quoted(options.rdzv_backend)}"]


def _backend(options: Options, has_url: bool, plugins: frozenset[str]) -> str:
    source = options.source("rdzv_backend")
    if has_url and not options.is_set("rdzv_backend"):
        return "etcd"
    backend = BACKENDS.get(options.rdzv_backend, options.rdzv_backend)
    if has_url and backend != "etcd":
        got = quoted(options.rdzv_backend)
        raise UsageError(f"{options.source('rdzv_endpoint')} with {URL_SCHEME} expects {source}=etcd, got {got}")
    if backend not in BACKENDS.values() and backend not in plugins:
        expected = f"one of {', '.join(BACKENDS)} or an installed plugin ({PLUGIN_GROUP} or {HANDLER_GROUP})"
        raise values.wrong(source, expected, options.rdzv_backend)
    return backend


def _nodes(options: Options, url: _Url, backend: str) -> tuple[int, int]:
    if url.nodes and not options.is_set("nnodes"):
        return values.node_range(url.nodes, f"{options.source('rdzv_endpoint')} min_workers:max_workers")
    least, most = values.node_range(options.nnodes, options.source("nnodes"))
    if backend == "static" and least != most:
        raise UsageError(
            f"{options.source('nnodes')} expects one number with the static rendezvous, got {quoted(options.nnodes)}",
            hint="MIN:MAX needs --rdzv-backend=c10d",
        )
    return least, most


def _url(text: str, source: str) -> _Url:
    """Take the URL form apart; `min_workers` and `max_workers` count nodes, all else is as in `--rdzv-conf`."""
    if not text.startswith(URL_SCHEME):
        return _Url("", "", "", {})
    from urllib.parse import unquote

    rest, _, query = text.removeprefix(URL_SCHEME).partition("?")
    hosts, _, path = rest.partition("/")
    if not hosts:
        raise values.wrong(source, "etcd://HOST:PORT/RUN_ID?min_workers=N&max_workers=N", conf.without_password(text))
    raw = conf.pairs(query, source, "&")
    given: conf.Pairs = {key: (type(value)(unquote(value)), called) for key, (value, called) in raw.items()}
    least, _ = given.pop("min_workers", ("", ""))
    most, _ = given.pop("max_workers", (least, ""))
    return _Url(hosts, unquote(path).strip("/"), f"{least or 1}:{most}" if most else "", given)


def _settings(options: Options, url: _Url, backend: str, credentials: Credentials) -> conf.Pairs:
    """Return the URL's settings, overruled by those of the flag, and the password of the environment if neither has one."""
    source = options.source("rdzv_conf")
    given = conf.pairs(options.rdzv_conf, source)
    if backend in BACKENDS.values():  # a plugin has keys of its own
        conf.refuse_unknown(url.settings, options.source("rdzv_endpoint"))
        conf.refuse_unknown(given, source)
    merged = url.settings | given
    if backend == "etcd" and credentials.etcd_password is not None and "password" not in merged:
        merged["password"] = (credentials.etcd_password, PASSWORD_VARIABLE)
    if backend == "kubernetes" and credentials.kube_server:
        merged.setdefault("server", (credentials.kube_server, "KUBERNETES_SERVICE_HOST"))
    return merged


def _endpoints(options: Options, text: str, backend: str) -> tuple[str, ...]:
    source = options.source("rdzv_endpoint")
    if "://" in text and "@" not in text and backend in BACKENDS.values():
        raise values.wrong(source, "HOST[:PORT],... or etcd://HOST[:PORT]/RUN_ID", conf.without_password(text))
    if backend == "static":
        return (_static_endpoint(options),)
    if backend == "kubernetes":
        return (_kube_endpoint(text.strip(), source),)
    parts = [part.strip() for part in text.split(",")]
    if backend not in conf.DEFAULT_PORTS:  # the plugin knows what they mean, and whether it needs any
        if "@" in text:
            raise UsageError(f"{source} expects addresses without a user name or password")
        return tuple(part for part in parts if part)
    if not text.strip():
        raise UsageError(f"{source} expects the address where the nodes meet, HOST[:PORT],..., got nothing")
    found: dict[str, None] = {}
    for part in parts:
        host, port = values.endpoint(part, source)
        if port == 0:
            raise values.wrong(source, "a port that every node knows", part)
        found[values.address(host, conf.DEFAULT_PORTS[backend] if port is None else port)] = None
    return tuple(found)


def _kube_endpoint(text: str, source: str) -> str:
    """Check the name of a Lease and a ConfigMap, with its namespace or without."""
    expected = "[NAMESPACE/]NAME of a Lease and a ConfigMap, in small letters, digits and -"
    namespace, slash, name = text.rpartition("/")
    parts = [*([namespace] if slash else []), *name.split(".")]
    if len(name) > _LONGEST_OBJECT_NAME or not all(_is_label(part) for part in parts):
        raise values.wrong(source, expected, text)
    return text


def _is_label(text: str) -> bool:
    """Tell whether this is a label of DNS, which the names of Kubernetes are made of."""
    plain = text.replace("-", "a")
    return plain.isascii() and plain.isalnum() and plain == plain.lower() and text == text.strip("-") and len(text) < 64


def _static_endpoint(options: Options) -> str:
    host, port = values.master(options)
    if port == _HIGHEST_PORT:
        source = options.source("rdzv_endpoint" if options.rdzv_endpoint else "master_port")
        raise values.wrong(source, "a port below 65535 (the agents meet one above it)", str(port))
    return values.address(host, port)


def _run_id(options: Options, url: _Url) -> str:
    if url.run_id and not options.is_set("rdzv_id"):
        name, source = url.run_id, options.source("rdzv_endpoint")
    else:
        name, source = values.run_id(options), options.source("rdzv_id")
    if len(name) > _LONGEST_RUN_ID:
        raise values.wrong(source, f"a run id of at most {_LONGEST_RUN_ID} characters", name)
    return name


def _said_of_conf(options: Options, url: _Url, backend: str, settled: conf.Conf) -> list[str]:
    source = options.source("rdzv_conf")
    lines = []
    if settled.idle:
        how = "has" if len(settled.idle) == 1 else "have"
        lines.append(f"{', '.join(settled.idle)} of {source} {how} no effect with the rendezvous {quoted(backend)}")
    if "password" in options.rdzv_conf or any("password" in key for key in url.settings):
        lines.append(f"{_OPEN_PASSWORD}: use {PASSWORD_VARIABLE}")
    return lines


def _said_of_password(options: Options, given: conf.Pairs) -> list[str]:
    """Say how to hide the password of a handler that is not ours, whose own ways we do not know."""
    if "rdzv_conf" not in options.given or not any("password" in key for key in given):
        return []
    return [f"{_OPEN_PASSWORD}: use PET_RDZV_CONF"]


def _said_of_trust(options: Options, meeting: Meeting) -> list[str]:
    if not is_trusting(meeting):
        return []
    if meeting.require_token:
        raise UsageError(
            f"{options.source('require_token')} expects a secret in PLANARIA_TOKEN or PLANARIA_TOKEN_FILE, "
            "or tls_cert, tls_key and tls_ca in --rdzv-conf, got neither"
        )
    return [] if is_within_host(meeting) else [OPEN_DOOR]
