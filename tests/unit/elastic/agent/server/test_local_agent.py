import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from scripted_agent import Handler

from planaria.agent.trust import OPEN_DOOR
from planaria.base.value import replace
from planaria.contract.failure import Failure
from planaria.elastic.agent.server import embedding, local_elastic_agent, recording
from planaria.elastic.agent.server.api import WorkerSpec, WorkerState
from planaria.elastic.agent.server.local_elastic_agent import (
    LocalElasticAgent,
    _AliveCallbackProxy,
    _resolve_uninterruptible_state_timeout,
)
from planaria.elastic.agent.server.stuck import StuckWorkers
from planaria.elastic.multiprocessing import DefaultLogsSpecs, PContext, SignalException, Std
from planaria.elastic.multiprocessing.errors import ChildFailedError, record
from planaria.elastic.rendezvous import RendezvousParameters
from planaria.elastic.rendezvous.registry import get_rendezvous_handler
from planaria.process.sentry import Sentry


def program(code):
    return {"entrypoint": sys.executable, "args": ("-c", code)}


def rank_times(factor):
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("once")
    return int(os.environ["RANK"]) * factor


def agent_of(tmp_path, handler=None, kind=LocalElasticAgent, **more):
    """An agent with a foreign handler, unless another is given."""
    fields = {"role": "trainer", "local_world_size": 2, "max_restarts": 1, "monitor_interval": 0.01}
    logs = more.pop("logs", DefaultLogsSpecs(str(tmp_path / "logs")))
    agent = {name: more.pop(name) for name in ("shutdown_timeout", "start_method") if name in more}
    spec = WorkerSpec(rdzv_handler=handler or Handler([]), **{**fields, **more})
    return kind(spec, logs, **agent)


def alone():
    return get_rendezvous_handler(RendezvousParameters("c10d", "localhost:0", "run", 1, 1))


def test_a_foreign_handler_is_asked_and_values_come_back_by_global_rank(tmp_path):
    agent = agent_of(tmp_path, entrypoint=rank_times, args=(10,), start_method="fork")
    assert not embedding.can_drive(agent, LocalElasticAgent)
    result = agent.run()
    assert (result.state, result.return_values) == (WorkerState.SUCCEEDED, {0: 0, 1: 10})
    assert agent._remaining_restarts == 0


def test_one_of_ours_is_driven_and_ends_the_same(tmp_path):
    agent = agent_of(tmp_path, alone(), entrypoint=rank_times, args=(10,), start_method="fork")
    assert embedding.can_drive(agent, LocalElasticAgent)
    result = agent.run()
    assert (result.state, result.return_values) == (WorkerState.SUCCEEDED, {0: 0, 1: 10})
    group = agent.get_worker_group()
    assert (agent._remaining_restarts, group.state, group.group_world_size) == (0, WorkerState.SUCCEEDED, 1)
    assert [worker.global_rank for worker in group.workers] == [0, 1]


class Counting(LocalElasticAgent):
    """Has a way of its own to start workers."""

    started = 0

    def _start_workers(self, worker_group):
        self.started += 1
        return super()._start_workers(worker_group)


def test_a_subclass_with_its_own_ways_is_asked_though_the_handler_is_ours(tmp_path):
    agent = agent_of(tmp_path, alone(), kind=Counting, entrypoint=rank_times, args=(1,), start_method="fork")
    assert agent.run().return_values == {0: 0, 1: 1}
    assert agent.started == 2
    agent.get_worker_group().spec.rdzv_handler.shutdown()


@pytest.mark.parametrize("handler", [None, alone])
def test_programs_have_torchruns_environment_and_macros_and_fail_with_their_status(tmp_path, handler):
    code = "import os, sys; print(os.environ['MASTER_ADDR'], *sys.argv[1:]); sys.exit(3 * (os.environ['RANK'] == '1'))"
    fields = program(code)
    fields["args"] = (*fields["args"], "${local_rank}")
    logs = DefaultLogsSpecs(str(tmp_path / "logs"), redirects=Std.OUT)
    agent = agent_of(tmp_path, handler and handler(), logs=logs, max_restarts=0, **fields)
    result = agent.run()
    assert result.is_failed()
    assert {rank: failure.exitcode for rank, failure in result.failures.items()}[1] == 3
    (written,) = (tmp_path / "logs").glob("*/attempt_0/1/stdout.log")
    assert written.read_text() == "127.0.0.1 1\n"


@pytest.mark.parametrize("handler", [None, alone])
def test_a_worker_that_is_deaf_to_sigterm_is_killed_after_the_shutdown_timeout(tmp_path, handler):
    deaf = (
        "import os, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "is_deaf = os.environ['RANK'] == '0'\n"
        f"open({str(tmp_path / 'meet')!r}, 'w' if is_deaf else 'r').close()\n"  # each waits there for the other
        "sys.exit(1) if not is_deaf else signal.pause()"
    )
    os.mkfifo(tmp_path / "meet")
    agent = agent_of(tmp_path, handler and handler(), max_restarts=0, shutdown_timeout=1, **program(deaf))
    began = time.monotonic()
    assert agent.run().is_failed()
    assert time.monotonic() - began < 25  # torch's needs 30 s and more, whatever it was told


def test_workers_beside_one_that_cannot_be_started_have_the_shutdown_timeout_to_end(tmp_path, monkeypatch):
    patience_s = []
    close = PContext.close

    def seen(context, death_sig=None, timeout=30):
        patience_s.append(timeout)
        close(context, death_sig, timeout)

    monkeypatch.setattr(PContext, "close", seen)
    agent = agent_of(tmp_path, max_restarts=0, shutdown_timeout=7, entrypoint="/nowhere/to/be/found")
    with pytest.raises(FileNotFoundError):
        agent.run()
    assert patience_s == [7]


def end_the_agent_again_and_again(folder):
    def again(_number, _frame):
        os.kill(os.getppid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, again)
    (folder / f"{os.getpid()}.pid").touch()
    os.kill(os.getppid(), signal.SIGTERM)
    while True:
        signal.pause()


@pytest.mark.parametrize("handler", [None, alone])
def test_signals_that_come_while_the_workers_are_stopped_leave_none_alive(tmp_path, handler):
    agent = agent_of(
        tmp_path,
        handler and handler(),
        entrypoint=end_the_agent_again_and_again,
        args=(tmp_path,),
        start_method="fork",
        shutdown_timeout=1,
    )
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SignalException):
        agent.run()
    assert signal.getsignal(signal.SIGTERM) is before
    pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
    assert pids
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_the_signals_that_an_agent_was_given_count_for_it_and_its_workers(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGHUP")
    for handler in (None, alone()):
        agent = agent_of(tmp_path, handler, entrypoint=os.getenv, args=("TORCHELASTIC_SIGNALS_TO_HANDLE",))
        assert agent._handled_signals() == (signal.SIGHUP,)
        agent._signals_to_handle = "SIGTERM, SIGUSR9"
        assert agent._handled_signals() == (signal.SIGTERM,)
        assert set(agent.run().return_values.values()) == {"SIGTERM, SIGUSR9"}


def fail():
    raise ValueError("on purpose")


@pytest.mark.parametrize("handler", [None, alone])
def test_a_function_that_fails_leaves_an_error_file_that_record_hands_on(tmp_path, handler, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "own.json"))
    agent = agent_of(tmp_path, handler and handler(), entrypoint=fail, start_method="fork", max_restarts=0)

    @record
    def main():
        raise ChildFailedError("fail", agent.run().failures)

    with pytest.raises(ChildFailedError) as caught:
        main()
    _, failure = caught.value.get_first_failure()
    assert failure.error_file.startswith(str(tmp_path / "logs"))
    assert f"error_file: {failure.error_file}" in str(caught.value)
    told = json.loads((tmp_path / "own.json").read_text())["message"]
    assert (told["message"], told["errorCode"]) == ("ValueError: on purpose", 1)
    assert "in fail" in told["extraInfo"]["py_callstack"]


class NotHere:
    def __reduce__(self):
        return not_here, (os.getpid(),)


def not_here(pid):
    if pid != os.getpid():
        raise LookupError("only there")


@pytest.mark.parametrize("handler", [None, alone])
def test_a_value_that_cannot_be_read_here_is_a_failure_with_a_status_and_a_file(tmp_path, handler):
    agent = agent_of(tmp_path, handler and handler(), entrypoint=NotHere, start_method="fork", max_restarts=0)
    failure = next(iter(agent.run().failures.values()))
    assert failure.exitcode == 1
    written = json.loads(Path(failure.error_file).read_text())
    assert "cannot be unpickled here: LookupError: only there" in written["message"]["message"]


class Adding(DefaultLogsSpecs):
    def reify(self, envs):
        dest = super().reify(envs)
        for rank, variables in envs.items():
            variables["ADDED"] = f"for {rank}"
        return dest


@pytest.mark.parametrize("handler", [None, alone])
def test_what_a_log_plan_puts_into_the_environment_reaches_the_workers(tmp_path, handler, monkeypatch):
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3")  # not the plan's affair
    names = ["ADDED", "TORCH_NCCL_ASYNC_ERROR_HANDLING"]
    agent = agent_of(tmp_path, handler and handler(), logs=Adding(str(tmp_path)), entrypoint=variables, args=(names,))
    assert agent.run().return_values == {0: ["for 0", "3"], 1: ["for 1", "3"]}


def variables(names):
    return [os.environ.get(name) for name in names]


def test_a_crash_and_a_restart_are_told_at_the_usual_log_level(tmp_path, caplog):
    agent = agent_of(tmp_path, alone(), entrypoint=rank_times, args=(1,), start_method="fork")
    with caplog.at_level("WARNING", logger="planaria.elastic.agent.server.embedding"):
        agent.run()
    (line,) = [one.message for one in caplog.records if "ValueError: once" in one.message]
    assert line.startswith("[trainer] rank 1")
    assert line.endswith("starting all workers again (restart 1 of 1)")


def test_a_failure_of_another_node_names_its_host_and_no_file_of_this_one_is_read(tmp_path):
    path = tmp_path / "error.json"
    path.write_text('{"message": "a file of this host"}')
    told = Failure(5, 1, "elsewhere", 4711, 1, 0.0, 1.0, "exception", message="KeyError: 1", traceback="stack")
    failure = embedding._as_process_failure(replace(told, error_file=str(path)), str(path))
    assert (failure.error_file, failure.message["message"]) == ("<N/A>", "KeyError: 1")
    assert "  host      : elsewhere\n" in str(ChildFailedError("train", {5: failure}))
    here = embedding._as_process_failure(replace(told, host=os.uname().nodename), str(path))
    assert (here.error_file, here.message, here.host) == (str(path), "a file of this host", "")


@pytest.mark.parametrize("handler", [None, alone])
def test_a_program_that_does_not_exist_is_the_callers_mistake(tmp_path, handler):
    agent = agent_of(tmp_path, handler and handler(), entrypoint="/no/such/program")
    with pytest.raises(FileNotFoundError, match="/no/such/program"):
        agent.run()


def test_meetings_and_restarts_are_recorded_with_the_time_they_took(tmp_path, monkeypatch):
    seen = []
    for module in (embedding, recording):
        monkeypatch.setattr(module, "record", lambda event, _to: seen.append(event))
    agent = agent_of(
        tmp_path, alone(), entrypoint=rank_times, args=(1,), start_method="fork", event_log_handler="console"
    )
    agent.run()
    names = [event.name.rpartition(".")[2] for event in seen]
    assert names.count("RENDEZVOUS") == names.count("ASSIGN_WORKER_RANKS") == 2
    assert names.index("RENDEZVOUS") < names.index("START")
    took = [event.metadata["duration_ms"] for event in seen if event.name.endswith("RENDEZVOUS")]
    assert all(0 <= one < 60_000 for one in took)


def test_a_virtual_local_rank_sees_one_device(tmp_path, monkeypatch):
    agent = agent_of(tmp_path, entrypoint="x", virtual_local_rank=True)
    spec = agent.get_worker_group().spec
    for visible, found in ((None, "1"), ("4, 7", "7")):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        environment: dict[str, str] = {}
        agent._set_local_rank_env(environment, 1, spec)
        assert environment == {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": found}
    with pytest.raises(ValueError, match="local_rank 2 exceeds available GPUs in CUDA_VISIBLE_DEVICES=4, 7"):
        agent._set_local_rank_env({}, 2, spec)


def test_a_worker_is_stuck_when_every_look_for_so_long_finds_it_in_the_kernel(monkeypatch):
    states = {1: "D", 2: "S"}
    monkeypatch.setattr("planaria.elastic.agent.server.stuck.read_proc_state", states.get)
    stuck = StuckWorkers(10.0)
    assert stuck.among([1, 2], 0.0) == []
    assert stuck.among([1, 2], 10.0) == [1]
    states[1] = "S"
    assert stuck.among([1, 2], 11.0) == []
    states[1] = "D"
    assert stuck.among([1, 2], 12.0) == []
    assert StuckWorkers(0.0).among([1], 99.0) == []


def test_a_stuck_worker_costs_all_restarts(tmp_path, monkeypatch):
    agent = agent_of(tmp_path, **program("import signal; signal.pause()"))
    monkeypatch.setattr(agent._stuck, "timeout_s", 0.01)
    monkeypatch.setattr("planaria.elastic.agent.server.stuck.read_proc_state", lambda _pid: "D")
    result = agent.run()
    assert (result.state, agent._remaining_restarts) == (WorkerState.UNHEALTHY, 0)


@pytest.mark.parametrize(
    ("argument", "variable", "found"), [(None, None, 0), (None, "7", 7), (3, "7", 3), (None, "soon", 0), (-1, None, 0)]
)
def test_the_time_for_stuck_workers_comes_from_argument_or_variable(monkeypatch, argument, variable, found):
    monkeypatch.delenv("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", raising=False)
    if variable:
        monkeypatch.setenv("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", variable)
    assert _resolve_uninterruptible_state_timeout(argument) == found


class Server:
    """Stands in for a health check server."""

    def __init__(self, alive_callback, port, timeout):
        self.alive_callback, self.port, self.timeout, self.calls = alive_callback, port, timeout, []

    def start(self):
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")


def test_the_health_check_of_an_asked_agent_lasts_from_before_the_rendezvous_to_the_end(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        local_elastic_agent, "create_healthcheck_server", lambda **how: made.append(Server(**how)) or made[0]
    )
    monkeypatch.setenv("TORCHELASTIC_HEALTH_CHECK_PORT", "8080")
    agent = agent_of(tmp_path, entrypoint=rank_times, args=(1,), start_method="fork")
    agent.run()
    (server,) = made
    assert (server.port, server.calls) == (8080, ["start", "stop"])
    assert abs(server.alive_callback() - time.time()) < 60


@pytest.mark.parametrize("word", ["http", "65536", "-1", ""])
def test_a_port_that_is_none_starts_no_health_check(tmp_path, monkeypatch, caplog, word):
    monkeypatch.setenv("TORCHELASTIC_HEALTH_CHECK_PORT", word)
    agent = agent_of(tmp_path, entrypoint="x")
    agent._setup_healthcheck()
    assert agent._health_check_server is None
    assert f"TORCHELASTIC_HEALTH_CHECK_PORT expects a port, got {word!r}" in caplog.text


def test_an_agent_with_a_health_check_of_its_own_is_asked(tmp_path):
    agent = agent_of(tmp_path, alone(), entrypoint="x")
    assert embedding.can_drive(agent, LocalElasticAgent)
    agent._setup_healthcheck = lambda: None
    assert not embedding.can_drive(agent, LocalElasticAgent)


def test_a_callback_that_was_there_first_is_alive_until_the_agent_takes_over():
    callback = _AliveCallbackProxy()
    assert abs(callback() - time.time()) < 60
    callback.set_delegate(lambda: 7)
    assert callback() == 7


def test_an_agent_that_looks_no_more_is_not_alive(tmp_path):
    agent = agent_of(tmp_path, entrypoint="x")
    assert abs(agent._get_alive_time() - time.time()) < 60  # it meets others, which may take long
    agent._looked_at = 5
    assert agent._get_alive_time() == 5
    agent._in_exit_barrier = True
    assert agent._get_alive_time() > 5


def test_a_signal_in_a_driven_agent_leaves_torchs_handlers_as_they_were(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    agent_of(tmp_path, alone(), entrypoint=rank_times, args=(1,), start_method="fork").run()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_run_that_others_finish_without_this_node_is_left_in_good_order(tmp_path, monkeypatch):
    from planaria.agent.embedded import Ended
    from planaria.agent.model import Group, Outcome

    agent = agent_of(tmp_path, alone(), entrypoint=rank_times, args=(1,))
    ended = Ended(Outcome("done", 0), Group(size=2, max_restarts=1, grace_s=1.0), None, {})
    monkeypatch.setattr(embedding, "run_embedded", lambda *_given: ended)
    result = agent.run()
    assert (result.state, result.return_values) == (WorkerState.STOPPED, {})


def test_the_sentry_forgets_the_workers_of_a_life_that_is_over(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(Sentry, "know", lambda _sentry, workers: told.append(len(workers)))
    agent_of(tmp_path, alone(), entrypoint=rank_times, args=(1,), start_method="fork").run()
    assert told == [2, 0, 2, 0, 0], "two lives, and the end"


def test_who_drives_a_meeting_that_strangers_can_come_to_is_told_so_first(tmp_path, monkeypatch, caplog):
    said_before = []

    def meet(*_):
        said_before.extend(caplog.messages)
        raise ConnectionError("nobody is met here")

    monkeypatch.setattr(embedding, "run_embedded", meet)
    handler = get_rendezvous_handler(RendezvousParameters("c10d", "node1:1", "run", 1, 2))
    agent = agent_of(tmp_path, handler, entrypoint=rank_times, args=(1,), start_method="fork")
    with pytest.raises(ConnectionError):
        agent.run()
    assert f"run: {OPEN_DOOR}" in said_before
