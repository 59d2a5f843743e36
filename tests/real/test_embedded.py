"""Programs that bring the agent along: functions on workers, results by rank, and nothing of the program's touched."""

import signal
import socket

import pytest
from harness import state_of, wait_until
from host_program import Program
from ports import free_port
from stopping import stop

CRASH_ONCE = """
def work(size):
    if RANK == 2 and LIFE == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"rank": RANK, "data": "x" * size}

if __name__ == "__main__":
    found = launch(work, 3_000_000, nproc_per_node=4, start_method=METHOD)
    assert list(found) == [0, 1, 2, 3]
    assert all(value == {"rank": rank, "data": "x" * 3_000_000} for rank, value in found.items())
    assert "torch" not in sys.modules
    print("all four")
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_program_without_torch_gets_the_values_of_four_workers_though_one_crashed(tmp_path, method):
    with Program(tmp_path, CRASH_ONCE.replace("METHOD", repr(method))) as program:
        assert program.end() == "all four\n"


def test_forked_workers_return_values_too(tmp_path):
    body = """
    def work():
        if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os._exit(3)
        return int(os.environ["RANK"])

    print(launch(work, start_method="fork"))
    """
    with Program(tmp_path, body) as program:
        assert program.end() == "{0: 0, 1: 1}\n"


def test_what_is_the_callers_stays_as_it_was_however_often_agents_run(tmp_path):
    body = """
    def work():
        subprocess.Popen(["sleep", "100"])  # what a worker leaves goes with it
        return RANK

    def fds():
        return sorted(os.listdir("/proc/self/fd"))

    if __name__ == "__main__":
        other = subprocess.Popen(["sleep", "100"])
        orphan = subprocess.Popen(["sh", "-c", "exit 7"])
        handler = lambda number, frame: None
        signal.signal(signal.SIGTERM, handler)
        wake, wake_end = os.pipe()
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end)
        launch(work)  # the pipe that workers hang on stays for good
        before = fds()
        for _ in range(3):
            assert launch(work) == {0: 0, 1: 1}
        assert fds() == before, (fds(), before)
        assert signal.getsignal(signal.SIGTERM) is handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.set_wakeup_fd(-1) == wake_end
        assert orphan.wait() == 7, "somebody else took its status"
        assert other.poll() is None
        tasks = [open(f"/proc/self/task/{task}/children").read() for task in os.listdir("/proc/self/task")]
        names = [open(f"/proc/{pid}/comm").read().strip() for pid in "".join(tasks).split()]
        assert names.count("sleep") == 1, names
        other.kill()
        other.wait()
        print("as before")
    """
    with Program(tmp_path, body) as program:
        assert program.end() == "as before\n"


def test_an_agent_runs_in_a_thread_while_the_main_one_goes_on(tmp_path):
    body = """
    def work(folder):
        wait_for(folder + "/go")
        return RANK

    if __name__ == "__main__":
        folder, found = sys.path[0], []
        thread = threading.Thread(target=lambda: found.append(launch(work, folder)))
        thread.start()
        open(folder + "/go", "w").close()
        thread.join()
        print(found)
    """
    with Program(tmp_path, body) as program:
        assert program.end() == "[{0: 0, 1: 1}]\n"


def test_a_failure_names_the_worker_and_brings_its_traceback(tmp_path):
    body = """
    def work():
        if RANK == 1:
            raise KeyError("no such sample")
        wait_forever(sys.path[0])

    if __name__ == "__main__":
        try:
            launch(work, max_restarts=0)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            print(error.name, rank, list(error.failures), failure.exitcode)
            print(failure.message["message"])
            print(failure.message["extraInfo"]["py_callstack"])
    """
    with Program(tmp_path, body) as program:
        told = program.end()
    assert told.startswith("work 1 [1] 1\nKeyError: 'no such sample'\n"), told
    assert "in work" in told


def test_what_cannot_be_sent_is_refused_before_anything_starts(tmp_path):
    body = """
    from planaria.errors import UsageError

    if __name__ == "__main__":
        try:
            launch(lambda: 1)
        except UsageError as error:
            print(error)
    """
    with Program(tmp_path, body) as program:
        assert "the function" in program.end()


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_sigterm_stops_the_workers_in_order_and_then_raises(tmp_path, method):
    body = f"""
    def work(folder):
        def leave(number, frame):
            open(f"{{folder}}/heard.{{os.environ['RANK']}}", "w").close()
            os._exit(0)
        signal.signal(signal.SIGTERM, leave)
        wait_forever(folder)

    if __name__ == "__main__":
        other = subprocess.Popen(["sleep", "100"])
        try:
            launch(work, sys.path[0], start_method={method!r})
        except SignalException as error:
            print(error.sigval.name, other.poll())
        other.kill()
        other.wait()
    """
    with Program(tmp_path, body) as program:
        wait_until(lambda: len(list(tmp_path.glob("up.*"))) == 2, "the workers never came")
        program.process.send_signal(signal.SIGTERM)
        assert program.end() == "SIGTERM None\n"
    assert len(list(tmp_path.glob("heard.*"))) == 2


def test_ctrl_c_raises_keyboard_interrupt_where_it_is_not_to_be_handled_once_the_workers_are_gone(tmp_path):
    body = """
    if __name__ == "__main__":
        try:
            launch(wait_forever, sys.path[0], signals_to_handle="SIGTERM")
        except KeyboardInterrupt:
            print("interrupted")
    """
    with Program(tmp_path, body) as program:
        wait_until(lambda: len(list(tmp_path.glob("up.*"))) == 2, "the workers never came")
        program.process.send_signal(signal.SIGINT)
        assert program.end() == "interrupted\n"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_nothing_outlives_a_program_that_is_killed(tmp_path, method):
    body = f"""
    def work(folder):
        subprocess.Popen(["sleep", "100"], start_new_session=True)  # however detached
        wait_forever(folder)

    if __name__ == "__main__":
        launch(work, sys.path[0], start_method={method!r})
    """
    with Program(tmp_path, body) as program:
        wait_until(lambda: len(list(tmp_path.glob("up.*"))) == 2, "the workers never came")
        program.process.kill()
        program.process.wait()
        wait_until(lambda: not program.left(), "something outlived it")


TWO_NODES = """
def work(folder):
    if RANK == 1 and LIFE == 0:
        raise RuntimeError("once")
    return os.environ["GROUP_RANK"], os.environ["WORLD_SIZE"], LIFE

if __name__ == "__main__":
    found = launch(work, sys.path[0], min_nodes=2, max_nodes=2, rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:PORT")
    print(sorted(found.items()))
"""


def test_two_nodes_meet_restart_together_and_each_gets_the_values_of_its_own_workers(tmp_path):
    body = TWO_NODES.replace("PORT", str(free_port()))
    with Program(tmp_path, body) as one, Program(tmp_path, body) as other:
        told = sorted([one.end(), other.end()])
    assert all("rank 1 failed" in program.warnings for program in (one, other)), "one node restarted in silence"
    assert told == [
        "[(0, ('0', '4', 1)), (1, ('0', '4', 1))]\n",
        "[(2, ('1', '4', 1)), (3, ('1', '4', 1))]\n",
    ]


# With half a TTL for a lease the worker of a stopped program has 2.4 s to die in: a processor may be away for 2 s.
STOPPED = """
from planaria.rendezvous.model import Settings

Settings.lease_s = property(lambda settings: settings.ttl_s / 2)

def work(folder, node):
    open(f"{folder}/up.{node}.{os.environ['WORLD_SIZE']}.{os.getpid()}", "w").close()
    wait_for(folder + "/done")
    return int(os.environ["WORLD_SIZE"])

if __name__ == "__main__":
    conf = {"ttl": 4}
    where = dict(rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:PORT", rdzv_configs=conf)
    print(launch(work, sys.path[0], "NODE", min_nodes=1, max_nodes=2, nproc_per_node=1, **where))
"""


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_workers_of_a_stopped_program_are_dead_before_another_world_goes_on_without_it(tmp_path):
    port = free_port()
    body = STOPPED.replace("PORT", str(port))
    with Program(tmp_path, body.replace("NODE", "a")) as one:
        wait_until(lambda: is_open(port), "nobody leads")  # of two, only the leader can go on without the other
        with Program(tmp_path, body.replace("NODE", "b")) as other:
            wait_until(lambda: all(list(tmp_path.glob(f"up.{name}.2.*")) for name in "ab"), "two nodes never met")
            before = set(tmp_path.glob("up.*"))  # on a slow machine one may have begun alone
            stop(other.process.pid)
            workers = [int(path.name.rpartition(".")[2]) for path in tmp_path.glob("up.b.*")]
            try:
                wait_until(lambda: set(tmp_path.glob("up.a.1.*")) - before, "the survivor never went on")
                assert {state_of(pid) for pid in workers} <= {"Z", ""}  # its parent is stopped and cannot wait for it
            finally:
                other.process.send_signal(signal.SIGCONT)
            wait_until(lambda: set(tmp_path.glob("up.b.2.*")) - before, "it never came back")
            (tmp_path / "done").touch()
            assert sorted([one.end(), other.end()]) == ["{0: 2}\n", "{1: 2}\n"]


ASKED = """
from planaria.elastic.agent.server.api import WorkerSpec
from planaria.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from planaria.elastic.rendezvous import RendezvousParameters
from planaria.elastic.rendezvous.registry import get_rendezvous_handler

class Asked(LocalElasticAgent):
    def _monitor_workers(self, worker_group):  # a way of its own: it is asked, not driven
        return super()._monitor_workers(worker_group)

def work(folder):
    if RANK == 3 and LIFE == 0:
        raise RuntimeError("once")
    if RANK == 3:
        open(folder + "/again", "w").close()
    wait_for(folder + "/again")  # so nobody is done while another has to start again
    return os.environ["WORLD_SIZE"]

if __name__ == "__main__":
    handler = get_rendezvous_handler(RendezvousParameters("c10d", "127.0.0.1:PORT", "r", 2, 2))
    spec = WorkerSpec("trainer", 2, handler, entrypoint=work, args=(sys.path[0],), max_restarts=1, monitor_interval=0.02)
    agent = Asked(spec, DefaultLogsSpecs(), exit_barrier_timeout=30)
    result = agent.run()
    print(result.state.value, sorted(result.return_values.items()))
    handler.shutdown()
"""


def test_agents_that_can_only_be_asked_meet_through_our_handlers_too(tmp_path):
    body = ASKED.replace("PORT", str(free_port()))
    with Program(tmp_path, body) as one, Program(tmp_path, body) as other:
        told = sorted([one.end(), other.end()])
    assert told == ["SUCCEEDED [(0, '4'), (1, '4')]\n", "SUCCEEDED [(2, '4'), (3, '4')]\n"]
