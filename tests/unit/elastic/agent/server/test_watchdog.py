import os
import signal
import subprocess
import time

import pytest
from scripted_agent import Handler
from waiting import wait_until

from planaria.elastic.agent.server.api import WorkerSpec
from planaria.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from planaria.elastic.agent.server.watchdog import WorkersTimerServer
from planaria.elastic.multiprocessing import DefaultLogsSpecs
from planaria.elastic.multiprocessing.errors import ProcessFailure
from planaria.elastic.timer import FileTimerRequest

SLEEP = "sleep 100 & echo $!; wait"


@pytest.fixture
def family():
    """A shell and its child, by pid."""
    with subprocess.Popen(["sh", "-c", SLEEP], stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
        child = int(shell.stdout.readline())
        yield shell, child
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)


def expire(tmp_path, pid, workers):
    server = WorkersTimerServer(lambda: workers, file_path=str(tmp_path / "fifo"), run_id="r", max_interval=0.1)
    server._reap_expired(pid, [FileTimerRequest(pid, "step", time.time(), signal.SIGTERM)])
    server._end()
    return server


def test_a_timer_of_a_process_that_is_no_worker_ends_nobody(tmp_path, family, caplog):
    shell, child = family
    expire(tmp_path, child, {os.getpid() + 10_000_000})
    assert shell.poll() is None
    assert f"ignored a timer of pid {child}" in caplog.text


def test_what_comes_from_a_worker_is_ended_and_the_worker_s_failure_names_the_scope(tmp_path, family):
    shell, child = family
    server = expire(tmp_path, child, {shell.pid})
    assert shell.wait(60) in (0, 143), "its child was not ended"
    failures = [ProcessFailure(0, shell.pid, -15, ""), ProcessFailure(1, 4711, -15, "")]
    server.name_scopes(failures)
    assert failures[0].message.startswith("watchdog: scope 'step' expired; Signal 15 (SIGTERM)")
    assert failures[1].message == "Signal 15 (SIGTERM) received by PID 4711"


def hang():
    from planaria.elastic import timer

    timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
    with timer.expires(after=0.1, scope="forward"):
        while True:
            signal.pause()


def test_an_agent_that_is_asked_says_for_which_scope_a_worker_was_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ENABLE_FILE_TIMER", "1")
    monkeypatch.setenv("TORCHELASTIC_TIMER_FILE", str(tmp_path / "fifo"))
    spec = WorkerSpec("trainer", 1, Handler([]), entrypoint=hang, max_restarts=0, monitor_interval=0.01)
    result = LocalElasticAgent(spec, DefaultLogsSpecs(str(tmp_path)), start_method="fork").run()
    assert result.failures[0].exitcode == -signal.SIGKILL
    assert result.failures[0].message.startswith("watchdog: scope 'forward' expired; Signal 9 (SIGKILL)")


def delete_and_go_on():
    from planaria.elastic import timer

    os.unlink(os.environ["TORCHELASTIC_TIMER_FILE"])
    wait_until(lambda: os.path.exists(os.environ["TORCHELASTIC_TIMER_FILE"]), "a pipe that was made again")
    timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
    with timer.expires(after=600, scope="forward"):
        return "fine"


def test_a_worker_that_deletes_the_pipe_is_told_of_and_lives_on(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TORCHELASTIC_ENABLE_FILE_TIMER", "1")
    monkeypatch.setenv("TORCHELASTIC_TIMER_FILE", str(tmp_path / "fifo"))
    spec = WorkerSpec("trainer", 1, Handler([]), entrypoint=delete_and_go_on, max_restarts=0, monitor_interval=0.01)
    result = LocalElasticAgent(spec, DefaultLogsSpecs(str(tmp_path)), start_method="fork").run()
    assert result.return_values == {0: "fine"}
    assert f"watchdog: {tmp_path / 'fifo'} was deleted; it was made again" in caplog.messages
