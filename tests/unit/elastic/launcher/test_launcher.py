import os
import sys

import pytest
from scripted_agent import Handler

import planaria.launcher
from planaria.elastic.agent.server.api import RunResult, WorkerState
from planaria.elastic.launcher import api
from planaria.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from planaria.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from planaria.elastic.rendezvous import RendezvousParameters
from planaria.elastic.rendezvous.registry import handler_registry
from planaria.launcher.api import _get_addr_and_port, _get_entrypoint_name


def config(tmp_path, **more):
    fields = {"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 1, "run_id": "r", "max_restarts": 0}
    return api.LaunchConfig(**{**fields, "logs_specs": DefaultLogsSpecs(str(tmp_path)), **more})


def test_the_root_is_all_that_changes():
    assert planaria.launcher.elastic_launch is api.elastic_launch
    assert planaria.launcher.api.launch_agent is planaria.launcher.launch_agent is api.launch_agent


def test_a_config_is_completed_as_in_torch(tmp_path, monkeypatch):
    assert config(tmp_path).rdzv_configs["timeout"] == 900
    assert config(tmp_path, rdzv_timeout=7).rdzv_configs["timeout"] == 7
    assert config(tmp_path, rdzv_configs={"timeout": 8}).rdzv_configs["timeout"] == 8
    assert config(tmp_path).shutdown_timeout == 30
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5")
    assert config(tmp_path).shutdown_timeout == 5
    with pytest.raises(ValueError, match="shutdown_timeout must be non-negative, got -1"):
        config(tmp_path, shutdown_timeout=-1)
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon")
    with pytest.raises(
        ValueError, match=r"^TORCH_ELASTIC_SHUTDOWN_TIMEOUT expects a whole number of seconds, got 'soon'$"
    ):
        config(tmp_path)


def test_a_job_is_named_after_its_function_script_or_program():
    assert _get_entrypoint_name(config, []) == "config"
    assert _get_entrypoint_name(sys.executable, ["-u", "train.py", "--lr"]) == "train.py"
    assert _get_entrypoint_name("/bin/train", []) == "/bin/train"
    assert _get_entrypoint_name(None, []) == ""


def test_only_a_static_rendezvous_names_the_master():
    def parameters(backend, endpoint):
        return RendezvousParameters(backend, endpoint, "r", 1, 1)

    assert _get_addr_and_port(parameters("c10d", "host:1")) == (None, None)
    assert _get_addr_and_port(parameters("static", "host:1")) == ("host", 1)
    with pytest.raises(ValueError, match="Endpoint is missing in endpoint"):
        _get_addr_and_port(parameters("static", " "))
    with pytest.raises(ValueError, match="port is missing in endpoint: host"):
        _get_addr_and_port(parameters("static", "host"))


class Agent:
    """Stands in for the local agent, and ends as it is told."""

    ends_with: object = None
    _others_are_done = True

    def __init__(self, spec, **_more):
        self.spec = spec

    def run(self):
        if isinstance(self.ends_with, BaseException):
            raise self.ends_with
        return self.ends_with

    def get_worker_group(self):
        return self

    def get_event_failed(self):
        return "FAILED"

    def get_event_succeeded(self):
        return "SUCCEEDED"


@pytest.fixture
def told(monkeypatch):
    """Note what becomes of a foreign handler, and which events are recorded."""
    calls = []
    monkeypatch.setattr(api, "LocalElasticAgent", Agent)
    monkeypatch.setattr(api.events, "record", lambda event, _to: calls.append(event))
    handler_registry.register("foreign", lambda _parameters: Handler(calls))
    yield calls
    del handler_registry._registry["foreign"]


def launch(tmp_path, ends_with, **more):
    Agent.ends_with = ends_with
    return api.elastic_launch(config(tmp_path, rdzv_backend="foreign", rdzv_endpoint="there", **more), "program")("x")


@pytest.mark.usefixtures("told")
def test_a_password_is_in_no_log(tmp_path, caplog):
    caplog.set_level("DEBUG", api.logger.name)
    launch(tmp_path, RunResult(WorkerState.SUCCEEDED), rdzv_configs={"username": "u", "password": "s3cret"})
    assert "starting program as run r: 1:1 nodes of 1 workers, 0 restarts" in caplog.text
    assert "s3cret" not in caplog.text


def test_values_come_back_and_the_rendezvous_is_over(tmp_path, told):
    assert launch(tmp_path, RunResult(WorkerState.SUCCEEDED, return_values={0: "value"})) == {0: "value"}
    assert told == ["SUCCEEDED", "handler.shutdown"]


def test_a_failed_run_is_an_error_with_every_failure_and_over_for_all(tmp_path, told):
    failures = {3: ProcessFailure(0, 4711, -9, "")}
    with pytest.raises(ChildFailedError) as caught:
        launch(tmp_path, RunResult(WorkerState.FAILED, failures=failures))
    assert (caught.value.name, caught.value.failures) == ("program", failures)
    assert told == ["SUCCEEDED", "handler.shutdown"]


@pytest.mark.parametrize("accident", [OSError("no memory"), SignalException("stop", 15)])
def test_an_agent_that_departs_never_closes_the_run_for_others(tmp_path, told, accident):
    with pytest.raises(type(accident)):
        launch(tmp_path, accident)
    assert told == ["FAILED"]


def test_an_agent_that_waited_for_others_in_vain_does_not_close_the_run_either(tmp_path, told, monkeypatch):
    monkeypatch.setattr(Agent, "_others_are_done", False)
    launch(tmp_path, RunResult(WorkerState.SUCCEEDED))
    assert told == ["SUCCEEDED"]


def test_the_signals_to_handle_are_the_agents_own_and_no_other_launch_sees_them(tmp_path, told, monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_SIGNALS_TO_HANDLE", raising=False)
    seen = []

    def run(agent):
        seen.append((agent._signals_to_handle, os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE")))
        return Agent.ends_with

    monkeypatch.setattr(Agent, "run", run)
    launch(tmp_path, RunResult(WorkerState.SUCCEEDED))
    assert seen == [("SIGTERM,SIGINT,SIGHUP,SIGQUIT", None)]
