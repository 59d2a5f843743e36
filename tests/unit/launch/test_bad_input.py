from __future__ import annotations

import runpy
from pathlib import Path

import pytest

BAD_INPUT = runpy.run_path(str(Path(__file__).with_name("bad_input.py")))


@pytest.mark.parametrize("row", BAD_INPUT["ROWS"], ids=lambda row: repr([*row.environ, *row.argv]))
def test_a_wrong_command_line_is_answered_with_its_sentence(
    row: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    BAD_INPUT["prepare"](tmp_path)
    argv, environ, sentence, command = row  # type: ignore[misc]
    assert BAD_INPUT["told"](argv, environ, tmp_path, command) == sentence


def test_every_sentence_is_one_harmless_line_that_fits_a_terminal() -> None:
    for row in BAD_INPUT["ROWS"]:
        assert row.sentence.isprintable()
        assert len(row.sentence) < 200
        assert not row.sentence.endswith(".") or row.sentence.endswith("...")


def test_the_files_of_the_table_make_a_command_line_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    BAD_INPUT["prepare"](tmp_path)
    assert BAD_INPUT["told"](["--nproc-per-node=2", "ok.py"], {}, tmp_path) is None
