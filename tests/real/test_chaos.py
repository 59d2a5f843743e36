"""`planaria chaos` for real: a campaign that a job survives, a job that cannot, and ends before the end.

PLANARIA_TEST_CHAOS says how many faults (30; 300 at night), PLANARIA_TEST_SEED which campaign.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fences
import pytest
from harness import wait_until
from programs import clean_environment, marked

from planaria.base.linux import is_running
from planaria.chaos import hosts

FAULTS = int(os.environ.get("PLANARIA_TEST_CHAOS", "30"))
SEED = os.environ.get("PLANARIA_TEST_SEED", "3")
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "numpy" / "main.py")
STEPS_OF_AN_EPOCH = 42  # three workers with 16 of 2,000 samples a step
# From one fault to the next the job makes eight or nine steps, and some 60 while a processor is away for 2 s.
EPOCHS = 1 + FAULTS * 13 // STEPS_OF_AN_EPOCH
LIMIT_S = 120 + 10 * FAULTS
JUDGED_FAULTS = (
    100  # the last node's agent lives through the second half of so many: longer than it takes to judge its memory
)
COMMAND = (sys.executable, "-m", "planaria", "chaos")
FORGETFUL = '''
"""Goes on at the step that a file has, and with a sum that was only in memory: it ends with 0, and wrong."""
import os, sys, time
from planaria import worker

path = f"{sys.argv[1]}/step.{os.environ['RANK']}.{os.environ['WORLD_SIZE']}.{os.environ['TORCHELASTIC_RUN_ID']}"
step = int(open(path).read()) if os.path.exists(path) else 0
total = 0
lives = [int(os.environ[f"TORCHELASTIC_{name}"]) for name in ("RESTART_COUNT", "MAX_RESTARTS")]
last = max(90, step + 40)
while step < last or lives[0] < lives[1]:  # it ends when all faults have come
    step += 1
    total += step
    with open(path + ".new", "w") as file:
        file.write(str(step))
    os.replace(path + ".new", path)
    worker.report_progress(step)
    time.sleep(0.02)  # what a step takes
print("sum", total, flush=True)
'''
CARELESS = '''
"""Leaves shared memory and a process that nothing marks, and kills whoever would have seen to them."""
import os, signal, subprocess, sys, time
from planaria import worker

def is_ours(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return b"PLANARIA_CHAOS_MARK" in file.read()

def stat(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()

def parent(pid):
    return int(stat(pid)[1])

step = 0
while True:
    step += 1
    worker.report_progress(step)
    if step == 30 and os.environ["RANK"] == "0":
        open(f"/dev/shm/{sys.argv[2]}", "w").close()
        line = [parent(os.getpid())]
        while is_ours(parent(line[-1])):
            line.append(parent(line[-1]))
        for pid in reversed(line):
            os.kill(pid, signal.SIGSTOP)
        while any(stat(pid)[0] != "T" for pid in line):
            pass
        # The agent first: without its parent it would be woken (POSIX: orphaned process group). We die with it.
        kill = f"echo $$ > {sys.argv[1]}/left; kill -KILL {' '.join(map(str, line))}; exec sleep 300"
        subprocess.Popen(["env", "-i", "setsid", "sh", "-c", kill])
    time.sleep(0.02)  # what a step takes
'''
BACKWARDS = '''
"""Has its commit back, and begins before it all the same."""
import os, time
from planaria import worker

lives = [int(os.environ[f"TORCHELASTIC_{name}"]) for name in ("RESTART_COUNT", "MAX_RESTARTS")]

class State(worker.ElasticState):
    def restore(self):
        found = super().restore()
        self.step = 0
        return found

def step(state):
    time.sleep(0.02)  # what a step takes
    if state.step >= 80 and lives[0] == lives[1]:  # it ends when all faults have come
        raise StopIteration

worker.train_loop(State(step=0), step)
'''


@functools.cache
def why_no_networks() -> str:
    return hosts.why_not()


def alone() -> tuple[str, ...]:
    """Return what gives a command a /dev/shm of its own: other tests leave things in that of all, which are not the job's."""
    return (
        ()
        if why_no_networks()
        else ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh")
    )


def start(*words: str, folder: Path, before: tuple[str, ...] = (), **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, *COMMAND, *words],
        env=clean_environment(CHAOS_TEST=str(folder), **variables),  # its folders are in the session's TMPDIR
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*words: str, folder: Path, status: int = 0, before: tuple[str, ...] = (), **variables: str) -> tuple[str, str]:
    """Run it to its end, with nothing left; return what it printed."""
    chaos = start(*words, folder=folder, before=before, **variables)
    out, err = chaos.communicate(timeout=LIMIT_S)
    assert chaos.returncode == status, f"{out}\n{err}"
    assert marked(str(folder)) == []
    temporary = Path(os.environ["TMPDIR"])
    assert [*temporary.glob("chaos-logs-*"), *temporary.glob("pch-*")] == []
    return out, err


def script(folder: Path, text: str) -> str:
    path = folder / "job.py"
    path.write_text(text)
    return str(path)


def states(verdict: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["state"] for row in verdict["promises"]}


@pytest.mark.timeout(LIMIT_S + 20)
def test_a_job_with_an_elastic_state_keeps_every_promise_through_all_kinds_of_faults(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    flags = ["--json", f"--seed={SEED}", f"--faults={FAULTS}", f"--keep={tmp_path / 'logs'}", f"--time-limit={LIMIT_S}"]
    flags += [f"--ttl={fences.TTL_S}", *([] if why_no_networks() else ["--networks"])]
    job = [EXAMPLE, f"--epochs={EPOCHS}", "--samples=2000", "--print-freq=50", "--step-seconds=0.03"]
    out, err = run(*flags, "--", *job, folder=tmp_path, before=alone(), **fences.early())
    verdict = json.loads(out)
    told = states(verdict)
    assert told.pop("memory") in (("kept",) if FAULTS >= JUDGED_FAULTS else ("kept", "open")), err
    assert set(told.values()) == {"kept"}, err
    assert (verdict["planned"], verdict["struck"]) == (FAULTS, FAULTS), err
    assert verdict["result"]["got"].startswith(f"finished after step {EPOCHS * STEPS_OF_AN_EPOCH}: ")
    assert err.count("\n[") == FAULTS
    if os.geteuid() == 0 and not why_no_networks():
        assert verdict["skipped"] == {}


def test_a_job_that_keeps_its_state_in_memory_alone_is_found_out(tmp_path: Path) -> None:
    flags = ["--nodes=2", "--faults=2", "--kinds=kill-worker", f"--keep={tmp_path / 'logs'}"]
    job = (script(tmp_path, FORGETFUL), str(tmp_path))
    out, err = run(*flags, "--", *job, folder=tmp_path, status=1, before=alone())
    assert "without faults it is 'sum 4095'" in out, err
    assert broken(out) == ["result:"], out
    assert "at work again after" in out.partition("\nresult: ")[2], "the story begins with the fault"
    assert f"logs and events: {tmp_path / 'logs'}" in out
    assert {"n1.1.err", "n1.1.events.jsonl", "n1.1.out"} <= set(os.listdir(tmp_path / "logs"))


def broken(out: str) -> list[str]:
    return [line.split()[1] for line in out.splitlines() if line.startswith("BROKEN")]


def test_a_process_without_a_mark_and_shared_memory_are_found_and_the_process_is_ended(tmp_path: Path) -> None:
    shared = Path("/dev/shm", f"chaostest{os.getpid()}")
    flags = ["--nodes=2", "--faults=1", "--kinds=pause-worker", "--compare=none", f"--keep={tmp_path / 'logs'}"]
    job = script(tmp_path, CARELESS)
    try:
        out, err = run(*flags, "--", job, str(tmp_path), shared.name, folder=tmp_path, status=1)
    finally:
        shared.unlink(missing_ok=True)
    left = int((tmp_path / "left").read_text())
    assert {"no-orphans:", "no-leaks:"} <= set(broken(out)), f"{out}\n{err}"
    assert f"there still was pid {left}: sleep 300" in out
    assert not is_running(left)
    assert f"the job left {shared} in /dev/shm" in out


def test_a_commit_that_is_not_gone_on_from_is_lost(tmp_path: Path) -> None:
    flags = ["--nodes=2", "--faults=1", "--kinds=kill-worker", "--compare=none", f"--keep={tmp_path / 'logs'}"]
    out, err = run(*flags, "--", script(tmp_path, BACKWARDS), folder=tmp_path, status=1, before=alone())
    assert broken(out) == ["commits:"], f"{out}\n{err}"
    assert " went on from step 0; step " in out


def test_a_file_that_is_there_is_not_taken_for_the_result(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    _, err = run(f"--compare={mine}", "--", "no_such_script.py", folder=tmp_path, status=2)
    assert err == f"planaria: --compare expects a file that is not there yet: both runs write it, got '{mine}'\n"
    assert mine.read_text() == "precious"


def test_ctrl_c_ends_everything_that_was_started_and_says_what_was_seen(tmp_path: Path) -> None:
    endless = script(tmp_path, FORGETFUL.replace("step < last", "True"))
    flags = ["--nodes=2", "--faults=50", "--kinds=pause-worker", "--compare=none", f"--keep={tmp_path / 'logs'}"]
    chaos = start(*flags, "--", endless, str(tmp_path), folder=tmp_path, before=alone())
    assert chaos.stderr is not None
    assert chaos.stderr.readline().startswith("[1/50] ")
    while chaos.poll() is None:  # none but the first is heard
        chaos.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            chaos.wait(0.01)
    out, _ = chaos.communicate(timeout=60)
    assert chaos.returncode == 130
    assert out.endswith("\ninterrupted; nothing broken so far\n")
    assert " of 50 faults in " in out
    assert marked(str(tmp_path)) == []


def test_nothing_outlives_a_campaign_that_was_killed(tmp_path: Path) -> None:
    endless = script(tmp_path, FORGETFUL.replace("step < last", "True"))
    flags = ["--nodes=2", "--faults=50", "--kinds=pause-worker", "--compare=none", f"--keep={tmp_path / 'logs'}"]
    chaos = start(*flags, "--", endless, str(tmp_path), folder=tmp_path)
    assert chaos.stderr is not None
    assert chaos.stderr.readline().startswith("[1/50] ")
    chaos.kill()
    chaos.communicate(timeout=60)
    wait_until(lambda: not marked(str(tmp_path)), "no process left")


def test_a_job_that_fails_by_itself_is_not_struck(tmp_path: Path) -> None:
    words = ["--nodes=2", "--", script(tmp_path, "raise SystemExit('no data')")]
    _, err = run(*words, folder=tmp_path, status=2)
    assert "no data" in err
    _, told = run(f"--keep={tmp_path / 'logs'}", *words, folder=tmp_path, status=2)
    assert f"planaria chaos: logs and events: {tmp_path / 'logs'}\n" in told
    assert err.endswith("planaria: the job does not end well even undisturbed: its status is 1\n")
    _, err = run("--nodes=2", "--", script(tmp_path, "pass"), folder=tmp_path, status=2)
    assert "there is no result to compare: rank 0 prints nothing" in err


def test_a_dry_run_prints_the_plan_and_starts_nothing(tmp_path: Path) -> None:
    words = ("--dry-run", "--faults=9", "--seed=4", "--", "no_such_script.py")
    text, err = run(*words, folder=tmp_path)
    assert err == ""
    assert [line.split()[0] for line in text.splitlines()[:9]] == [str(number) for number in range(1, 10)]
    assert run(*words, folder=tmp_path)[0] == text
    plan = json.loads(run("--json", *words, folder=tmp_path)[0])
    assert len(plan["faults"]) == 9
    assert set(plan["skipped"]) >= {"cut-network", "slow-network"}
    for more, variant in (("--no-python", "for ever"), ("--hang-policy=report", "")):
        hang = run("--json", "--kinds=hang", f"--with={more}", *words, folder=tmp_path)[0]
        assert {fault["variant"] for fault in json.loads(hang)["faults"]} == {variant}


def test_logs_are_not_mixed_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    _, err = run(f"--keep={tmp_path}", "--", "no_such_script.py", folder=tmp_path, status=2)
    assert err == f"planaria: --keep expects a folder that is empty or not there yet, got '{tmp_path}'\n"
