"""A report that no agent would take is lost; the connection, and the scopes on it, are not."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from planaria.contract.control import Progress, decode
from planaria.worker.link import Link

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("step", [10**400, 1 << 63, -(1 << 63) - 1], ids=["huge", "above", "below"])
def test_a_step_of_more_than_64_bits_is_not_sent(tmp_path_factory: pytest.TempPathFactory, step: int) -> None:
    path: Path = tmp_path_factory.mktemp("l") / "control"
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(path))
        agent.listen()
        link = Link(lambda: str(path))
        link.report(step, {})
        link.report(7, {"big": 10.0**300})
        peer, _ = agent.accept()
        with peer:
            peer.settimeout(30.0)
            assert decode(peer.recv(4096)) == Progress(7, (("big", 10.0**300),))
        link._give_up()
