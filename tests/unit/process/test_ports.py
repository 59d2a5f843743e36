from __future__ import annotations

import socket

import pytest

from planaria.process import ports
from planaria.process.ports import Reservation


def listening(port: int, *, reuse: bool, family: int = socket.AF_INET6) -> socket.socket:
    found = socket.socket(family)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
        found.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
        found.listen()
    except OSError:
        found.close()
        raise
    return found


@pytest.mark.parametrize("family", [socket.AF_INET6, socket.AF_INET])
def test_rank_0_can_listen_on_a_reserved_port(family: int) -> None:
    held = Reservation()
    try:
        listening(held.port, reuse=True, family=family).close()
        listening(held.port, reuse=True, family=family).close()
    finally:
        held.release()


def test_nobody_else_is_handed_a_reserved_port() -> None:
    held = Reservation()
    try:
        with pytest.raises(OSError, match="in use"):
            listening(held.port, reuse=False)
        others = [Reservation() for _ in range(20)]
        assert held.port not in {other.port for other in others}
        for other in others:
            other.release()
    finally:
        held.release()


def test_a_reservation_does_not_answer() -> None:
    held = Reservation()
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", held.port))
    finally:
        held.release()


def test_a_machine_without_ipv6_reserves_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ports._bind

    def without(family: int, address: str) -> object:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return real(family, address)

    monkeypatch.setattr(ports, "_bind", without)
    held = Reservation()
    try:
        assert held._socket.family == socket.AF_INET
        listening(held.port, reuse=True, family=socket.AF_INET).close()
    finally:
        held.release()


def test_a_released_port_can_be_had_again() -> None:
    held = Reservation()
    held.release()
    listening(held.port, reuse=False).close()
