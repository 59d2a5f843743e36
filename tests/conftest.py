"""The same surroundings for every test session, however it was started."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import rows
from hypothesis import HealthCheck, settings
from no_skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401  # hooks, found by their names

from planaria.base.loop import Loop

# The same cases in every run; and a machine that others keep busy is no fault of a test's.
settings.register_profile("planaria", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("planaria")

if TYPE_CHECKING:
    from kube_cluster import Cluster
    from kube_place import Place
    from scripted_api import ScriptedApi


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder() -> Iterator[None]:
    """Point TMPDIR at a folder of our own: kept log folders go with it, and a scratch folder left behind is seen."""
    folder = Path(tempfile.mkdtemp(prefix="pt-"))
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    yield
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    left = [path.name for path in folder.glob("planaria-*")]
    shutil.rmtree(folder)
    assert not left, f"runs left their private folders behind: {left}"


@pytest.fixture
def loop() -> Iterator[Loop]:
    """One loop of ours, closed at the end."""
    made = Loop()
    yield made
    made.close()


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_a_terminal() -> None:
    """Undo what `nohup` and background jobs of a shell leave ignored: children inherit it, and tests send those signals."""
    for number, usual in (
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(scope="module", autouse=True)
def _helpers_of_multiprocessing() -> Iterator[None]:
    """End the helper processes that function workers make `multiprocessing` start: they are children that nobody asked for."""
    yield
    for module, helper in (("forkserver", "_forkserver"), ("resource_tracker", "_resource_tracker")):
        loaded = sys.modules.get(f"multiprocessing.{module}")
        if loaded is not None:
            getattr(loaded, helper)._stop()


@pytest.fixture(scope="session")
def kube_api(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A Kubernetes API server of our own, alone; the test is skipped where there can be none."""
    import kube_cluster
    import kube_programs

    if why := kube_programs.why_no_api():
        pytest.skip(why)
    with kube_cluster.Cluster.start() as found:
        rows.begun(request)
        yield found


@pytest.fixture(scope="session")
def kube_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A Kubernetes of our own with two nodes, which run pods; the test is skipped where there can be none."""
    import kube_cluster
    import kube_programs

    if why := kube_programs.why_no_nodes():
        pytest.skip(why)
    with kube_cluster.Cluster.start(nodes=2) as found:
        rows.begun(request)
        yield found


@pytest.fixture
def api() -> "Iterator[ScriptedApi]":
    """A Kubernetes API server that fails as it is told to."""
    from scripted_api import ScriptedApi

    server = ScriptedApi()
    yield server
    server.close()


@pytest.fixture
def place(kube_api: "Cluster", tmp_path: Path) -> "Place":
    """The objects of one job in that API server, and a service account with the rights of its agents."""
    from kube_place import make_place

    return make_place(kube_api, tmp_path)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests with one of the servers to one worker of pytest-xdist, in a row: one engine, and one image is built."""
    for item in items:
        for name in rows.SERVERS:
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(name))
                break


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the servers that the next test has no use for."""
    rows.end(getattr(nextitem, "fixturenames", ()))
