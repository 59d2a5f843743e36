"""What a host's script decides, piece by piece, by a real bash with programs of our own in the place of docker, aws and curl.

The whole of it runs in `tests/real/test_boot.py`; here are those turns that no test can wait for there.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import told_hosts
from boot_host import DECIDES, METADATA, QUICK, STORE, WORKER, Host, host

from planaria.aws.boot import worker_user_data

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["host"]

NO_DOCKER = '[ "$1" != inspect ] || echo; echo "Cannot connect to the Docker daemon" >&2; exit 1'

DECISIONS: Mapping[int, str] = {
    0: "over: 0 done",
    1: "over: 1 worker failed",
    2: "over: 2 wrong usage",
    3: "over: 3 worker failed",
    69: "restart 1 of 10",
    70: "restart 1 of 10",
    71: "restart 1 of 10",
    75: "restart 1 of 10",
    124: "restart 1 of 10",
    125: "restart 1 of 10",
    137: "restart 1 of 10",
    143: "restart 1 of 10",
}


@pytest.mark.parametrize("status", DECISIONS)
def test_the_status_of_a_container_decides_what_its_end_means(host: Host, status: int) -> None:
    assert DECISIONS[status] in host.run(WORKER, f"{QUICK}{DECIDES}ended {status}")


def test_a_container_that_docker_does_not_know_of_is_no_failure_of_the_job(host: Host) -> None:
    """`docker inspect` prints an empty line when it fails, as when its daemon is away for a moment."""
    host.program("docker", NO_DOCKER)
    assert "restart 1 of 10" in host.run(WORKER, f'{QUICK}{DECIDES}look; settle; ended "$seen"')


def test_restarts_have_a_limit_and_longer_pauses(host: Host) -> None:
    said = host.run(WORKER, f"{QUICK}{DECIDES}while true; do ended 137; done")
    assert re.findall(r"restart \d+ of 10 in (\d+) s", said) == ["2", "4", "8", "16", "32", *["60"] * 5]
    assert said.endswith("gave up: 137 the container ended too often\n")


@pytest.mark.parametrize(("status", "end"), [(0, "over: 0 done"), (75, "went"), (143, "went"), (1, "went")])
def test_a_job_that_is_done_before_its_host_has_drained_is_done(host: Host, status: int, end: str) -> None:
    host.program("docker", f"case $* in *if*) echo {status} ;; *Running*) echo false ;; esac")
    said = host.run(WORKER, f"{QUICK}{DECIDES}drain; echo went")
    assert f"drained, status {status}\n" in said
    assert said.endswith(f"{end}\n")


def test_what_still_runs_after_the_grace_is_killed(host: Host) -> None:
    host.program("timeout", '[[ $* != *" docker wait "* ]] || exit 124; shift 3; exec "$@"')
    host.program("docker", "case $* in *if*) echo 137 ;; esac")
    said = host.run(WORKER, f"{QUICK}{DECIDES}drain; echo went")
    assert "the container did not end within 90 s; it is killed\n" in said
    assert said.endswith("drained, status 137\nwent\n")
    assert host.asked("docker kill")[-1] == "docker kill planaria"


def test_a_drain_waits_for_no_docker_that_hangs(host: Host) -> None:
    host.program("timeout", "exit 124")  # as if it had waited in vain
    host.program("docker", "")
    said = host.run(WORKER, f"{QUICK}{DECIDES}drain; echo went")
    assert said.endswith("drained, status 125\nwent\n")
    orders = [line.split(" docker ") for line in host.asked("timeout ")]
    assert [(limit, order.split()[0]) for limit, order in orders] == [
        ("timeout -k 1 10", "exec"),
        ("timeout -k 1 10", "kill"),
        ("timeout -k 1 90", "wait"),
        ("timeout -k 1 10", "kill"),
        ("timeout -k 1 10", "inspect"),
    ]
    assert len((host.folder / "asked").read_text().splitlines()) == len(orders)  # there was no other call


def test_a_host_of_a_job_that_is_over_turns_the_groups_off_and_starts_nothing(host: Host) -> None:
    """Whoever recorded the result may have died before it did so."""
    host.program("aws", "")
    host.program("docker", "")
    said = host.run(WORKER)
    assert "the job is over" in said
    sizes = host.asked("update-auto-scaling-group")
    assert [words.split()[4] for words in sizes] == ["job_worker", "job_rdzv"]
    assert all("--min-size 0 --desired-capacity 0" in words for words in sizes)
    assert host.asked("planaria-drain --instance-id i-1 --lifecycle-action-result CONTINUE")
    assert not host.asked("docker")


@pytest.mark.parametrize(
    ("in_service", "came_up", "end"),
    [
        ("i-2\ti-3", 0, "left"),
        ("", 0, "over: 1 no image"),
        ("None", 0, "over: 1 no image"),
        ("i-2", 1, "over: 1 no image"),
    ],
)
def test_a_host_that_cannot_be_set_up_does_not_end_the_job_of_those_that_could(
    host: Host, in_service: str, came_up: int, end: str
) -> None:
    host.program("aws", f"printf '%s\\n' '{in_service}'")
    over = 'end_job() { echo "over: $1 $2"; exit 0; }\n'
    assert host.run(WORKER, f"{QUICK}{over}hooks={came_up}\ngive_up 1 'no image'").endswith(f"{end}\n")


@pytest.mark.parametrize(
    ("image", "login"),
    [
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/trainer:1", 0),
        ("123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com/trainer@sha256:00", 0),
        ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/trainer", 1),
        ("docker.io/amazonaws.com/trainer:1", 0),
    ],
)
def test_an_image_in_a_registry_of_aws_is_pulled_after_a_login_there(host: Host, image: str, login: int) -> None:
    registry = image.partition("/")[0]
    host.program("docker", f"case $1 in image) exit 1 ;; login) cat >{host.folder}/password; exit {login} ;; esac")
    host.program("aws", "echo secret")
    script = worker_user_data(replace(told_hosts.WORKER, image=image))
    said = host.run(script, "if have_image; then echo had; else echo lacked; fi")
    logins = [f"docker login --username AWS --password-stdin {registry}"] if ".ecr" in registry else []
    assert host.asked("docker login") == logins
    assert host.asked("aws ") == [f"aws ecr get-login-password --region {registry.split('.')[3]}" for _ in logins]
    assert not logins or (host.folder / "password").read_text() == "secret\n"
    assert host.asked("docker pull") == ([] if login else [f"docker pull -q {image}"])
    assert said.endswith("lacked\n" if login else "had\n")


@pytest.mark.parametrize(
    ("refusal", "is_there", "copies", "end"),
    [
        ("Unknown options: --if-none-match, *", False, 1, "recorded"),
        ("Unknown options: --if-none-match, *", True, 0, "recorded"),
        ("An error occurred (PreconditionFailed) when calling the PutObject operation", True, 0, "recorded"),
        ("An error occurred (AccessDenied) when calling the PutObject operation", False, 0, "refused"),
    ],
)
def test_the_first_result_counts_also_with_an_aws_that_knows_no_conditions(
    host: Host, refusal: str, is_there: bool, copies: int, end: str
) -> None:
    found = 0 if is_there else 1
    host.program(
        "aws", f"case $* in *put-object*) echo '{refusal}' >&2; exit 252 ;; *head-object*) exit {found} ;; esac"
    )
    said = host.run(WORKER, "instance=i-1\nif record 3 'worker failed'; then echo recorded; else echo refused; fi")
    assert said.endswith(f"{end}\n")
    assert len(host.asked("aws s3 cp")) == copies
    assert json.loads((host.home / "result.json").read_text())["status"] == 3


def test_a_program_that_cannot_be_installed_at_once_is_tried_again(host: Host) -> None:
    made = host.folder / "bin" / "no-such-program"
    host.program(
        "dnf", f"[ -e {host.folder}/tried ] && cp /bin/true {made} || {{ touch {host.folder}/tried; exit 1; }}"
    )
    said = host.run(WORKER, f"{QUICK}persist need no-such-program some-package; echo here")
    assert said.count("installing some-package, for no-such-program") == 2
    assert said.endswith("here\n")


@pytest.mark.parametrize("script", [WORKER, STORE], ids=["worker", "store"])
def test_no_call_of_aws_may_take_longer_than_a_notice_allows(script: str) -> None:
    called = [line.strip() for line in script.splitlines() if re.search(r"(?<![\w-])aws (?!awscli)", line)]
    assert called == ['timeout -k 2 "$patience" aws "$@"']
    assert "persist need aws awscli\n" in script


def test_a_group_that_does_not_ask_is_told_eight_times_within_twenty_minutes(host: Host) -> None:
    host.program("aws", "exit 1")
    host.run(WORKER, "for ((SECONDS = 0; SECONDS < 3600; SECONDS += 5)); do ready job_worker; done")
    assert len(host.asked("complete-lifecycle-action")) == 8
    host.program("aws", "")
    host.run(WORKER, "for ((SECONDS = 0; SECONDS < 3600; SECONDS += 5)); do ready job_worker; done")
    assert len(host.asked("complete-lifecycle-action")) == 9


@pytest.mark.parametrize("count", [1, 900])
def test_the_list_of_hosts_has_one_size_and_everybody_in_it(host: Host, count: int) -> None:
    rows = "".join(f"job_worker\t10.1.{number // 250}.{number % 250}\n" for number in range(count))
    said = host.run(WORKER, f"address=10.0.0.1\nwrite_hosts '{rows}'\necho written")
    assert said.endswith(f"in the job: {count + 1} workers' hosts\nwritten\n")
    content = (host.home / "hosts").read_text()
    assert len(content) == 32768
    assert content.count(" nodes.planaria\n") == count + 1


class Store(Host):
    """A host with an etcd that runs until somebody writes into `release`."""

    def __init__(self, folder: Path, *, serves: bool) -> None:
        super().__init__(folder)
        os.mkfifo(folder / "release")
        (folder / "opt-etcd").mkdir()
        self.program("etcd", f"read -r _ <{folder}/release")
        (folder / "bin/etcd").rename(folder / "opt-etcd/etcd")
        health = f"*/health) exit {0 if serves else 7} ;;"
        self.program("curl", METADATA.replace("case $* in", f"case $* in\n{health}"))

    def run_with(self, sleep: str) -> str:
        script = STORE.replace("/var/lib/planaria", f"{self.folder}/lib")
        begin = '\nsay "the store'
        return self.run(script.replace(begin, f"\nslept=0\nsleep() {{ {sleep}; }}{begin}"))


def test_the_store_s_host_is_ready_once_etcd_answers_and_then_only_etcd_s_end_wakes_it(tmp_path: Path) -> None:
    host = Store(tmp_path, serves=True)
    host.program("aws", f"echo >{tmp_path}/release")  # the group's hook is completed
    said = host.run_with("exit 0")  # before the second etcd
    assert "etcd serves at 10.0.0.1:2379\n" in said
    assert said.endswith("etcd ended with status 0; starting it again\n")
    assert len(host.asked("planaria-ready --instance-id i-1 --lifecycle-action-result CONTINUE")) == 1


def test_the_store_s_host_is_not_ready_while_etcd_does_not_answer(tmp_path: Path) -> None:
    host = Store(tmp_path, serves=False)
    host.program("aws", f"echo >{tmp_path}/release")
    end = f'echo >{tmp_path}/release; wait "$etcd"'
    said = host.run_with(f"case $((++slept)) in 3) {end} ;; 4) exit 0 ;; esac")
    assert re.search(r"etcd ended with status \d+; starting it again\n$", said)
    assert len(host.asked("/health")) == 3
    assert host.asked("aws ") == []


def test_an_etcd_that_is_not_what_was_asked_for_is_not_run_and_the_group_tries_another_host(host: Host) -> None:
    host.program("curl", METADATA.replace("case $* in\n", 'case $* in\n*etcd.tar.gz) echo other >"${@: -2:1}" ;;\n'))
    host.program("aws", "")
    host.program("sleep", "")
    said = host.run(STORE, status=1)
    wrong = f"https://example.com/etcd.tar.gz is not what was asked for: expected SHA-256 {'0' * 64}\n"
    assert said.count(wrong) == 5
    assert [line.split()[-1] for line in host.asked("aws ")] == ["ABANDON"]
    assert not list(host.folder.glob("opt-etcd/*"))


def test_a_script_that_ends_by_mistake_says_so(host: Host) -> None:
    said = host.run(WORKER, "false", status=1)
    assert "stopped with status 1: nobody looks after this host now" in said
