"""The DNS of the test cluster: which names there are, and what is said of all others."""

from __future__ import annotations

import socket
import struct
from typing import Any

import kube_dns
import pytest
from kube_dns import HEADER, NO_ERROR, NO_SUCH_NAME, A, Names, answer

AAAA = 28


def found(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"namespace": "jobs", "name": name}, **more}


@pytest.fixture
def names() -> Names:
    """Services with an address, without one, and without pods."""
    made = Names()
    services = {"etcd": "10.96.0.7", "workers": "None", "empty": "None"}
    made.set_services(found("Service", name, spec={"clusterIP": address}) for name, address in services.items())
    ready = [{"ip": "10.88.1.1", "hostname": "first"}, {"ip": "10.88.1.2"}]
    subset = {"addresses": ready, "notReadyAddresses": [{"ip": "10.88.1.3"}]}
    made.set_endpoints([found("Endpoints", "workers", subsets=[subset]), found("Endpoints", "empty")])
    return made


def asked(names: Names, name: str, kind: int = A) -> tuple[int, list[str]]:
    """Return the status and the addresses of an answer, which must repeat the question."""
    words = b"".join(bytes([len(word)]) + word.encode() for word in name.split("."))
    question = words + struct.pack("!B2H", 0, kind, 1)
    said = answer(HEADER.pack(77, 0x0100, 1, 0, 0, 0) + question, names)
    assert said is not None
    number, flags, questions, answers, _, _ = HEADER.unpack_from(said)
    assert (number, questions) == (77, 1)
    assert flags & 0x8100 == 0x8100  # an answer, to somebody who would have it looked up elsewhere
    assert said[HEADER.size :].startswith(question)
    records = said[HEADER.size + len(question) :]
    assert len(records) == 16 * answers
    return flags & 0xF, [socket.inet_ntoa(records[at + 12 : at + 16]) for at in range(0, len(records), 16)]


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("etcd.jobs.svc.cluster.local", ["10.96.0.7"]),
        ("ETCD.jobs.svc.Cluster.local", ["10.96.0.7"]),
        ("workers.jobs.svc.cluster.local", ["10.88.1.1", "10.88.1.2"]),
        ("first.workers.jobs.svc.cluster.local", ["10.88.1.1"]),
        ("empty.jobs.svc.cluster.local", []),
    ],
)
def test_services_and_ready_pods_have_addresses(names: Names, name: str, addresses: list[str]) -> None:
    assert asked(names, name) == (NO_ERROR, addresses)


@pytest.mark.parametrize(
    "name",
    [
        "etcd",
        "etcd.jobs",
        "etcd.other.svc.cluster.local",
        "second.workers.jobs.svc.cluster.local",
        "a.first.workers.jobs.svc.cluster.local",
        "svc.cluster.local",
        "example.com",
        "1.1.88.10.in-addr.arpa",
    ],
)
def test_everything_else_does_not_exist(names: Names, name: str) -> None:
    assert asked(names, name) == (NO_SUCH_NAME, [])


def test_a_name_without_an_address_of_the_other_kind_exists(names: Names) -> None:
    assert asked(names, "etcd.jobs.svc.cluster.local", AAAA) == (NO_ERROR, [])


@pytest.mark.parametrize("query", [b"", b"short", b"x" * 11])
def test_half_a_header_is_not_answered(names: Names, query: bytes) -> None:
    assert answer(query, names) is None


@pytest.mark.parametrize("rest", [b"", b"\x05ab", b"\xc0\x0c\0\1\0\1", b"\x01\xff\0\0\1\0\1"])
def test_what_is_no_question_is_refused(names: Names, rest: bytes) -> None:
    said = answer(HEADER.pack(7, 0, 1, 0, 0, 0) + rest, names)
    assert said == HEADER.pack(7, 0x8400 | kube_dns.FORMAT_ERROR, 0, 0, 0, 0)
