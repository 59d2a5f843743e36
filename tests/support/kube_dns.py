"""The DNS of a test cluster: `python kube_dns.py ADDRESS API-HOST API-PORT AUTHORITY CERTIFICATE KEY`.

Services have names such as `name.namespace.svc.cluster.local`. One with an address of its own has that; a headless one has
the addresses of its Endpoints, which are those of pods that are ready, or of all where the Service publishes them; and a
pod with a hostname there has a name below it. Everything else does not exist, which is said at once.
"""

from __future__ import annotations

import http.client
import socket
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from kube_client import Client, Refused, Who

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ZONE = ("svc", "cluster", "local")
TTL_S = 1  # names follow pods
HEADER = struct.Struct("!6H")
A, ANY, INTERNET = 1, 255, 1
NO_ERROR, FORMAT_ERROR, NO_SUCH_NAME = 0, 1, 3


class Names:
    """What has a name. Addresses are found by namespace, service, and hostname or nothing."""

    def __init__(self) -> None:
        self._services: dict[tuple[str, str], str] = {}
        self._endpoints: dict[tuple[str, str], dict[str, list[str]]] = {}

    def set_services(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Know all Services."""
        self._services = {_key(found): found["spec"].get("clusterIP") or "" for found in objects}

    def set_endpoints(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Know all Endpoints."""
        self._endpoints = {_key(found): _addresses(found) for found in objects}

    def find(self, name: str) -> list[str] | None:
        """Return the addresses of a name, none where it has none at the moment, or None where there is no such name."""
        words = name.lower().rstrip(".").split(".")
        if len(words) < 5 or tuple(words[-3:]) != ZONE:
            return None
        *host, service, namespace = words[:-3]
        own = self._services.get((namespace, service))
        if own is None or len(host) > 1:
            return None
        by_host = self._endpoints.get((namespace, service), {})
        if host:
            return by_host.get(host[0])
        return [own] if own not in ("", "None") else by_host.get("", [])


def _key(found: Mapping[str, Any]) -> tuple[str, str]:
    return found["metadata"]["namespace"], found["metadata"]["name"]


def _addresses(endpoints: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return addresses by hostname, and all of them under the empty one."""
    found: dict[str, list[str]] = {"": []}
    for subset in endpoints.get("subsets") or ():
        for address in subset.get("addresses") or ():
            for name in {"", address.get("hostname", "")}:
                found.setdefault(name, []).append(address["ip"])
    return found


def answer(query: bytes, names: Names) -> bytes | None:
    """Return what a query deserves; nothing where it is too short to be answered."""
    if len(query) < HEADER.size:
        return None
    number, flags, questions, *_ = HEADER.unpack_from(query)
    try:
        name, end = _name_at(query, HEADER.size)
        kind, family = struct.unpack_from("!2H", query, end)
    except (IndexError, struct.error, UnicodeDecodeError):
        questions = 0
    if questions != 1 or flags & 0x8000:
        return HEADER.pack(number, 0x8400 | FORMAT_ERROR, 0, 0, 0, 0)
    found = names.find(name)
    wanted = found if found and kind in (A, ANY) and family == INTERNET else []
    status = NO_SUCH_NAME if found is None else NO_ERROR
    records = b"".join(
        struct.pack("!3HIH", 0xC000 | HEADER.size, A, INTERNET, TTL_S, 4) + socket.inet_aton(address)
        for address in wanted
    )
    head = HEADER.pack(number, 0x8480 | flags & 0x0100 | status, 1, len(wanted), 0, 0)
    return head + query[HEADER.size : end + 4] + records


def _name_at(message: bytes, start: int) -> tuple[str, int]:
    """Return a name, and where it ends. A question has no pointers."""
    words = []
    while size := message[start]:
        if size > 63:
            raise IndexError
        words.append(message[start + 1 : start + 1 + size].decode("ascii"))
        start += 1 + size
    return ".".join(words), start + 1


def follow(client: Client, kind: str, tell: Any) -> None:
    """Tell of all objects of a kind whenever one has changed, for ever; while the server is away, what was known stays."""
    path = f"/api/v1/{kind}"
    while True:
        try:
            listed = client.get(path)
            known = {found["metadata"]["uid"]: found for found in listed["items"]}
            tell(known.values())
            for event in client.watch(path, listed["metadata"]["resourceVersion"]):
                found = event["object"]
                if event["type"] == "DELETED":
                    known.pop(found["metadata"]["uid"], None)
                elif event["type"] in ("ADDED", "MODIFIED"):
                    known[found["metadata"]["uid"]] = found
                elif event["type"] == "ERROR":
                    break
                tell(known.values())
        except (OSError, http.client.HTTPException, ValueError, Refused) as exc:
            print(f"{kind}: {exc}", file=sys.stderr, flush=True)
        time.sleep(0.2)  # nobody says when the server is back


def main() -> None:
    address, host, port, authority, certificate, key = sys.argv[1:]
    client = Client(Who(host, int(port), authority, (certificate, key)))
    names = Names()
    # A watch is a read that waits, and so is the socket: one thread for each.
    for kind, tell in (("services", names.set_services), ("endpoints", names.set_endpoints)):
        threading.Thread(target=follow, args=(client, kind, tell), daemon=True).start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind((address, 53))
        while True:
            query, caller = door.recvfrom(4096)
            if found := answer(query, names):
                door.sendto(found, caller)


if __name__ == "__main__":
    main()
