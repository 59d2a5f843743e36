"""Read endpoints and settings as torch does, with its messages."""

from __future__ import annotations

import re

__all__ = ["parse_rendezvous_endpoint"]


def parse_rendezvous_endpoint(endpoint: str | None, default_port: int) -> tuple[str, int]:
    """Return the host and the port of `HOST[:PORT]`; without an endpoint, localhost and the default port."""
    text = (endpoint or "").strip()
    if not text:
        return "localhost", default_port
    if text.startswith("[") and text.endswith("]"):  # an IPv6 address by itself
        host, colon, digits = text, "", ""
    else:
        host, colon, digits = text.rpartition(":") if ":" in text else (text, "", "")
    host = host[1:-1] if len(host) > 1 and host.startswith("[") and host.endswith("]") else host
    if colon and not (re.fullmatch("[0-9]{1,5}", digits) and int(digits) < 1 << 16):
        raise ValueError(f"The port number of the rendezvous endpoint '{text}' must be an integer between 0 and 65536.")
    if not re.match(r"^[\w\.:-]+$", host):
        raise ValueError(
            f"The hostname of the rendezvous endpoint '{text}' must be a dot-separated list of "
            "labels, an IPv4 address, or an IPv6 address."
        )
    return host, int(digits) if colon else default_port


def _parse_rendezvous_config(config_str: str) -> dict[str, str]:
    """Return the settings in `KEY=VALUE,KEY=VALUE,...`."""
    config: dict[str, str] = {}
    for pair in config_str.strip().split(",") if config_str.strip() else ():
        key, _, value = (part.strip() for part in pair.partition("="))
        if not key:
            raise ValueError(
                "The rendezvous configuration string must be in format <key1>=<value1>,...,<keyN>=<valueN>."
            )
        if not value:
            raise ValueError(f"The rendezvous configuration option '{key}' must have a value specified.")
        config[key] = value
    return config
