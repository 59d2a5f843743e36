from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from planaria.contract.error_file import LIMIT_BYTES
from planaria.elastic.multiprocessing.errors import (
    ChildFailedError,
    ErrorHandler,
    ProcessFailure,
    get_error_handler,
    record,
)


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that this process is told to write its errors to."""
    path = tmp_path / "own.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    return path


def failure(path: Path | str = "", *, exitcode: int = 1, local_rank: int = 0) -> ProcessFailure:
    return ProcessFailure(local_rank=local_rank, pid=100 + local_rank, exitcode=exitcode, error_file=str(path))


def written(path: Path, message: str = "E: x", seconds: int = 17, modified: float | None = None) -> Path:
    told = {"message": message, "extraInfo": {"py_callstack": "Traceback\nE: x", "timestamp": str(seconds)}}
    path.write_text(json.dumps({"message": told}))
    if modified is not None:
        os.utime(path, (modified, modified))
    return path


def raise_it() -> None:
    raise RuntimeError("no more data")


def test_an_exception_is_written_in_torch_s_format_and_raised_on(own_file: Path) -> None:
    before = time.time()
    with pytest.raises(RuntimeError, match="no more data"):
        record(raise_it)()
    told = json.loads(own_file.read_text())
    assert list(told) == ["message"]
    assert told["message"]["message"] == "RuntimeError: no more data"
    assert sorted(told["message"]["extraInfo"]) == ["py_callstack", "timestamp"]
    assert "in raise_it" in told["message"]["extraInfo"]["py_callstack"]
    assert int(before) <= int(told["message"]["extraInfo"]["timestamp"]) <= time.time()
    assert before <= os.stat(own_file).st_mtime <= time.time()


def test_what_we_write_we_read(own_file: Path) -> None:
    with pytest.raises(RuntimeError):
        record(raise_it)()
    found = failure(own_file)
    assert found.message["message"] == "RuntimeError: no more data"
    assert found.error_file_data == json.loads(own_file.read_text())
    assert found.timestamp == int(found.exact_timestamp)
    assert found.exact_timestamp == pytest.approx(os.stat(own_file).st_mtime)


def test_what_a_function_returns_is_returned(own_file: Path) -> None:
    assert record(lambda x, *, y: x + y)(1, y=2) == 3
    assert not own_file.exists()


def test_a_recorded_function_keeps_its_name() -> None:
    assert record(raise_it).__name__ == "raise_it"


@pytest.mark.parametrize("code", [0, None])
def test_leaving_with_a_good_status_is_a_return(own_file: Path, code: int | None) -> None:
    def leave() -> None:
        raise SystemExit(code)

    assert record(leave)() is None
    assert not own_file.exists()


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit("text"), KeyboardInterrupt()])
def test_leaving_badly_and_interrupts_are_raised_and_not_written(own_file: Path, error: BaseException) -> None:
    def leave() -> None:
        raise error

    with pytest.raises(type(error)):
        record(leave)()
    assert not own_file.exists()


def test_a_handler_of_one_s_own_is_used(own_file: Path) -> None:
    heard: list[Any] = []

    class Mine(ErrorHandler):
        def initialize(self) -> None:
            heard.append("ready")

        def record_exception(self, e: BaseException) -> None:
            heard.append(e)

    with pytest.raises(RuntimeError) as caught:
        record(raise_it, Mine())()
    assert heard == ["ready", caught.value]
    assert not own_file.exists()


def test_without_an_error_file_the_error_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    caplog.set_level(logging.INFO, "planaria.elastic.multiprocessing.errors.error_handler")
    get_error_handler().record_exception(RuntimeError("lost"))
    assert "RuntimeError: lost" in caplog.text


def test_an_error_file_that_cannot_be_written_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "no folder" / "error.json"))
    with pytest.warns(UserWarning, match="Unable to write error to file"), pytest.raises(RuntimeError, match="no more"):
        record(raise_it)()


def test_an_exception_without_a_text_is_written(own_file: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("never")

    get_error_handler().record_exception(Mute())
    assert "Mute whose text cannot be made" in json.loads(own_file.read_text())["message"]["message"]


def test_a_huge_message_is_cut_so_that_the_agent_can_read_the_file(own_file: Path) -> None:
    get_error_handler().record_exception(RuntimeError("\N{PILE OF POO}" * 500_000 + "the end"))
    assert own_file.stat().st_size < LIMIT_BYTES
    found = failure(own_file).message["message"]
    assert found.startswith("RuntimeError: ")
    assert "characters left out" in found
    assert found.endswith("the end")


def test_a_new_error_replaces_the_old_file_whole(own_file: Path) -> None:
    own_file.write_text("x" * 10_000)
    get_error_handler().record_exception(RuntimeError("short"))
    assert failure(own_file).message["message"] == "RuntimeError: short"
    assert os.listdir(own_file.parent) == ["own.json"]


def test_without_a_file_a_signal_is_named() -> None:
    found = failure(exitcode=-signal.SIGSEGV)
    assert found.message == "Signal 11 (SIGSEGV) received by PID 100"
    assert (found.signal_name(), found.error_file) == ("SIGSEGV", "<N/A>")
    assert found.error_file_data == {"message": "<NONE>"}
    assert time.time() - found.timestamp < 60


def test_without_a_file_an_exit_code_refers_to_the_decorator() -> None:
    found = failure(exitcode=3)
    assert found.message == "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    assert found.error_file_data["errorTraits"]["category"] == "system_terminated_error"
    assert found.signal_name() == "<N/A>"


def test_two_failures_do_not_share_their_data() -> None:
    failure(exitcode=3)
    assert "errorTraits" not in failure(exitcode=-9).error_file_data


def test_a_signal_without_a_name_has_none() -> None:
    assert failure(exitcode=-40).signal_name() == "<N/A>"
    assert "Signal 40" in failure(exitcode=-40).message


def test_the_new_format_is_read(tmp_path: Path) -> None:
    (tmp_path / "new.json").write_text('{"message": "plain", "timestamp": 10}')
    found = failure(tmp_path / "new.json")
    assert (found.message, found.timestamp) == ("plain", 10)


@pytest.mark.parametrize(
    "content", [b"", b'{"message": {"mess', b"[]", b'{"message": 3}', b"\xff", b"[" * 100_000, b'{"no": "message"}']
)
def test_a_file_that_is_none_is_named_in_a_warning_and_nothing_raises(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (tmp_path / "torn.json").write_bytes(content)
    found = failure(tmp_path / "torn.json", exitcode=-9)
    assert found.message == "Signal 9 (SIGKILL) received by PID 100"
    assert found.error_file == str(tmp_path / "torn.json")
    assert f"the error file {tmp_path / 'torn.json'} " in caplog.text
    assert time.time() - found.exact_timestamp < 60


def test_an_object_without_a_time_is_read(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text('{"message": {"message": "E: x"}}')
    found = failure(tmp_path / "odd.json")
    assert found.message == {"message": "E: x"}
    assert found.timestamp == 0


def test_of_two_failures_in_one_second_the_earlier_is_first(tmp_path: Path) -> None:
    late = failure(written(tmp_path / "late.json", modified=17.75), local_rank=0)
    early = failure(written(tmp_path / "early.json", modified=17.25), local_rank=1)
    assert late.timestamp == early.timestamp == 17
    assert ChildFailedError("trainer", {0: late, 1: early}).get_first_failure() == (1, early)


def test_a_file_written_just_after_its_second_still_counts_to_it(tmp_path: Path) -> None:
    found = failure(written(tmp_path / "a.json", seconds=17, modified=18.01))
    assert found.timestamp == 17
    assert 17.99 < found.exact_timestamp < 18


@pytest.mark.parametrize("modified", [16.0, 19.0, 90.0])
def test_the_time_of_a_copied_file_does_not_count(tmp_path: Path, modified: float) -> None:
    assert failure(written(tmp_path / "copy.json", seconds=17, modified=modified)).exact_timestamp == 17.0


def test_a_time_that_was_set_by_hand_counts(tmp_path: Path) -> None:
    first = failure(written(tmp_path / "a.json", modified=17.25))
    second = failure(written(tmp_path / "b.json", modified=17.75))
    second.timestamp = 10
    assert ChildFailedError("trainer", {0: first, 1: second}).get_first_failure()[0] == 1


def test_the_report_has_torch_s_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: "node-a")
    cause = failure(written(tmp_path / "e", seconds=17, modified=17.5), local_rank=1)
    other = failure(exitcode=-15)
    lines = str(ChildFailedError("train.py", {0: other, 3: cause})).split("\n")
    width = len(lines[1])
    assert lines[0] == ""
    assert lines[1] == "=" * width == lines[-1]
    assert lines[2:5] == ["train.py FAILED", "-" * width, "Failures:"]
    assert lines[5] == "[0]:"
    assert lines[6] == f"  time      : {other.timestamp_isoformat()}"
    assert lines[7:12] == [
        "  host      : node-a",
        "  rank      : 0 (local_rank: 0)",
        "  exitcode  : -15 (pid: 100)  (SIGTERM)",
        "  error_file: <N/A>",
        "  traceback : Signal 15 (SIGTERM) received by PID 100",
    ]
    assert lines[12:15] == ["-" * width, "Root Cause (first observed failure):", "[1]:"]
    assert lines[17:] == [
        "  rank      : 3 (local_rank: 1)",
        "  exitcode  : 1 (pid: 101) ",
        f"  error_file: {tmp_path / 'e'}",
        "  traceback : Traceback",
        "  E: x",
        "=" * width,
    ]


def test_a_report_is_at_most_sixty_wide() -> None:
    assert "\n" + "*" * 60 + "\n" in ChildFailedError("x" * 100, {0: failure()}).format_msg("*", "+")


def test_an_only_failure_has_no_others() -> None:
    assert "Failures:\n  <NO_OTHER_FAILURES>\n" in str(ChildFailedError("x", {0: failure()}))


def test_an_error_without_failures_is_refused() -> None:
    with pytest.raises(AssertionError):
        ChildFailedError("x", {})


def test_an_error_survives_the_way_between_processes() -> None:
    sent = ChildFailedError("x", {4: failure(exitcode=3)})
    found = pickle.loads(pickle.dumps(sent))
    assert (found.name, found.failures, str(found)) == (sent.name, sent.failures, str(sent))


def raise_for(failures: dict[int, ProcessFailure]) -> None:
    raise ChildFailedError("trainer", failures)


def test_the_first_failure_s_file_is_handed_on_with_its_exit_code(own_file: Path, tmp_path: Path) -> None:
    first = failure(written(tmp_path / "a.json", "E: first", modified=17.25), exitcode=-11)
    second = failure(written(tmp_path / "b.json", "E: second", modified=17.75))
    with pytest.raises(ChildFailedError):
        record(raise_for)({0: second, 1: first})
    told = json.loads(own_file.read_text())["message"]
    assert (told["message"], told["errorCode"]) == ("E: first", -11)


def test_a_child_without_a_file_leaves_ours_alone(own_file: Path) -> None:
    with pytest.raises(ChildFailedError):
        record(raise_for)({0: failure(exitcode=-9)})
    assert not own_file.exists()


def test_a_torn_file_of_a_child_is_handed_on_as_such(own_file: Path, tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text('{"mess')
    with pytest.raises(ChildFailedError):
        record(raise_for)({0: failure(tmp_path / "torn.json", exitcode=-9)})
    told = json.loads(own_file.read_text())["message"]
    assert "torn.json is not whole JSON" in told["message"]
    assert told["errorCode"] == -9


def test_a_file_that_is_overwritten_is_logged(own_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own_file.write_text('{"message": "mine"}')
    ErrorHandler().dump_error_file(str(written(tmp_path / "a.json", "E: theirs")))
    assert "already exists and will be overwritten" in caplog.text
    assert '"mine"' in caplog.text
    assert json.loads(own_file.read_text())["message"]["message"] == "E: theirs"


def test_an_exit_code_is_not_put_into_the_new_format(own_file: Path, tmp_path: Path) -> None:
    (tmp_path / "new.json").write_text('{"message": "plain"}')
    ErrorHandler().dump_error_file(str(tmp_path / "new.json"), 7)
    assert json.loads(own_file.read_text()) == {"message": "plain"}


def test_without_a_file_of_ours_a_child_s_is_named_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    ErrorHandler().dump_error_file(str(written(tmp_path / "a.json")))
    assert "no error file defined for parent, to copy child error file" in caplog.text
