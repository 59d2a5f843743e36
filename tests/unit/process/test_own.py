import os
import subprocess
import sys

import pytest
from programs import end_marked
from waiting import wait_until

from planaria.process.own import kill_own

PATIENCE_S = 30.0
OURS = f"ours-{os.getpid()}"  # the tests beside this process find all of /proc as well


@pytest.fixture
def sleeper():
    """Start processes that sleep, and end what is left of them."""
    started = []

    def start(*, session=False, **variables):
        child = subprocess.Popen(["sleep", "100"], env={**os.environ, **variables}, start_new_session=session)
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()


def test_what_is_in_the_session_or_carries_the_mark_is_killed_and_nobody_else(sleeper):
    leader, marked, other = sleeper(session=True), sleeper(session=True, MARK=OURS), sleeper(MARK="theirs")
    inherited = subprocess.Popen([sys.executable, "-c", "import signal; print(flush=True); signal.pause()"], stdout=-1)
    inherited.stdout.readline()
    try:
        assert kill_own({leader.pid}, f"MARK={OURS}".encode()) == 2
        assert leader.wait(PATIENCE_S) == marked.wait(PATIENCE_S) == -9
        assert other.poll() is None
        assert inherited.poll() is None
    finally:
        inherited.kill()
        inherited.communicate()


def test_the_dead_are_not_counted_or_waiting_for_them_would_never_end(sleeper):
    leader = sleeper(session=True)
    mark = f"MARK={OURS}".encode()
    assert kill_own({leader.pid}, mark) == 1
    wait_until(lambda: kill_own({leader.pid}, mark) == 0, "none to kill")  # it is a zombie until we wait for it
    assert os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT).si_status == 9


# It leads a session, as no worker of pytest must: the call would end the tests themselves.
OWN_SESSION = """
import os, subprocess
from planaria.process.own import kill_own
assert os.getsid(0) == os.getpid()
sleeper = subprocess.Popen(["sleep", "100"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    print(kill_own({os.getpid()}, b"NOBODY=has-this"), sleeper.wait(30))
finally:
    sleeper.kill()
"""


def test_a_process_kills_its_own_session_and_never_itself(tmp_path):
    try:
        done = subprocess.run(
            [sys.executable, "-c", OWN_SESSION],
            env={**os.environ, "FOLDER": str(tmp_path)},
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S * 2,
            check=False,
        )
    finally:
        end_marked(str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "1 -9\n"), done.stderr
