"""What several tests of peers begin with. torch is imported by those who use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fake_device import FakeDevice


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """A GPU made of the CPU, on which all tensors are."""
    from fake_device import FakeDevice

    from planaria.worker import arrays, runway

    found = FakeDevice()
    monkeypatch.setattr(arrays, "DEVICES", ("cpu",))
    monkeypatch.setattr(runway, "open_cuda", lambda _index: found)
    yield found
    found.gate.set()
