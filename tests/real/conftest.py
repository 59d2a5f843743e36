"""The private room every test of real processes lives in."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import browser
import engine as container_engine
import images
import rows
from harness import Room, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from browser import Browser
    from engine import Engine
    from kube_cluster import Cluster
    from operator_rig import Rig

IMAGE = "hello_elastic:dev"


@pytest.fixture
def room() -> Iterator[Room]:
    """A short private folder. When the test is over no process, folder or file of its job may be left."""
    found = Room()
    try:
        yield found
        found.assert_deserted()
    finally:
        found.close()


@pytest.fixture
def terminal(room: Room) -> Iterator[Terminal]:
    """A terminal, and what was started in it. It is gone before the room is."""
    found = Terminal(room)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser; the test is skipped where there is none."""
    if why := browser.why_not():
        pytest.skip(why)
    with browser.Browser() as found:
        yield found


@pytest.fixture
def window(chromium: Browser) -> Browser:
    """A window that shows nothing, and whose console is empty."""
    chromium.go("about:blank")
    chromium.complaints()
    return chromium


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A container engine of our own, with a base image in it; the test is skipped where there can be none."""
    if why := container_engine.why_not():
        pytest.skip(why)
    pytest.importorskip("pip", reason="pip is not installed, which the images of tests need")
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(container_engine.Engine())
        except (OSError, RuntimeError) as exc:
            pytest.skip(f"no container engine can be started here: {exc}")
        found.load(images.base())
        rows.begun(request)
        yield found


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    """The image of the Dockerfile at the root, without torch: the name it has in the examples."""
    try:
        images.wheels()
    except RuntimeError as exc:
        pytest.skip(str(exc))
    images.build(engine, IMAGE)
    return IMAGE


@pytest.fixture(scope="module")
def rig(kube_api: Cluster) -> Iterator[Rig]:
    """What tests of the operator do with the API server."""
    from operator_rig import Rig  # it needs the client of Kubernetes, which most tests here do not

    with Rig(kube_api.kubeconfig) as found:
        yield found
