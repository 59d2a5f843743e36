from __future__ import annotations

import os
import resource
import stat
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.contract.env import Round
from planaria.errors import InternalError, ProcessError, UsageError
from planaria.process.lines import fill, line_prefix
from planaria.process.logs import RunLogs, folder_name, stream_kind
from planaria.process.model import DEV_NULL, STDERR, STDOUT, LogSettings, StreamMask

BOTH = StreamMask(STDOUT | STDERR)


def life(attempt: int) -> Round:
    return Round(0, "job", "default", 0, 1, 0, 2, 0, 2, 2, "localhost", 1, attempt, 9)


@pytest.fixture
def scratch(tmp_path: Path) -> str:
    path = tmp_path / "scratch"
    path.mkdir(0o700)
    return str(path)


def open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def limit_that_leaves(spare: int) -> int:
    """Return the limit of descriptors under which `spare` more can be opened, lower numbers being free or not."""
    taken = {int(fd) for fd in open_fds() if os.path.lexists(f"/proc/self/fd/{fd}")}  # not the listing's own
    limit = 0
    while spare or limit in taken:
        spare -= limit not in taken
        limit += 1
    return limit


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_the_folders_are_those_of_torchrun(tmp_path: Path, scratch: str) -> None:
    settings = LogSettings(str(tmp_path / "logs"), tee=BOTH, stdout_filters=("loss",), stderr_filters=("E", "W"))
    logs = RunLogs(settings, "job7", scratch)
    logs.begin_life(life(0))
    for local_rank in (0, 1):
        streams = logs.open_streams(local_rank)
        assert streams.stdout.kind == streams.stderr.kind == "pipe"
        assert streams.stderr.filters == (b"E", b"W")
        Path(streams.error_file).write_text("{}")
        streams.close()
    (run,) = (tmp_path / "logs").iterdir()
    assert run.name.startswith("job7_")
    assert str(run) == logs.directory
    assert logs.announce is None
    ranks = {f"attempt_0/{rank}/{name}" for rank in "01" for name in ("stdout.log", "stderr.log", "error.json")}
    assert names(run) == ranks | {"attempt_0/filtered_stdout.log", "attempt_0/filtered_stderr.log"}


def test_two_runs_with_one_id_do_not_share_a_folder(tmp_path: Path, scratch: str) -> None:
    settings = LogSettings(str(tmp_path))
    assert RunLogs(settings, "same", scratch).directory != RunLogs(settings, "same", scratch).directory


def test_an_attempt_that_has_a_folder_already_gets_another_beside_it(tmp_path: Path, scratch: str) -> None:
    logs = RunLogs(LogSettings(str(tmp_path), redirects=BOTH), "job", scratch)
    files = []
    for _life in range(3):
        logs.begin_life(life(1))
        for local_rank in (0, 1):
            streams = logs.open_streams(local_rank)
            assert streams.stdout.worker_fd is not None
            os.write(streams.stdout.worker_fd, b"kept")
            files.append(streams.stdout.log_path)
            streams.close()
    assert [os.path.relpath(str(path), logs.directory) for path in files] == [
        f"{attempt}/{rank}/stdout.log" for attempt in ("attempt_1", "attempt_1.2", "attempt_1.3") for rank in (0, 1)
    ]
    assert all(Path(str(path)).read_bytes() == b"kept" for path in files)


def test_a_rank_is_opened_once_a_life(tmp_path: Path, scratch: str) -> None:
    logs = RunLogs(LogSettings(str(tmp_path)), "job", scratch)
    logs.begin_life(life(0))
    logs.open_streams(0)
    with pytest.raises(InternalError, match="twice"):
        logs.open_streams(0)


def test_without_a_log_dir_only_error_files_exist_and_they_are_private(tmp_path: Path, scratch: str) -> None:
    before = open_fds()
    logs = RunLogs(LogSettings(), "job", scratch, temp_dir=str(tmp_path / "tmp"))
    logs.begin_life(life(2))
    streams = logs.open_streams(3)
    assert streams.error_file == f"{scratch}/attempt_2/3/error.json"
    assert streams.stdout.kind == streams.stderr.kind == "inherit"
    assert stat.S_IMODE(os.stat(os.path.dirname(streams.error_file)).st_mode) == 0o700
    assert logs.announce is None
    assert not (tmp_path / "tmp").exists()
    assert open_fds() == before


@pytest.mark.parametrize("mask", [StreamMask(STDOUT), StreamMask(by_rank=((1, STDERR),))])
def test_files_without_a_log_dir_go_to_a_folder_that_is_announced(
    tmp_path: Path, scratch: str, mask: StreamMask
) -> None:
    logs = RunLogs(LogSettings(redirects=mask), "job", scratch, temp_dir=str(tmp_path))
    assert logs.announce == logs.directory
    assert str(logs.announce).startswith(f"{tmp_path}/planaria_job_")
    logs.begin_life(life(0))
    streams = logs.open_streams(1)
    streams.close()
    assert streams.error_file.startswith(str(logs.announce))


def test_a_mask_that_names_no_stream_wants_no_files(tmp_path: Path, scratch: str) -> None:
    logs = RunLogs(LogSettings(tee=StreamMask(by_rank=((0, 0),))), "job", scratch, temp_dir=str(tmp_path))
    assert logs.directory == scratch


def test_dev_null_makes_no_files_and_still_shows_what_is_teed(tmp_path: Path, scratch: str) -> None:
    logs = RunLogs(LogSettings(DEV_NULL, tee=StreamMask(STDOUT), stdout_filters=("x",)), "job", scratch)
    logs.begin_life(life(0))
    streams = logs.open_streams(0)
    assert streams.error_file == ""
    assert streams.stdout.kind == "pipe"
    assert streams.stdout.log_fd is None
    assert streams.stdout.filtered_fd is None
    assert streams.stderr.kind == "inherit"
    streams.close()
    assert names(tmp_path) == set()


def test_a_redirected_worker_appends_to_its_file_itself(tmp_path: Path, scratch: str) -> None:
    logs = RunLogs(LogSettings(str(tmp_path), redirects=StreamMask(STDERR)), "job", scratch)
    logs.begin_life(life(0))
    streams = logs.open_streams(0)
    fd = streams.stderr.worker_fd
    assert fd is not None
    assert streams.stderr.kind == "file"
    assert streams.stdout.kind == "inherit"
    assert not os.get_inheritable(fd)
    os.write(fd, b"one")
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, b"two")
    streams.close_worker_ends()
    assert Path(str(streams.stderr.log_path)).read_bytes() == b"onetwo"


SHOWN = frozenset({0})


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        (LogSettings(), ("inherit", "inherit")),
        (LogSettings(shown_ranks=SHOWN), ("inherit", "null")),
        (LogSettings(shown_ranks=frozenset()), ("inherit", "inherit")),
        (LogSettings(redirects=BOTH), ("file", "file")),
        (LogSettings(redirects=BOTH, shown_ranks=SHOWN), ("file", "file")),
        (LogSettings(tee=BOTH), ("pipe", "pipe")),
        (LogSettings(tee=BOTH, redirects=BOTH), ("pipe", "pipe")),
        (LogSettings(tee=BOTH, shown_ranks=SHOWN), ("pipe", "file")),
        (LogSettings(tee=StreamMask(by_rank=((1, STDOUT),))), ("inherit", "pipe")),
        (LogSettings(DEV_NULL, tee=BOTH), ("pipe", "pipe")),
        (LogSettings(DEV_NULL, tee=BOTH, shown_ranks=SHOWN), ("pipe", "null")),
        (LogSettings(DEV_NULL, redirects=BOTH), ("inherit", "inherit")),
        (LogSettings(DEV_NULL, redirects=BOTH, shown_ranks=SHOWN), ("inherit", "null")),
    ],
)
def test_what_becomes_of_a_stream(settings: LogSettings, kinds: tuple[str, str]) -> None:
    assert (stream_kind(settings, STDOUT, 0), stream_kind(settings, STDOUT, 1)) == kinds


def test_a_stream_that_is_not_shown_goes_to_dev_null(scratch: str) -> None:
    logs = RunLogs(LogSettings(shown_ranks=SHOWN), "job", scratch)
    logs.begin_life(life(0))
    streams = logs.open_streams(1)
    assert os.readlink(f"/proc/self/fd/{streams.stdout.worker_fd}") == DEV_NULL
    streams.close()


def test_a_log_dir_that_is_a_file_is_the_callers_mistake(tmp_path: Path, scratch: str) -> None:
    (tmp_path / "file").write_text("")
    for path in ("file", "file/below"):
        with pytest.raises(UsageError):
            RunLogs(LogSettings(str(tmp_path / path)), "job", scratch)


def test_when_descriptors_run_out_none_is_left_open(tmp_path: Path, scratch: str) -> None:
    settings = LogSettings(str(tmp_path), tee=BOTH, stdout_filters=("x",), stderr_filters=("x",))
    logs = RunLogs(settings, "job", scratch)
    logs.begin_life(life(0))
    before = open_fds()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in range(8):  # the two streams need eight descriptors
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit_that_leaves(spare), hard))
            with pytest.raises(ProcessError, match="ulimit"):
                logs.open_streams(spare)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert open_fds() == before


def test_closing_leaves_nothing_open(tmp_path: Path, scratch: str) -> None:
    logs = RunLogs(LogSettings(str(tmp_path), tee=BOTH, stdout_filters=("x",)), "job", scratch)
    logs.begin_life(life(0))
    before = open_fds()
    logs.open_streams(0).close()
    assert open_fds() == before


def test_a_log_folder_that_vanished_is_a_process_error(tmp_path: Path, scratch: str) -> None:
    logs = RunLogs(LogSettings(str(tmp_path / "logs")), "job", scratch)
    os.rmdir(str(logs.directory))
    with pytest.raises(ProcessError, match="No such file"):
        logs.begin_life(life(0))


@pytest.mark.parametrize(
    ("run_id", "name"),
    [
        ("none", "none"),
        ("a/b", "a_b"),
        ("../../etc", "______etc"),
        ("..", "__"),
        (".hidden", "hidden"),
        ("", "run"),
        ("tr\u00e4ning 1\n", "tr_ning_1_"),
        ("job-1.2+x=3@host:80", "job-1.2+x=3@host:80"),
    ],
)
def test_a_run_id_becomes_a_plain_name(run_id: str, name: str) -> None:
    assert folder_name(run_id) == name


@given(st.text(max_size=300))
def test_no_run_id_escapes_the_log_dir(run_id: str) -> None:
    name = folder_name(run_id)
    assert 0 < len(os.fsencode(name)) <= 100
    assert "/" not in name
    assert ".." not in name
    assert name[0] != "."


def test_the_prefix_is_that_of_torchrun() -> None:
    assert line_prefix(None, role="default", local_rank=3, rank=11) == b"[default3]:"
    template = "$$ ${role_name} $local_rank ${rank} ${other} $"
    assert line_prefix(template, role="r", local_rank=3, rank=11) == b"$ r 3 11 ${other} $"
    assert line_prefix("[\udcff${rank}]", role="r", local_rank=0, rank=1) == b"[\xff1]"


@given(
    st.lists(st.sampled_from(["$", "{", "}", "rank", "role_name", "local_rank", "x", "1", "\u0131", " "])).map("".join)
)
def test_templates_mean_what_they_mean_to_string_template(template: str) -> None:
    values = {"rank": "7", "role_name": "$rank", "local_rank": "{"}
    assert fill(template, values) == string.Template(template).safe_substitute(values)


@pytest.mark.parametrize(
    ("settings", "has_log", "is_shown", "has_prefix"),
    [
        (LogSettings(reads_lines=True), False, True, False),
        (LogSettings(redirects=BOTH, reads_lines=True), True, False, False),
        (LogSettings(shown_ranks=frozenset({1}), reads_lines=True), False, False, False),
        (LogSettings(tee=BOTH, reads_lines=True), True, True, True),
    ],
    ids=["inherited", "to a file", "not shown", "teed"],
)
def test_lines_that_are_to_be_read_come_through_a_pipe_and_go_where_they_would_have_gone(
    settings: LogSettings, has_log: bool, is_shown: bool, has_prefix: bool, tmp_path: Path, scratch: str
) -> None:
    logs = RunLogs(settings, "job", scratch, temp_dir=str(tmp_path))
    logs.begin_life(life(0))
    streams = logs.open_streams(0)
    for stream in (streams.stdout, streams.stderr):
        assert stream.kind == "pipe"
        found = (stream.log_fd is not None, stream.log_path is not None, stream.is_shown, stream.has_prefix)
        assert found == (has_log, has_log, is_shown, has_prefix)
    streams.close()
