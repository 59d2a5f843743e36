import os
import signal
import threading

import pytest
from scripted_agent import Handler, MemoryStore, scripted

from planaria.agent.phases import PHASES
from planaria.elastic import events, metrics
from planaria.elastic.agent.server import api, recording, synchronous
from planaria.elastic.agent.server.api import WorkerState, _RoleInstanceInfo
from planaria.elastic.agent.server.ranks import assign_ranks, places_of
from planaria.elastic.multiprocessing import SignalException
from planaria.elastic.rendezvous.api import RendezvousGracefulExitError
from planaria.elastic.store import DistStoreError


def test_an_agent_meets_starts_and_looks_until_its_workers_are_done():
    agent, calls = scripted(api, ["HEALTHY", "SUCCEEDED"])
    result = agent.run()
    assert calls == [
        "next_rendezvous",
        "start [0, 1]",
        "monitor HEALTHY",
        "num_nodes_waiting",
        "monitor SUCCEEDED",
        "shutdown 15 7",
    ]
    assert result.return_values == {0: "value", 1: "value"}
    assert not result.is_failed()


def test_a_failure_costs_a_restart_and_new_members_do_not():
    agent, calls = scripted(api, ["HEALTHY", "FAILED", "SUCCEEDED"], waiting=[1])
    agent.run()
    assert calls.count("start [0, 1]") == 3
    assert calls.count("stop") == 2
    assert agent._remaining_restarts == 0


def test_without_a_restart_left_the_workers_are_stopped_and_the_run_failed():
    agent, calls = scripted(api, ["FAILED", "UNHEALTHY"])
    result = agent.run()
    assert calls[-3:] == ["monitor UNHEALTHY", "stop", "shutdown 15 7"]
    assert result.state == WorkerState.UNHEALTHY
    assert agent.get_worker_group().state == WorkerState.FAILED


def test_a_subclass_that_gives_up_its_restarts_gets_none():
    agent, calls = scripted(api, ["FAILED"], max_restarts=3)
    agent._remaining_restarts = 0  # as for a worker stuck in the kernel
    agent.run()
    assert calls.count("start [0, 1]") == 1


def test_a_group_in_an_unknown_state_ends_the_run_with_torchs_words():
    agent, calls = scripted(api, ["UNKNOWN"])
    with pytest.raises(Exception, match=r"\[trainer\] Worker group in UNKNOWN state"):
        agent.run()
    assert calls[-1] == "shutdown 15 7"


def test_a_rendezvous_that_is_left_in_good_order_is_no_failure():
    agent, calls = scripted(api, [])
    agent.get_worker_group().spec.rdzv_handler.raises = RendezvousGracefulExitError("the job shrank")
    result = agent.run()
    assert (result.state, result.return_values, calls[-1]) == (WorkerState.STOPPED, {}, "shutdown 15 7")


def test_a_signal_stops_the_workers_with_that_signal_and_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    agent, calls = scripted(api, ["HEALTHY"] * 100_000)
    handler = agent.get_worker_group().spec.rdzv_handler
    handler.num_nodes_waiting = lambda: os.kill(os.getpid(), signal.SIGTERM) or 0
    with pytest.raises(SignalException) as caught:
        agent.run()
    assert caught.value.sigval == signal.SIGTERM
    assert calls[-1] == "shutdown 15 7"
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_agent_at_the_exit_barrier_hears_signals_though_another_agent_is_lost():
    agent, calls = scripted(api, ["SUCCEEDED"], rank=1, world_size=2)
    store = agent.get_worker_group().spec.rdzv_handler.store
    store.set("torchelastic/assigned_ranks/1", "[2, 4, 2, 4]")
    agent._exit_barrier_timeout = 600
    honest = store.check
    store.check = lambda keys: os.kill(os.getpid(), signal.SIGTERM) or honest(keys)
    with pytest.raises(SignalException):
        agent.run()
    assert calls[-1] == "shutdown 15 7"


def test_the_exit_barrier_gives_up_after_its_timeout_and_the_success_stays(caplog):
    agent, _ = scripted(api, ["SUCCEEDED"], rank=1, world_size=2)
    agent.get_worker_group().spec.rdzv_handler.store.set("torchelastic/assigned_ranks/1", "[2, 4, 2, 4]")
    agent._exit_barrier_timeout = 0.01
    assert agent.run().return_values == {2: "value", 3: "value"}
    assert "gave up waiting for other agents" in caplog.text


def test_a_store_that_is_over_ends_the_wait_at_the_exit_barrier_in_one_line(caplog):
    class Over(MemoryStore):
        def check(self, keys):  # noqa: ARG002
            raise DistStoreError("this store is over: rank 1 failed")

    agent, _ = scripted(api, ["SUCCEEDED"])
    agent._store = Over()
    agent._exit_barrier()
    (line,) = [one for one in caplog.records if "gave up waiting" in one.message]
    assert line.message.endswith("s: this store is over: rank 1 failed")
    assert line.exc_info is None


def test_the_last_agent_at_the_exit_barrier_lets_everybody_go():
    store = MemoryStore()
    store.add("torchelastic/agent/terminal_state/num_members", 1)
    agent, _ = scripted(api, ["SUCCEEDED"], store=store, world_size=2)
    store.set("torchelastic/role_info/1", _RoleInstanceInfo("trainer", 1, 2).serialize())
    agent.run()
    assert store.check(["torchelastic/agent/terminal_state/last_member"])


def test_an_agent_runs_in_a_thread_without_touching_signals():
    agent, _ = scripted(api, ["HEALTHY", "SUCCEEDED"])
    found = []
    thread = threading.Thread(target=lambda: found.append(agent.run().state))
    thread.start()
    thread.join()
    assert found == [WorkerState.SUCCEEDED]


def test_nodes_of_different_roles_and_sizes_get_their_ranks_in_order():
    nodes = [_RoleInstanceInfo("a", 0, 4), _RoleInstanceInfo("b", 1, 2), _RoleInstanceInfo("a", 2, 1)]
    assert places_of(nodes) == [(0, 7, 0, 5), (4, 7, 0, 2), (6, 7, 4, 5)]


def test_node_0_tells_every_node_where_its_ranks_begin():
    store = MemoryStore()
    store.set("torchelastic/role_info/1", _RoleInstanceInfo("trainer", 1, 3).serialize())
    spec = api.WorkerSpec("trainer", 2, Handler([]), entrypoint="x")
    assert [worker.global_rank for worker in assign_ranks(store, 0, 2, spec)] == [0, 1]
    other = api.WorkerSpec("trainer", 3, Handler([]), entrypoint="x")
    found = assign_ranks(store, 1, 2, other)
    assert [(worker.global_rank, worker.world_size) for worker in found] == [(2, 5), (3, 5), (4, 5)]


def test_identical_nodes_need_no_store(monkeypatch):
    monkeypatch.setenv("TORCH_ELASTIC_WORKER_IDENTICAL", "1")
    spec = api.WorkerSpec("trainer", 2, Handler([]), entrypoint="x")
    assert [worker.role_rank for worker in assign_ranks(None, 3, 4, spec)] == [6, 7]


def test_roles_are_ordered_and_found_as_in_torch():
    first, second, other = (_RoleInstanceInfo("a", 0, 1), _RoleInstanceInfo("a", 1, 1), _RoleInstanceInfo("b", 0, 1))
    assert _RoleInstanceInfo.compare(first, second) < 0 < _RoleInstanceInfo.compare(other, first)
    assert _RoleInstanceInfo.find_role_boundaries([first, second, other], "a") == (0, 1)
    assert _RoleInstanceInfo.find_role_boundaries([first], "b") == (-1, -1)
    assert _RoleInstanceInfo.deserialize(first.serialize()).local_world_size == 1


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"local_world_size": 0}, "local_world_size"),
        ({"monitor_interval": 0}, "monitor_interval"),
        ({"entrypoint": None}, "entrypoint"),
    ],
)
def test_a_spec_that_cannot_work_is_refused(wrong, named):
    fields = {"role": "r", "local_world_size": 1, "rdzv_handler": Handler([]), "entrypoint": "x", **wrong}
    with pytest.raises(AssertionError, match=named):
        api.WorkerSpec(**fields)


def test_the_old_name_of_the_entrypoint_still_works():
    with pytest.warns(DeprecationWarning, match="please use WorkerSpec.entrypoint instead"):
        spec = api.WorkerSpec("r", 1, Handler([]), fn=test_the_old_name_of_the_entrypoint_still_works)
    assert spec.get_entrypoint_name() == "test_the_old_name_of_the_entrypoint_still_works"
    assert api.WorkerSpec("r", 1, Handler([]), entrypoint="/bin/echo").get_entrypoint_name() == "echo"


def test_a_run_is_told_in_events_with_plain_values(monkeypatch):
    told = []
    for module in (api, recording):
        monkeypatch.setattr(module, "record", lambda event, _to: told.append(event))
    monkeypatch.setattr("socket.getfqdn", None)  # the name service may be slow: it is not asked
    agent, _ = scripted(api, ["FAILED", "SUCCEEDED"])
    agent.run()
    names = [event.name.rpartition(".")[2] for event in told]
    assert names == [*["RENDEZVOUS", "ASSIGN_WORKER_RANKS", "START", "START"] * 2, "SUCCEEDED", "SUCCEEDED"]
    assert told[0].source == events.EventSource.AGENT
    assert told[-1].metadata["global_rank"] == 1
    assert '"local_rank": 1' in told[-1].metadata["metadata"]
    assert told[-1].metadata["agent_restarts"] == 1
    assert told[-1].metadata["hostname"] == os.uname().nodename


def test_a_run_is_counted_in_metrics():
    counted = {}

    class Handed(metrics.MetricHandler):
        def emit(self, metric_data):
            counted[metric_data.name] = metric_data.value

    metrics.configure(Handed(), "torchelastic")
    try:
        agent, _ = scripted(api, ["FAILED", "SUCCEEDED"], max_restarts=3)
        agent.run()
    finally:
        metrics.configure(metrics.NullMetricHandler(), "torchelastic")
    wanted = {"run_total": 1, "run_success_with_retries": 1, "run_success_no_retries": 0, "flakiness": 25}
    assert {name: counted[f"workers.trainer.{name}"] for name in wanted} == wanted
    assert counted["workers.trainer.remaining_restarts"] == 2
    assert counted["SimpleElasticAgent.run.success"] == 1


def test_every_restart_leaves_one_record_whose_phases_are_its_wall_time(monkeypatch):
    told = []
    monkeypatch.setattr(synchronous, "record", lambda event, destination: told.append((event, destination)))
    agent, _ = scripted(api, ["HEALTHY", "FAILED", "SUCCEEDED"], waiting=[1])
    agent.run()
    records = [event.metadata for event, _ in told]
    assert [event.name for event, _ in told] == ["planaria.restart"] * 2
    assert [(one["restart_count"], one["charged"]) for one in records] == [(0, False), (1, True)]
    for one in records:
        phases = [one[f"{phase}_s"] for phase in PHASES]
        assert min(phases) >= 0
        assert sum(phases) == pytest.approx(one["total_s"], abs=1e-6)


def test_a_subclass_that_restarts_in_a_way_of_its_own_leaves_a_record_too(monkeypatch):
    told = []
    monkeypatch.setattr(synchronous, "record", lambda event, _destination: told.append(event.metadata))
    agent, _ = scripted(api, ["FAILED", "SUCCEEDED"])
    monkeypatch.setattr(agent, "_restart_workers", agent._start_workers)
    agent.run()
    (one,) = told
    assert one["decide_s"] + one["stop_s"] == pytest.approx(one["total_s"], abs=1e-6)
