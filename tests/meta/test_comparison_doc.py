"""The table of docs/comparison.md is made from the raw numbers beside the benchmark, and so is its drawing."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import bench_modules
import pytest
from bench_modules import BENCH

if TYPE_CHECKING:
    from collections.abc import Callable


class Program(NamedTuple):
    """What the benchmark has; `compare` makes the page, `report` one of its reports, `operator_report` that of kube_jobs.py."""

    compare: Any
    report: Any
    operator_report: Any
    find_launchers: Callable[[list[str], str], list[Any]]
    first_group: Callable[..., Any]
    rows: Any


@pytest.fixture(scope="module")
def program() -> Program:
    compare, children, report, operator_report, rows, standby = bench_modules.load(
        "compare", "harness.children", "harness.report", "harness.operator_report", "rows", "rows.standby"
    )
    return Program(compare, report, operator_report, children.find_launchers, standby.first_group, rows.ALL)


@pytest.fixture
def compare(program: Program) -> Any:
    return program.compare


def test_the_page_has_what_was_measured(compare: Any) -> None:
    before, after = compare.around(compare.PAGE.read_text())
    assert compare.PAGE.read_text() == before + compare.measured(compare.load()) + after


def test_the_table_of_the_gpu_is_made_from_its_numbers_and_tells_how_many_there_are(compare: Any) -> None:
    page = compare.PAGE.read_text()
    before, after = compare.around(page, compare.GPU_BEGIN, compare.GPU_END)
    assert page == before + compare.on_gpu(*compare.load_gpu()) + after
    told = compare.on_gpu(*compare.load_gpu())
    assert len(re.findall(r"\), n=\d+", told)) >= 8


def test_a_table_of_the_gpu_can_be_made_of_one_way_alone(compare: Any) -> None:
    recovery, commits = compare.load_gpu()
    alone = {"planaria, standbys, join()": [{"stepped": 0.5}, {"stepped": 0.7}]}
    told = compare.on_gpu({**recovery, "found": {"ways": alone}}, commits)
    assert "script with `join()`, s | 0.600 (0.520 - 0.680), n=2 | torchrun  |" in told


def test_what_only_planaria_can_do_is_listed(program: Program, compare: Any) -> None:
    """A launcher of somebody else's is not told to be in rows that leave it out."""
    listed = compare.PAGE.read_text().partition("It is measured as torchrun is")[2].partition("One command writes")[0]
    for bench in program.rows:
        if bench.only:
            kinds = (bench.name, re.sub(r"-\d+$", "-N", bench.name), re.sub(r"-\w+$", "-*", bench.name))
            assert any(f"`{kind}`" in listed for kind in (*kinds, bench.name.partition("-")[0])), bench.name


@pytest.mark.parametrize("name", sorted(path.name for path in BENCH.glob("RESULTS*.md")))
def test_a_report_of_a_machine_that_was_at_work_says_so(name: str) -> None:
    text = (BENCH / name).read_text()
    for load in re.findall(r"^- load average before (\S+) .*$", text, re.MULTILINE):
        assert (float(load) > 0.5) == ("not a quiet machine" in text)


def said(word: str, rank: int, life: int) -> tuple[int, bytes]:
    return 0, f"{word} {rank} 2 {life} {100 * life + rank} {1000 * life + rank}".encode()


def test_a_process_group_that_did_not_form_at_the_first_try_is_seen(program: Program) -> None:
    whole = [said(word, rank, 1) for word in ("begin", "ready") for rank in (0, 1)]
    assert program.first_group(iter(whole).__next__, 1) == (
        1,
        {b"begin": [(100, 1000), (101, 1001)], b"ready": [(100, 1000), (101, 1001)]},
    )
    broken = [said("ready", 0, 0), said("begin", 0, 1), said("begin", 1, 1), said("ready", 0, 1)]
    later = [said(word, rank, 2) for word in ("begin", "ready") for rank in (1, 0)]
    assert program.first_group(iter([*broken, *later]).__next__, 1)[0] == 2


def test_the_drawing_is_of_the_same_numbers(compare: Any) -> None:
    assert compare.DRAWING.read_text() == compare.bars.svg(compare.bars.groups(compare.load()))


@pytest.mark.parametrize(("load", "is_quiet"), [("0.50 3.20 4.34", True), ("0.51 0.10 0.10", False)])
def test_a_report_says_beside_its_numbers_that_the_machine_was_not_quiet(
    program: Program, load: str, is_quiet: bool
) -> None:
    how = program.report.Circumstances("2026-01-01", "run.py", False, 3, 1.0, 1.0, {}, {}, {}, load, "9.00 9.00 9.00")
    head = program.report.markdown([], how, []).partition("| median |")[0]
    assert ("not a quiet machine" not in head) == is_quiet


def report(ours: list[float], theirs: list[float | None]) -> dict[str, Any]:
    values = {"planaria": ours, "other <1>": theirs, "floor: nothing": [0.1]}
    contestants = {name: {"values": {"every": numbers}} for name, numbers in values.items()}
    row = {"titles": {"every": "a & b"}, "units": {"every": "s"}, "goals": {"every": 1.0}, "contestants": contestants}
    about = {"date": "2026-01-01", "machine": {"cores": "2"}, "versions": {"python": "3"}}
    return {**about, "rows": {"x": row}}


def test_a_peer_that_is_better_is_named_and_one_that_never_ends_too(compare: Any) -> None:
    text = compare.measured([report([2.0, 2.0], [1.0])])
    assert "- a & b: other <1> 1.00 s, planaria 2.00." in text
    text = compare.measured([report([2.0, 3.0], [None])])
    assert "| a & b, s | 2.50 (2.10 - 2.90), n=2 | never, n=1 | ∞ | ≤ 1.00 |" in text
    assert "In no row of this table." in text


def test_what_no_peer_can_do_is_told_where_it_has_a_goal_and_rows_are_those_of_the_last_report(compare: Any) -> None:
    alone = report([0.5], [])
    assert "| a & b, s | 0.500, n=1 |" in compare.measured([alone])
    del alone["rows"]["x"]["goals"]["every"]
    assert "a & b" not in compare.measured([alone])
    text = compare.measured([report([9.0], [9.0]), report([2.0], [3.0])])
    assert text.count("a & b, s") == 1
    assert "| a & b, s | 2.00, n=1 | 3.00, n=1 |" in text


def test_names_do_not_become_markup(compare: Any) -> None:
    drawn = compare.bars.svg(compare.bars.groups([report([2.0], [None])]))
    assert "other &lt;1&gt;" in drawn
    assert "a &amp; b, s" in drawn
    assert "nothing" not in drawn


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (["slurm"], "slurm is not known; expected planaria, torchrun or NAME=COMMAND"),
        (["x=/no/such/program"], "/no/such/program of x is not to be found"),
        (["x=sh", "x=sh"], "x is given twice"),
        (["torchrun=sh"], "'torchrun=sh' is no NAME=COMMAND with a name of its own"),
        (["x="], "'x=' is no NAME=COMMAND with a name of its own"),
    ],
)
def test_a_launcher_that_cannot_be_is_refused_in_one_sentence(
    program: Program, wanted: list[str], problem: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        program.find_launchers(wanted, sys.executable)


def test_any_launcher_may_take_part(program: Program) -> None:
    (one,) = program.find_launchers(["mine=sh -c 'exit 3'"], sys.executable)
    assert (one.name, one.command[1:], one.shown) == ("mine", ("-c", "exit 3"), "sh -c 'exit 3'")


def test_the_report_of_the_operator_has_its_numbers_and_how_to_take_them_again(program: Program) -> None:
    latencies = {"median_s": 0.02, "p99_s": 0.04, "most_s": 0.05}
    numbers = {
        "date": "2026-11-16 12:00 UTC",
        "machine": {"cores": "2"},
        "versions": {"python": "3.11"},
        "load_before": "0.1",
        "load_after": "1.2",
        "jobs": 50,
        "rest_s": 360.0,
        "burst": {"median_s": 6.0, "p99_s": 11.0, "most_s": 12.0, "operator_cpu_s": 9.5, "calls": 650.0},
        "steady": latencies,
        "rest": {"calls_per_s": 8.73, "cpu_share": 0.139},
        "memory_mib": {"without_jobs": 79.3, "with_jobs": 109.6},
        "restart": {"all_looked_at_s": 7.2, "memory_mib": 99.3, "calls": 1719.0},
    }
    page = program.operator_report.report(numbers)
    for found in ("bench/kube_jobs.py --jobs 50 --rest-s 360\n", "2026-11-16", "cores 2", "python 3.11", "| 13.0 |"):
        assert found in page
    assert page.count("\n| ") == 1 + 14
