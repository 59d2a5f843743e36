from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from planaria.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, LogsSpecs, Std


def envs(count: int = 2, attempt: int = 0) -> dict[int, dict[str, str]]:
    names = {"TORCHELASTIC_RUN_ID": "job/7", "TORCHELASTIC_RESTART_COUNT": str(attempt)}
    return {rank: dict(names) for rank in range(count)}


def test_the_folders_are_those_of_torch(tmp_path: Path) -> None:
    specs = DefaultLogsSpecs(str(tmp_path / "logs"), redirects={1: Std.ERR}, tee={0: Std.OUT})
    found = envs()
    dest = specs.reify(found)
    (run,) = (tmp_path / "logs").iterdir()
    attempt = run / "attempt_0"
    assert run.name.startswith("job_7_")
    assert dest.stdouts == {0: str(attempt / "0" / "stdout.log"), 1: ""}
    assert dest.stderrs == {0: "", 1: str(attempt / "1" / "stderr.log")}
    assert (dest.tee_stdouts, dest.tee_stderrs) == ({0: dest.stdouts[0]}, {})
    assert dest.error_files == {rank: str(attempt / str(rank) / "error.json") for rank in (0, 1)}
    assert [env["TORCHELASTIC_ERROR_FILE"] for env in found.values()] == list(dest.error_files.values())
    assert (dest.filtered_stdout, dest.filtered_stderr) == (
        str(attempt / "filtered_stdout.log"),
        str(attempt / "filtered_stderr.log"),
    )


def test_nothing_of_an_earlier_round_with_the_same_attempt_is_deleted(tmp_path: Path) -> None:
    specs = DefaultLogsSpecs(str(tmp_path), redirects=Std.ALL)
    first = specs.reify(envs())
    Path(first.error_files[0]).write_text("{}")
    second = specs.reify(envs())
    assert Path(first.error_files[0]).read_text() == "{}"
    assert "attempt_0.2" in second.stdouts[0]
    assert "attempt_1/" in specs.reify(envs(attempt=1)).stdouts[0]


def test_ranks_that_are_filtered_out_are_not_shown(tmp_path: Path) -> None:
    dest = DefaultLogsSpecs(str(tmp_path), redirects={1: Std.OUT}, tee=Std.ERR, local_ranks_filter={0}).reify(envs())
    assert list(dest.tee_stderrs) == [0]
    assert dest.stdouts[0] == ""
    assert dest.stdouts[1].endswith("1/stdout.log")
    assert dest.stderrs[1].endswith("1/stderr.log")
    quiet = DefaultLogsSpecs(str(tmp_path), local_ranks_filter={0}).reify(envs())
    assert quiet.stdouts == {0: "", 1: os.devnull}


def test_dev_null_means_no_files_at_all() -> None:
    specs = DefaultLogsSpecs(os.devnull, redirects=Std.ALL)
    found = envs(1)
    dest = specs.reify(found)
    assert dest == LogsDest({0: ""}, {0: ""}, {0: os.devnull}, {0: os.devnull}, {0: os.devnull}, os.devnull, os.devnull)
    assert found[0]["TORCHELASTIC_ERROR_FILE"] == ""


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file"):
        DefaultLogsSpecs(str(tmp_path / "file"))


def test_two_plans_are_equal_when_all_they_say_is(tmp_path: Path) -> None:
    assert DefaultLogsSpecs(str(tmp_path)) == DefaultLogsSpecs(str(tmp_path))
    assert DefaultLogsSpecs(str(tmp_path)) != DefaultLogsSpecs(str(tmp_path), tee=Std.OUT)
    assert "redirects=" in repr(DefaultLogsSpecs(str(tmp_path)))


@pytest.mark.parametrize(("mask", "is_kept"), [("Std.NONE", False), ("Std.OUT", True)])
def test_a_temporary_folder_is_kept_only_for_output(tmp_path: Path, mask: str, is_kept: bool) -> None:
    code = f"""
from planaria.elastic.multiprocessing import DefaultLogsSpecs, Std
specs = DefaultLogsSpecs(redirects={mask})
specs.reify({{0: {{}}}})
print(specs.root_log_dir)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith(str(tmp_path / "torchelastic_"))
    assert os.path.exists(done.stdout.strip()) is is_kept


def test_a_plan_that_is_never_asked_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    specs = DefaultLogsSpecs(redirects=Std.OUT)
    assert list(tmp_path.iterdir()) == []
    specs.reify({0: {}})
    assert [str(path) for path in tmp_path.iterdir()] == [specs.root_log_dir]


def test_a_plan_of_one_s_own_has_to_say_both_things() -> None:
    class Half(LogsSpecs):
        def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
            return LogsDest(dict.fromkeys(envs, ""))

    with pytest.raises(TypeError, match="root_log_dir"):
        Half()  # type: ignore[abstract]
