"""What watches over an agent that a program brings along, and over its workers: the health check and the watchdog."""

import socket

import pytest
from harness import wait_until
from host_program import PATIENCE_S, Program
from ports import free_port

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


def get(port, path):
    """Ask over HTTP; None when nobody listens."""
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            with client.makefile("rb") as answer:
                return int(answer.readline().split()[1])
    except ConnectionRefusedError:
        return None


@pytest.mark.parametrize("way", ["variable", "argument"])
def test_an_embedded_agent_answers_liveness_probes_and_nothing_else(tmp_path, way):
    port = free_port()
    variables = {"TORCHELASTIC_HEALTH_CHECK_PORT": str(port)} if way == "variable" else {}
    body = PROBED.replace("PORT", "0" if way == "variable" else str(port))
    with Program(tmp_path, body, **variables) as program:
        wait_until((tmp_path / "up").exists, "the worker never came")
        assert [get(port, path) for path in ("/livez", "/", "/readyz", "/v1/status")] == [200, 200, 404, 404]
        (tmp_path / "go").touch()
        assert program.end() == "SUCCEEDED\n"
    assert get(port, "/livez") is None


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
