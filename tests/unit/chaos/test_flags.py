"""The command line of `planaria chaos`; wrong ones are in `tests/support/wrong_chaos.py`."""

from __future__ import annotations

from planaria.chaos.flags import Options, help_text, read_flags
from planaria.chaos.kinds import NAMES


def test_the_job_is_what_stands_behind_the_flags() -> None:
    assert read_flags(["--", "train.py", "--seed=3"]) == Options(script=("train.py", "--seed=3"))
    assert read_flags(["--seed", "4", "train.py", "--", "x"]) == Options(script=("train.py", "--", "x"), seed=4)


def test_every_flag_is_read() -> None:
    words = (
        "--seed=1 --faults=2 --nodes=4 --nproc-per-node=5 --kinds=hang,kill-agent,hang --pace=6 --time-limit=7 --ttl=8"
    )
    more = "--networks --compare=out.bin --keep=logs --with=--standbys=auto --with=-m --json --dry-run -- job"
    assert read_flags(f"{words} {more}".split()) == Options(
        script=("job",),
        seed=1,
        faults=2,
        nodes=4,
        nproc=5,
        kinds=("hang", "kill-agent"),
        pace_s=6.0,
        time_limit_s=7.0,
        ttl_s=8.0,
        networks=True,
        compare="out.bin",
        keep="logs",
        more=("--standbys=auto", "-m"),
        json=True,
        dry_run=True,
    )


def test_many_faults_have_more_time() -> None:
    assert read_flags(["--faults=150", "train.py"]).time_limit_s == 900.0
    assert read_flags(["--faults=300", "train.py"]).time_limit_s == 1800.0


def test_help_wants_no_job_and_names_every_kind() -> None:
    assert read_flags(["--help"]).help
    assert all(f"\n  {name} " in help_text() for name in NAMES)
