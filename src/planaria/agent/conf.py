"""Read `--rdzv-conf`: torchrun's keys and ours become times, options of the backend, and a list of what has no effect. Pure.

A message never repeats a password.
"""

from __future__ import annotations

from planaria.base.usage import LONGEST_S, quoted, seconds, wrong
from planaria.base.value import Value
from planaria.contract.secret import SecretText
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.contract.secret import Secret

    Pairs = dict[str, tuple[str, str]]
    """A key's value, and what the user calls it: `--rdzv-conf ttl`."""

BACKENDS = {
    "static": "static",
    "c10d": "embedded",
    "embedded": "embedded",
    "etcd": "etcd",
    "etcd-v2": "etcd",
    "kubernetes": "kubernetes",
}
"""What torchrun and we call a backend, and which it is."""
DEFAULT_PORTS = {"embedded": 29400, "etcd": 2379}
ETCD = ("protocol", "cacert", "cert", "key", "username", "password")
KUBERNETES = ("server", "cacert", "cert", "key", "token_file")
TLS = ("tls_cert", "tls_key", "tls_ca")
FILES = ("cacert", "cert", "key", "token_file", *TLS)
_TIMES = ("join_timeout", "last_call_timeout", "ttl", "keep_alive_interval", "keep_alive_max_attempt")
_ETCD_V2 = {"ca_cert": "cacert", "ssl_cert": "cert", "ssl_cert_key": "key"}  # the same things under torchrun's etcd-v2
_IDLE = (
    "close_timeout",
    "heartbeat_timeout",
    "read_timeout",
    "timeout",
    "store_type",
    "is_host",
    "rank",
    "etcd_prefix",
)
_TAKEN = {"etcd": (*TLS, *ETCD), "kubernetes": (*TLS, *KUBERNETES)}
_KNOWN = frozenset((*_TIMES, *ETCD, *KUBERNETES, *TLS, *_ETCD_V2, *_IDLE))

_LONGEST_TTL_S = 86_400.0  # a day: a store's leases have an end, and a node that is silent so long is not waited for
_SHORTEST_TTL_S = 1.0  # a lease ends a second before its TTL, or at six tenths of it: less would fence for a hiccup
_TORCHRUN_INTERVAL_S = 5.0
_TORCHRUN_ATTEMPTS = 3


class Conf(Value):
    """What the settings mean. `idle` are keys that were given and change nothing with this backend."""

    ttl_s: float
    quiet_s: float
    join_timeout_s: float
    options: Mapping[str, str]
    idle: tuple[str, ...]


class Credentials(Value):
    """What was found in the environment and may be shown nowhere."""

    token: Secret | None = None
    etcd_password: SecretText | None = None
    kube_server: str = ""
    """Where a pod finds the API server of its cluster, which is no secret."""


def pairs(text: str, source: str, separator: str = ",") -> Pairs:
    """Split `key=value,key=value`; of two values for one key the last counts."""
    found: Pairs = {}
    for pair in text.split(separator) if text.strip() else ():
        key, _, value = (part.strip() for part in pair.partition("="))
        if not key or not value:
            raise wrong(source, separator.join(("KEY=VALUE", "KEY=VALUE", "...")), without_password(text))
        _add(found, key, value, source)
    return found


def known_of(config: Mapping[str, object], source: str) -> Pairs:
    """Return the settings that we know among those of a program, which may have others for itself."""
    found: Pairs = {}
    for key, value in config.items():
        if key in _KNOWN and value is not None:
            _add(found, key, str(value), source)
    return found


def _add(found: Pairs, key: str, value: str, source: str) -> None:
    name = _ETCD_V2.get(key, key)
    found[name] = (SecretText(value) if "password" in name else value, f"{source} {key}")


def without_password(text: str) -> str:
    """Return what may be shown of a text that may hold a password; where it ends is anybody's guess."""
    before, found, _ = text.partition("password")
    return f"{before}password=..." if found else text


def refuse_unknown(given: Pairs, source: str) -> None:
    """Refuse a key that neither torchrun nor we have: it is a typing error more often than not."""
    for key in given:
        if key not in _KNOWN:
            from difflib import get_close_matches

            near = get_close_matches(key, sorted(_KNOWN), n=1)
            raise UsageError(f"{source} has no setting {quoted(key)}", hint=f"did you mean {near[0]}?" if near else "")


def check(text: str, source: str, backend: str) -> None:
    """Check the settings of a node alone, where none has an effect: what is wrong there is wrong with more nodes too."""
    given = pairs(text, source)
    if backend in BACKENDS:
        refuse_unknown(given, source)
    settle(given, "embedded")


def settle(given: Pairs, backend: str) -> Conf:
    """Check every value and say what it means for `backend`: `embedded`, `static`, `etcd`, `kubernetes` or a plugin's name."""
    _check_tls(given)
    ours = backend in BACKENDS.values()
    if backend == "etcd":
        _check_etcd(given)
    if backend == "kubernetes":
        _check_kubernetes(given)
    taken = _TAKEN.get(backend, TLS)
    options = {key: value for key, (value, _) in given.items() if (key in taken if ours else key not in _TIMES)}
    if backend == "etcd":
        options.setdefault("protocol", "https" if "cacert" in given or "cert" in given else "http")
    return Conf(
        ttl_s=_ttl_s(given),
        quiet_s=_seconds(given, "last_call_timeout", 2.0),
        join_timeout_s=_seconds(given, "join_timeout", 600.0, least=1),
        options=options,
        idle=tuple(key for key in given if key not in options and key not in _TIMES),
    )


def _seconds(given: Pairs, key: str, default: float, least: float = 0, most: float | None = None) -> float:
    if key not in given:
        return default
    text, called = given[key]
    try:
        return seconds(float(text), called, least, most or LONGEST_S)
    except ValueError:
        raise wrong(called, "seconds", text) from None


def _ttl_s(given: Pairs) -> float:
    """Return `ttl`, or what torchrun makes of its two keys, or 5 seconds."""
    if "ttl" in given or ("keep_alive_interval" not in given and "keep_alive_max_attempt" not in given):
        return _seconds(given, "ttl", 5.0, _SHORTEST_TTL_S, _LONGEST_TTL_S)
    attempts, called = given.get("keep_alive_max_attempt", (str(_TORCHRUN_ATTEMPTS), ""))
    if not (attempts.isascii() and attempts.isdigit() and len(attempts) < 10 and int(attempts) > 0):
        raise wrong(called, "a whole number above 0", attempts)
    ttl_s = _seconds(given, "keep_alive_interval", _TORCHRUN_INTERVAL_S) * int(attempts)
    _, called = given.get("keep_alive_interval", given.get("keep_alive_max_attempt", ("", "")))
    return seconds(ttl_s, f"{called} (interval times attempts)", _SHORTEST_TTL_S, _LONGEST_TTL_S)


def _check_tls(given: Pairs) -> None:
    """Every agent listens and dials, and checks who it talks to: it needs its own certificate and the authority's."""
    missing = [key for key in TLS if key not in given]
    if 0 < len(missing) < len(TLS):
        called = next(given[key][1] for key in TLS if key in given)
        raise UsageError(f"{called} expects {' and '.join(missing)} beside it")


def _check_etcd(given: Pairs) -> None:
    protocol, called = given.get("protocol", ("", ""))
    if protocol not in ("", "http", "https"):
        raise wrong(called, "http or https", protocol)
    for key in ("cacert", "cert", "key"):
        if key in given and protocol == "http":
            raise UsageError(f"{given[key][1]} expects protocol=https beside it, got protocol=http")
    _check_pair(given)
    if "username" in given and "password" not in given:
        raise UsageError(f"{given['username'][1]} expects the password in PLANARIA_ETCD_PASSWORD, got none")
    if "password" in given and "username" not in given:
        raise UsageError(f"{given['password'][1]} expects username beside it")


def _check_kubernetes(given: Pairs) -> None:
    server, called = given.get("server", ("", ""))
    if server and not server.startswith(("https://", "http://")):
        raise wrong(called, "https://HOST:PORT", server)
    _check_pair(given)


def _check_pair(given: Pairs) -> None:
    for one, other in (("cert", "key"), ("key", "cert")):
        if one in given and other not in given:
            raise UsageError(f"{given[one][1]} expects {other} beside it")
