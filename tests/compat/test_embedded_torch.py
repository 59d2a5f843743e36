"""torch's own `record`, `expires` and `ElasticDistributedSampler`, unmodified, in workers of an agent that a program embeds."""

import importlib.util
import json
import os
import sys

import pytest
from waiting import wait_until

from planaria.elastic.agent.server.api import WorkerSpec
from planaria.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from planaria.elastic.multiprocessing import DefaultLogsSpecs
from planaria.elastic.multiprocessing.errors import ChildFailedError
from planaria.elastic.rendezvous import RendezvousParameters
from planaria.elastic.rendezvous.registry import get_rendezvous_handler
from planaria.launcher import LaunchConfig, elastic_launch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="runs torch itself in workers"),
]


def config(tmp_path, **more):
    fields = {"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 2, "run_id": "r", "max_restarts": 0}
    return LaunchConfig(**{**fields, "logs_specs": DefaultLogsSpecs(str(tmp_path / "logs")), **more})


def record_script(tmp_path, body):
    path = tmp_path / "train.py"
    path.write_text(body)
    return str(path)


def test_torchs_record_tells_the_agent_what_went_wrong(tmp_path):
    script = record_script(
        tmp_path,
        "import os\n"
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\n"
        "def main():\n"
        "    if os.environ['RANK'] == '1':\n"
        "        raise RuntimeError('out of luck')\n"
        "main()\n",
    )
    with pytest.raises(ChildFailedError) as caught:
        elastic_launch(config(tmp_path), sys.executable)(script)
    rank, failure = caught.value.get_first_failure()
    assert (caught.value.name, rank, failure.exitcode) == (script, 1, 1)
    assert failure.message["message"] == "RuntimeError: out of luck"
    assert "in main" in failure.message["extraInfo"]["py_callstack"]
    assert failure.error_file.startswith(str(tmp_path / "logs"))


def sample_in_two_lives(folder):
    """Sample everything, die once, then go on from the eighth: as the page of torch's sampler shows it."""
    from torch.distributed.elastic.utils.data import ElasticDistributedSampler

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    taken = list(ElasticDistributedSampler(range(16), num_replicas=world_size, rank=rank, start_index=8 * life))
    if life == 0:
        with open(f"{folder}/{rank}.draft", "w") as file:
            json.dump(taken, file)
        os.rename(f"{folder}/{rank}.draft", f"{folder}/{rank}")
        wait_until(lambda: all(os.path.exists(f"{folder}/{other}") for other in range(world_size)), "all have sampled")
        os._exit(1)
    return taken


def test_torchs_sampler_divides_the_rest_among_the_workers_of_the_next_life(tmp_path):
    folder = tmp_path / "taken"
    folder.mkdir()
    found = elastic_launch(config(tmp_path, max_restarts=1, start_method="fork"), sample_in_two_lives)(str(folder))
    assert sorted(index for file in folder.iterdir() for index in json.loads(file.read_text())) == list(range(16))
    assert sorted(index for taken in found.values() for index in taken) == list(range(8, 16))


EXPIRES = """
import os, signal
import torch.distributed.elastic.timer as timer
timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with timer.expires(after=60):
    pass
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    with timer.expires(after=0.5):
        signal.pause()
"""


class Asked(LocalElasticAgent):
    """One with a way of its own, so that it is asked, not driven."""

    def _monitor_workers(self, worker_group):
        return super()._monitor_workers(worker_group)


@pytest.mark.parametrize("kind", [LocalElasticAgent, Asked])
def test_torchs_expires_ends_a_worker_that_hangs_and_the_agent_lives_to_restart_it(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("TORCHELASTIC_ENABLE_FILE_TIMER", "1")
    monkeypatch.delenv("TORCHELASTIC_TIMER_FILE", raising=False)
    handler = get_rendezvous_handler(RendezvousParameters("c10d", "localhost:0", "run", 1, 1))
    script = record_script(tmp_path, EXPIRES)
    spec = WorkerSpec("trainer", 2, handler, entrypoint=sys.executable, args=(script,), max_restarts=1)
    agent = kind(spec, DefaultLogsSpecs(str(tmp_path / "logs")), shutdown_timeout=5)
    result = agent.run()
    handler.shutdown()
    assert not result.is_failed()
    assert agent._remaining_restarts == 0


def rank_of_world():
    return f"{os.environ['RANK']} of {os.environ['WORLD_SIZE']}"


def test_torchs_own_rendezvous_handler_is_as_good_as_any_foreign_one(tmp_path):
    from torch.distributed.elastic.rendezvous import RendezvousParameters as TheirParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler as their_handler

    handler = their_handler(TheirParameters("c10d", "localhost:0", "run", 1, 1, is_host=True))
    spec = WorkerSpec("trainer", 2, handler, entrypoint=rank_of_world, monitor_interval=0.01)
    agent = LocalElasticAgent(spec, DefaultLogsSpecs(str(tmp_path / "logs")), start_method="fork")
    result = agent.run()
    handler.shutdown()
    assert result.return_values == {0: "0 of 2", 1: "1 of 2"}
