"""The report of bench/kube_jobs.py: a table from its numbers, with what they were taken on and how to take them again."""

from __future__ import annotations

from typing import Any

from harness.report import unrest


def report(results: dict[str, Any]) -> str:
    """Return the page."""
    about = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    with_what = ", ".join(f"{name} {value}" for name, value in results["versions"].items())
    unquiet = "".join(f"{line}\n" for line in unrest(results["load_before"]))
    rows = "".join(f"| {what} | {number} |\n" for what, number in _rows(results))
    return (
        f"# Benchmark results: an operator and {results['jobs']} jobs\n\n"
        f"- {results['date']}; {about}; {with_what}\n"
        f"- load average before {results['load_before']}, after {results['load_after']}\n"
        f"{unquiet}"
        f"- {results['jobs']} elastic jobs of one worker each, at their maximum; the API server, etcd, the operator and\n"
        "  whoever makes the jobs share these cores, and no pod runs anywhere\n"
        f"- counted at rest for {results['rest_s']:g} s\n\n"
        f"    PYTHONPATH=src <venv>/bin/python bench/kube_jobs.py --jobs {results['jobs']} "
        f"--rest-s {results['rest_s']:g}\n\n"
        f"| | |\n|---|---:|\n{rows}\n"
        "What each row is: the first lines of `bench/kube_jobs.py`. Latencies are of this machine, and so is the processor\n"
        "time; the numbers of calls and the memory carry over.\n"
    )


def _rows(results: dict[str, Any]) -> list[tuple[str, str]]:
    burst, steady, rest, memory, restart = (
        results[name] for name in ("burst", "steady", "rest", "memory_mib", "restart")
    )
    return [
        ("burst: from a job's creation to its worker's pod, all at once, median", f"{burst['median_s']:.1f} s"),
        ("burst: 99 of 100 within", f"{burst['p99_s']:.1f} s"),
        ("burst: the slowest", f"{burst['most_s']:.1f} s"),
        ("burst: calls of the API server for each job", f"{burst['calls'] / results['jobs']:.1f}"),
        ("burst: processor time of the operator, its start included", f"{burst['operator_cpu_s']:.1f} s"),
        ("steady: from a change of a pod to its job's status, median", f"{1000 * steady['median_s']:.0f} ms"),
        ("steady: the slowest of 100", f"{1000 * steady['most_s']:.0f} ms"),
        ("rest: calls of the API server, all jobs together", f"{rest['calls_per_s']:.1f} a second"),
        ("rest: processor time of the operator", f"{100 * rest['cpu_share']:.1f} % of a core"),
        ("memory of the operator without jobs", f"{memory['without_jobs']:.0f} MiB"),
        ("memory with all of them, after the rest", f"{memory['with_jobs']:.0f} MiB"),
        ("restart: until a new operator has looked at all jobs", f"{restart['all_looked_at_s']:.1f} s"),
        ("restart: its calls until then and until all is quiet", f"{restart['calls']:.0f}"),
        ("restart: its memory then", f"{restart['memory_mib']:.0f} MiB"),
    ]
