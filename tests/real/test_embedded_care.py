"""What watches over an agent that a program brings along, and over its workers: the health check and the watchdog."""

import json
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest
from harness import wait_until
from host_program import PATIENCE_S, Program
from ports import free_port
from probes import LATE
from programs import clean_environment
from stopping import stop

PROBED = """
from planaria.elastic.agent.server.api import WorkerSpec
from planaria.elastic.agent.server.health_check_server import create_healthcheck_server
from planaria.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from planaria.elastic.rendezvous import RendezvousParameters
from planaria.elastic.rendezvous.registry import get_rendezvous_handler

def work(folder):
    open(folder + "/up", "w").close()
    wait_for(folder + "/go")

if __name__ == "__main__":
    given = None
    if PORT:
        given = create_healthcheck_server(alive_callback=lambda: int(time.time()), port=PORT, timeout=60)
        given.start()
    handler = get_rendezvous_handler(RendezvousParameters("c10d", "127.0.0.1:0", "r", 1, 1))
    spec = WorkerSpec("trainer", 1, handler, entrypoint=work, args=(sys.path[0],))
    print(LocalElasticAgent(spec, DefaultLogsSpecs(), health_check_server=given).run().state.value)
"""


PATHS = ("/livez", "/", "/readyz", "/metrics", "/v1/status")


def ask(port, path, method="GET", token=""):
    """Ask over HTTP, again while the agent says that it is late; return status and body, None and nothing: nobody listens."""
    return wait_until(
        lambda: None if (found := ask_once(port, path, method, token))[1].startswith(LATE) else found,
        "a loop that turns",
    )


def ask_once(port, path, method, token):
    head = f"{method} {path} HTTP/1.0\r\nHost: localhost\r\n" + (f"Authorization: Bearer {token}\r\n" if token else "")
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            client.sendall(f"{head}\r\n".encode())
            with client.makefile("rb") as answer:
                words, body = answer.readline().split(), answer.read().partition(b"\r\n\r\n")[2]
                return int(words[1]), body.decode()
    except ConnectionRefusedError:
        return None, ""


def get(port, path):
    return ask(port, path)[0]


def test_an_embedded_agent_with_a_server_of_its_callers_answers_liveness_probes_and_nothing_else(tmp_path):
    port = free_port()
    with Program(tmp_path, PROBED.replace("PORT", str(port)), TORCHELASTIC_HEALTH_CHECK_PORT="1") as program:
        wait_until((tmp_path / "up").exists, "the worker never came")
        assert [get(port, path) for path in PATHS] == [200, 200, 404, 404, 404]
        (tmp_path / "go").touch()
        assert program.end() == "SUCCEEDED\n"
    assert get(port, "/livez") is None


def test_an_embedded_agent_answers_at_the_variables_port_what_every_agent_does(tmp_path):
    port = free_port()
    with Program(tmp_path, PROBED.replace("PORT", "0"), TORCHELASTIC_HEALTH_CHECK_PORT=str(port)) as program:
        wait_until((tmp_path / "up").exists, "the worker never came")
        assert [get(port, path) for path in PATHS] == [200] * len(PATHS)
        assert "planaria_ready 1" in ask(port, "/metrics")[1]
        job = json.loads(ask(port, "/v1/status")[1])["job"]
        assert (job["run_id"], job["agent_pid"], job["launcher_pid"]) == ("r", program.process.pid, program.process.pid)
        assert get(port, "/v1/stop") == 405
        assert ask(port, "/v1/stop", "POST")[0] == 403  # there is no token, so nobody can have it
        (tmp_path / "go").touch()
        assert program.end() == "SUCCEEDED\n"
    assert get(port, "/livez") is None


@pytest.mark.parametrize(("command", "raised"), [("drain", "SignalException 15"), ("stop", "RendezvousClosedError")])
@pytest.mark.parametrize("signals", ["SIGTERM", "SIGUSR2"])
def test_an_embedded_agent_takes_orders_with_the_token(tmp_path, command, raised, signals):
    body = """
    from planaria.elastic.rendezvous import RendezvousClosedError

    if __name__ == "__main__":
        try:
            launch(wait_forever, sys.path[0], signals_to_handle=SIGNALS)
        except SignalException as told:
            print("SignalException", int(told.sigval))
        except RendezvousClosedError:
            print("RendezvousClosedError")
        wait_until(lambda: len(os.listdir("/proc/self/task")) == 1, "the end of a thread that has been joined")
        print(threading.active_count(), len(os.listdir("/proc/self/task")))
    """.replace("SIGNALS", repr(signals))
    port = free_port()
    variables = {"TORCHELASTIC_HEALTH_CHECK_PORT": str(port), "PLANARIA_TOKEN": "a-secret"}
    with Program(tmp_path, body, **variables) as program:
        wait_until(lambda: all((tmp_path / f"up.{rank}").exists() for rank in (0, 1)), "the workers never came")
        assert [ask(port, f"/v1/{command}", "POST", token)[0] for token in ("", "another")] == [401, 403]
        assert ask(port, f"/v1/{command}", "POST", "a-secret")[0] == 202
        assert program.end() == f"{raised}\n1 1\n"  # and the thread that answered is gone


WAITING = """
if __name__ == "__main__":
    try:
        launch(wait_forever, sys.path[0])
    except BaseException as raised:
        print(type(raised).__name__)
"""


@contextmanager
def waiting_program(folder):
    """Run a program whose agent has a door, and whose workers wait for ever."""
    with Program(folder, WAITING, TORCHELASTIC_HEALTH_CHECK_PORT=str(free_port()), TMPDIR=str(folder)) as program:
        wait_until(lambda: all((folder / f"up.{rank}").exists() for rank in (0, 1)), "the workers never came")
        yield program


def order(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "planaria", *words],
        env=clean_environment(TMPDIR=str(folder)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(("command", "raised"), [("drain", "SignalException"), ("stop", "RendezvousClosedError")])
def test_the_owner_of_a_program_ends_its_run_through_the_door(tmp_path, command, raised):
    with waiting_program(tmp_path) as program:
        told = order(tmp_path, command, f"--pid={program.process.pid}")
        assert (told.returncode, told.stdout) == (0, "run r has ended on this node\n"), told.stderr
        assert program.end() == f"{raised}\n"
    assert not list(tmp_path.glob("planaria-*"))


def test_the_owner_of_a_program_that_does_not_answer_is_sent_to_it_and_not_to_who_started_it(tmp_path):
    with waiting_program(tmp_path) as program:
        stop(program.process.pid)
        told = order(tmp_path, "stop", f"--pid={program.process.pid}")
        assert told.returncode == 2
        assert f"does not answer; send SIGTERM to its launcher, pid {program.process.pid}" in told.stderr


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_worker_that_hangs_in_a_scope_is_ended_and_all_are_started_again(tmp_path, method):
    body = f"""
    from planaria import worker

    def work():
        rank, life = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
        if life == "0":
            with worker.expires(after=0.3 if rank == "1" else 600, scope="step"):
                signal.pause()
        return int(rank), int(life)

    if __name__ == "__main__":
        print(launch(work, start_method={method!r}))
    """
    with Program(tmp_path, body) as program:
        assert program.end() == "{0: (0, 1), 1: (1, 1)}\n"
