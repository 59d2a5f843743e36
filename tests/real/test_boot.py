"""User data, run for real: instances boot, meet, train, get a notice, are replaced, and the job's end turns them off.

What is replaced for it is listed in `tests/support/instances.py`.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from aws_server import aws
from fleet import TORTURE, Fleet, wait_for
from instances import Cloud
from petctl_desk import Petctl, cloud, petctl

from planaria.chaos import hosts
from planaria.chaos.hosts import Network

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine import Engine

__all__ = ["aws", "cloud", "petctl"]

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]


PRINTED = re.compile(r"^\[default 0\]:step \d+ of 2 ranks\r?$", re.MULTILINE)


@pytest.fixture(scope="module")
def disk(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image of the Dockerfile, as the instances' own engines have it on their disks."""
    folder = tmp_path_factory.mktemp("disk")
    engine.keep_images(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def fleet(petctl: Petctl, disk: Path, tmp_path: Path) -> Iterator[Fleet]:
    if why := hosts.why_not():
        pytest.skip(why)
    pytest.importorskip("awscli", reason="the aws program is not installed")
    with Network(9) as network, Cloud(network) as there, Fleet(petctl, network, there, disk, tmp_path) as found:
        yield found


def test_two_instances_train_one_drains_and_is_replaced_and_the_end_turns_them_off(fleet: Fleet) -> None:
    fleet.submit()
    group = fleet.workers
    first, second = fleet.launch(*fleet.members(group))
    fleet.boot(group, first, second)
    before = fleet.wait_step(2)
    assert all(words == TORTURE for _, _, words in fleet.steps())
    wait_for(lambda: fleet.cloud.has_completed(first.metadata.instance, "planaria-ready"), "its hook")
    # Rank 0 prints, and which host has it is decided by who comes first; so is whether one began alone.
    assert any(PRINTED.search(one.engine.docker("logs", "planaria")) for one in (first, second))
    wait_for(lambda: any(PRINTED.search(fleet.logged(one)) for one in (first, second)), "a line in CloudWatch")
    fleet.petctl.type("logs", fleet.job, "--rank", "0")
    assert PRINTED.search(fleet.petctl.out)
    assert fleet.token not in first.engine.docker("inspect", "planaria")
    assert fleet.token not in first.run("ps", "-ewwo", "args")
    assert fleet.token not in fleet.user_data(group)
    assert first.metadata.refused == 0
    url = "http://169.254.169.254/latest/meta-data/instance-id"
    assert first.run("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", url) == "401"

    # The first one, whose address everybody met at, gets a notice.
    taken = len(fleet.steps())
    first.metadata.spot = {"action": "terminate", "time": "2026-01-01T00:02:00Z"}
    wait_for(lambda: first.says("drained, status 75"), f"a drain: {first.log()}")
    first.metadata.lifecycle = "Terminated"
    alone = fleet.wait_step(1, beyond=taken)
    assert alone > before
    wait_for(lambda: fleet.cloud.has_completed(first.metadata.instance, "planaria-drain"), "its hook")
    third = fleet.replace(first, group)
    fleet.boot(group, third)
    assert fleet.wait_step(2, beyond=len(fleet.steps())) > alone

    fleet.enough()
    result = fleet.wait_end(group)
    assert (result["status"], result["reason"], result["job"], result["run"]) == (0, "done", fleet.job, fleet.run)
    assert result["instance"] in (second.metadata.instance, third.metadata.instance)
    # Both knew how the job ended, and the second to say so has found it said.
    wait_for(lambda: all(one.says("the groups are at zero") for one in (second, third)), "all at zero")
    assert not any("did not work" in one.log() for one in (second, third))
    assert fleet.result() == result
    assert not fleet.cloud.strangers


def test_a_job_outlives_its_store_a_lost_host_and_a_killed_container_until_it_fails(fleet: Fleet) -> None:
    fleet.submit(has_store=True)
    workers, stores = fleet.workers, fleet.stores
    (store,) = fleet.launch(*fleet.members(stores), has_image=False)
    first, second = fleet.launch(*fleet.members(workers))
    first.metadata.rebalance = {"noticeTime": "2026-01-01T00:00:00Z"}  # a word of warning, and no order
    fleet.boot(workers, first, second)  # the store comes last: whoever needs it waits
    fleet.boot(stores, store)
    before = fleet.wait_step(2)
    wait_for(lambda: fleet.cloud.has_completed(store.metadata.instance, "planaria-ready"), "a store")

    store = fleet.replace(store, stores, has_image=False)
    fleet.boot(stores, store)
    wait_for(lambda: fleet.cloud.has_completed(store.metadata.instance, "planaria-ready"), "a store")
    # It knows nothing. Until the leader has told it, half of the round may not go on with its word.
    logs = first.container_log, second.container_log
    wait_for(lambda: any("it knows round" in log() for log in logs), "a store that knows the round")
    # No notice: the power is cut. What is left needs the store for its next round.
    taken = len(fleet.steps())
    second.close()
    assert fleet.wait_step(1, beyond=taken) > before

    wait_for(fleet.has_commits, "a commit on disk")
    first.engine.docker("kill", "planaria")
    taken = len(fleet.steps())
    fleet.wait_step(1, beyond=taken)
    assert fleet.steps()[taken][0] > 0  # it went on from its commit
    assert first.says("restart 1 of 10")
    assert first.says("EC2 recommends")
    assert fleet.result() is None

    fleet.fail()
    result = fleet.wait_end(workers, stores)
    assert (result["status"], result["reason"]) == (1, "worker failed")
    assert result["instance"] == first.metadata.instance
    first.metadata.lifecycle = "Terminated"
    wait_for(lambda: fleet.cloud.has_completed(first.metadata.instance, "planaria-drain"), "its hook")
    assert not fleet.cloud.strangers
