"""What a worker's host does while its container runs, when docker, AWS or the host itself do not as they should."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import told_hosts
from boot_host import DECIDES, QUICK, STORE, WORKER, Host, host
from waiting import wait_until

from planaria.aws.boot import worker_user_data

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["host"]

NO_NOTICE = "[[ $* == */token ]] || exit 22"
AWAY = "echo; echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock' >&2; exit 1"
NO_SOCKET = "echo; echo 'dial unix /var/run/docker.sock: connect: no such file or directory' >&2; exit 1"
NO_CONTAINER = "echo; echo 'Error: No such object: planaria' >&2; exit 1"
FREE = "sleep() { :; }\nready() { :; }\nrefresh() { :; }\n"
CALM = f"{FREE}notice() {{ return 1; }}\nimds() {{ return 1; }}\n"


def answers(host: Host, *given: str) -> None:
    """Let docker give one answer after the other to the question how the container is, and go on with the last."""
    turns = "".join(f"{number}) {text} ;;\n" for number, text in enumerate(given[:-1], 1))
    count = f"$(grep -c '^docker inspect' {host.folder}/asked)"
    host.program("docker", f"[ $1 = inspect ] || exit 1\ncase {count} in\n{turns}*) {given[-1]} ;;\nesac")


def test_a_notice_is_heard_while_docker_hangs(host: Host) -> None:
    host.program("docker", "exec sleep 600")
    host.program("curl", "[[ $* != */spot/* ]] || echo terminate")
    script = WORKER.replace("limit=8", "limit=0.1")  # seconds
    said = host.run(script, f"{FREE}drain() {{ echo drained; }}\nwatch; echo went")
    assert "spot notice: terminate\n" in said
    assert said.endswith("drained\nwent\n")


def test_a_notice_is_looked_for_after_every_call_and_none_of_them_may_hang_for_long(host: Host) -> None:
    """Two minutes are left after a notice, and most of them belong to the drain."""
    inspected = f"$(grep -c ' docker inspect' {host.folder}/asked)"
    host.program("timeout", f"[[ $* != *inspect* || {inspected} -lt 4 ]] || {{ echo 0; exit; }}\nexit 124")  # in vain
    host.program("docker", "")
    host.program("curl", NO_NOTICE)
    host.run(WORKER, "sleep() { :; }\nwait() { SECONDS=$((SECONDS + 40)); }\nSECONDS=40\nwatch")
    asked = [
        line.partition(" aws ")[0].partition(" docker ")[0]
        for line in (host.folder / "asked").read_text().splitlines()
        if line.startswith("timeout") or "lifecycle-state" in line  # the last part of a look for a notice
    ]
    calls = [place for place, line in enumerate(asked) if line.startswith("timeout")]
    assert [asked[place] for place in calls] == [
        *["timeout -k 1 8", "timeout -k 2 8", "timeout -k 2 8"] * 3,  # how it is, that the host is ready, who is there
        "timeout -k 1 8",
    ]
    assert all(later - place > 1 for place, later in itertools.pairwise(calls))


@pytest.mark.parametrize("failure", [AWAY, NO_SOCKET, "exit 2", "exit 125"])
def test_a_docker_that_fails_for_a_moment_costs_no_container(host: Host, failure: str) -> None:
    answers(host, "echo runs", *[failure] * 12, "echo runs", *[failure] * 12, "echo 0")
    assert host.run(WORKER, f'{CALM}watch; echo "saw $seen"') == "saw 0\n"
    assert len(host.asked("docker inspect")) == 27


def test_a_docker_that_is_away_for_a_minute_is_believed_and_what_it_left_alone_goes_on(host: Host) -> None:
    answers(host, "echo runs", *[AWAY] * 13, "echo runs", "echo 3")
    begin = 'start() { echo started; }\nended() { echo "ended $1"; [ "$1" = 125 ] || exit 0; }\n'
    loop = WORKER.partition("while true; do\nstarted=")[2].rpartition("}")[0]
    said = host.run(WORKER, f"{CALM}{begin}while true; do\nstarted={loop}")
    assert said.count("started") == 1
    assert "docker does not answer: Cannot connect to the Docker daemon" in said
    assert said.index("ended 125") < said.rindex("the container runs")
    assert said.endswith("ended 3\n")


@pytest.mark.parametrize("slow", ["exit 124", "exit 137"])
def test_a_docker_that_is_back_and_slow_is_waited_for_and_its_container_lives(host: Host, slow: str) -> None:
    answers(host, "echo runs", *[AWAY] * 13, slow, slow, *[AWAY] * 12, "echo runs", "echo 3")
    begin = 'start() { echo started; }\nended() { echo "ended $1"; [ "$1" = 125 ] || exit 0; }\n'
    loop = WORKER.partition("while true; do\nstarted=")[2].rpartition("}")[0]
    said = host.run(WORKER, f"{CALM}{begin}while true; do\nstarted={loop}")
    assert said.count("started") == 1, "it would be removed"
    assert said.count("ended 125") == 1, "a minute is counted anew"
    assert said.endswith("ended 3\n")


def test_a_container_that_somebody_has_removed_is_missed_at_once(host: Host) -> None:
    answers(host, "echo runs", NO_CONTAINER)
    assert host.run(WORKER, f'{CALM}watch; echo "saw $seen"') == "saw 125\n"
    assert len(host.asked("docker inspect")) == 2


def test_a_container_that_docker_is_slow_about_still_runs(host: Host) -> None:
    answers(host, *["exit 124"] * 20, "exit 137", "echo 0")
    assert host.run(WORKER, f'{CALM}watch; echo "saw $seen"') == "saw 0\n"


def test_a_drain_waits_for_a_docker_that_is_away_and_tells_the_agent_then(host: Host) -> None:
    """The first times nothing answers; then it hears of the drain, is away once more, and ends."""
    count = f"$(grep -c '^docker {{0}}' {host.folder}/asked)"
    cases = f"exec|kill) [ {count.format('exec')} -gt 2 ] ;;\nwait) [ {count.format('wait')} -gt 1 ] ;;"
    state = f"inspect) [ {count.format('inspect')} -gt 3 ] || {{ {AWAY}; }}; echo 75 ;;"
    host.program("docker", f"case $1 in\n{cases}\n{state}\nesac")
    said = host.run(WORKER, f"{QUICK}{DECIDES}drain; echo went")
    assert said.endswith("drained, status 75\nwent\n")
    assert [len(host.asked(f"docker {word} ")) for word in ("exec", "wait", "inspect")] == [3, 2, 4]


@pytest.mark.parametrize("came_up", [0, 1])
@pytest.mark.parametrize(
    ("gave_up", "proven", "order"),
    [
        (1, "no", "set-instance-health --instance-id i-1 --health-status Unhealthy --no-should-respect-grace-period"),
        (3, "no", "set-instance-health --instance-id i-1 --health-status Unhealthy --no-should-respect-grace-period"),
        (4, "no", "terminate-instance-in-auto-scaling-group --instance-id i-1 --should-decrement-desired-capacity"),
        (4, "yes", "set-instance-health --instance-id i-1 --health-status Unhealthy --no-should-respect-grace-period"),
    ],
)
def test_a_host_that_gives_up_is_replaced_a_few_times_and_then_the_group_gets_smaller(
    host: Host, came_up: int, gave_up: int, proven: str, order: str
) -> None:
    """One that never came into service is replaced by the hook that it completes."""
    host.program("aws", f"case $* in *list-objects-v2*) echo {gave_up} ;; esac")
    alive = f"is_alive_elsewhere() {{ :; }}\nhooks={came_up} proven={proven} instance=i-1\n"
    said = host.run(WORKER, f"{QUICK}{alive}give_up 137 'too often'")
    assert said.endswith("left\n")
    assert host.asked("aws autoscaling") == ([f"aws autoscaling {order}"] if came_up else [])
    noted = host.asked("put-object --bucket bucket --key pre/fix/job/run-1/gave-up/i-1")
    assert len(noted) == (came_up if proven == "no" else 0)


def test_a_host_that_cannot_say_so_stays_and_one_that_ran_for_an_hour_is_not_counted(host: Host) -> None:
    host.program("aws", "[[ $* != *put-object* ]] || exit 255")
    alive = "is_alive_elsewhere() { :; }\nhooks=1\n"
    said = host.run(WORKER, f"{QUICK}{alive}give_up 137 'too often'")
    assert said.endswith("this host stays until the job ends\nleft\n")
    assert not host.asked("aws autoscaling")
    assert host.run(WORKER, f"{QUICK}{alive}SECONDS=3600; ended 137; echo $proven").endswith("yes\n")


def test_what_outlives_a_script_does_not_keep_the_next_one_from_its_work(host: Host) -> None:
    host.program("aws", f"echo $$ >{host.folder}/left; exec sleep 600")
    with host.started(WORKER) as process:
        left = int(wait_until(lambda: _text(host.folder / "left"), "a call of AWS"))
        process.kill()  # as the OOM killer would
    try:
        host.program("aws", "")
        said = host.run(WORKER)
        assert "the groups are at zero" in said
    finally:
        os.kill(left, signal.SIGKILL)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_two_of_a_script_are_never_at_work(host: Host) -> None:
    host.program("flock", '[ "$1" = -w ] || exit 2\nexec /usr/bin/flock -n "${@:3}"')  # nobody waits
    host.program("aws", f"echo $$ >{host.folder}/left; exec sleep 600")
    with host.started(WORKER):
        left = int(wait_until(lambda: _text(host.folder / "left"), "a call of AWS"))
        try:
            assert "another one is at work on this host" in host.run(WORKER)
        finally:
            os.kill(left, signal.SIGKILL)


def test_an_etcd_that_outlived_its_script_is_ended(host: Host) -> None:
    place = host.folder / "opt-etcd"
    place.mkdir()
    shutil.copy("/bin/sleep", place / "etcd")
    with subprocess.Popen([place / "etcd", "600"]) as old:
        try:
            host.run(STORE, "sleep() { command sleep 0.1; }\nend_others")  # between its looks, which are seconds apart
            assert old.wait(30) == -signal.SIGTERM
        finally:
            old.kill()


@pytest.mark.parametrize("answer", ["", "None\tNone", "job_worker\tNone", "job_rdzv\t"])
def test_an_answer_without_addresses_names_nobody(host: Host, answer: str) -> None:
    for script in (WORKER, worker_user_data(told_hosts.WORKER)):
        host.run(script, f"address=10.0.0.1\nwrite_hosts '{answer}'")
        listed = [line for line in (host.home / "hosts.plain").read_text().splitlines() if ".planaria" in line]
        assert listed == ["10.0.0.1 nodes.planaria"]


def test_debian_calls_docker_by_another_name(host: Host) -> None:
    host.program("apt-get", "")
    script = WORKER.replace("command -v dnf", "false").replace("command -v yum", "false")
    host.run(script, "need no-such-program docker; need no-such-program awscli")
    assert [line.split()[-1] for line in host.asked("apt-get install")] == ["docker.io", "awscli"]


def test_a_job_has_a_folder_of_its_own_on_the_volume(host: Host) -> None:
    """What EFS makes is root's, and the image's user is not."""
    for name in ("install", "chown", "chmod"):
        host.program(name, "")
    host.program("aws", "")
    host.program("docker", "[ $1 != image ] || echo 1000")
    script = worker_user_data(replace(told_hosts.WORKER, efs_id="fs-1"))
    host.run(script, "address=10.0.0.1\nhave_files\nstart")
    folder = "/mnt/efs1/jobs/job"
    assert host.asked("install ") == [
        "install -d -o 1000 -m 0700 /mnt/efs1/planaria/job/run-1",
        f"install -d -o 1000 -m 0755 {folder}",
    ]
    (words,) = host.asked("docker run")
    assert (
        f" --volume /mnt/efs1:/mnt/efs1 --env PET_SNAPSHOT_DIR=/mnt/efs1/planaria/job/run-1 --env PLANARIA_OUTPUT_DIR={folder} "
        in words
    )
