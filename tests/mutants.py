"""Break one decision at a time and see whether the tests notice: python tests/mutants.py SOURCE[,SOURCE...] TESTS...

Every condition is made always true and always false, every comparison and every `and`/`or` is turned around, and every
element of a tuple of effects is dropped. Only `<` against `<=` between two moments is left alone: two things at one instant
have no order. A mutant that no test fails for is printed: either a test is missing or the code is. `EXPLAINED` lists those
that change nothing anybody could observe, with the reason. As many mutants run at once as there are cores, each in a
child of this process, which has imported pytest already. A mutant that takes far longer than the sound code does is said
to hang: it is not caught by a test, but by whoever waits for the tests.
"""

import ast
import contextlib
import copy
import importlib.abc
import importlib.util
import os
import re
import signal
import sys
import time
from pathlib import Path

import hypothesis.strategies  # noqa: F401  # so that no child has to import it
import pytest

ROOT = Path(__file__).resolve().parent.parent
CLUSTERS = "250"
PATIENCE_S = 120.0  # no mutant hangs before that, and none before PATIENCE_FACTOR times what the sound code takes
PATIENCE_FACTOR = 5  # as many run at once as there are cores, and the machine may have other work
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning")
MOMENT = re.compile(r"\b(now|\w+_at|\w*until|when|\w+_floor)\b")
SWAPS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SWAPS |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And}
EXPLAINED = {
    ("if TYPE_CHECKING:", "test"): "only type checkers go there",
    ("replace(group, progressed=True)", "test"): "spares a copy, nothing else",
    ("< EARLY_LIFE_S", "comparison"): "a life of exactly that age may be called either",
    ("return failure.status < 0 and", "comparison"): "status 0 is no failure, so it never comes here",
    ("if set(wanted) - taken else set()", "test is always True"): "spares a set, nothing else",
    ("if missing else set()", "test is always True"): "spares a set, nothing else",
    ("claim == own and other.node <", "comparison"): "no agent meets itself",
    ("if now >= self._silence_at:", "test is always True"): "spares a walk over all connections, nothing else",
    ("len(self.seats) > placing.MANY_NODES", "comparison"): "with exactly that many either will do",
    ("last.size > placing.MANY_NODES", "comparison"): "a round of exactly that many has all its deputies",
    ("if seq >= renew.echo}", "comparison"): "an answer that is shown twice left at one moment",
    (
        "if group.outcome is None:",
        "test is always False",
    ): "a group that ends has an outcome; the type checker cannot know",
}


def mutants(tree):
    """Yield (line, description, mutated copy) for every way to break the tree that we know."""
    for index, node in enumerate(ast.walk(tree)):
        for field in ("test", "guard"):
            if isinstance(getattr(node, field, None), ast.expr):
                for forced in (True, False):
                    yield _changed(
                        tree,
                        index,
                        f"{field} is always {forced}",
                        lambda n, f=field, v=forced: setattr(n, f, ast.Constant(v)),
                    )
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS and not _is_about_moments(node):
            yield _changed(tree, index, "comparison turned around", _swap_comparison)
        if isinstance(node, ast.BoolOp):
            yield _changed(tree, index, "and/or turned around", lambda n: setattr(n, "op", SWAPS[type(n.op)]()))
        if isinstance(node, ast.Tuple) and any(isinstance(part, ast.Call) for part in node.elts):
            for drop in range(len(node.elts)):
                if isinstance(node.elts[drop], ast.Call):
                    yield _changed(tree, index, f"element {drop} dropped", lambda n, d=drop: n.elts.pop(d))


def _is_about_moments(node):
    ordered = isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    return ordered and MOMENT.search(ast.unparse(node)) is not None


def _swap_comparison(node):
    node.ops[0] = SWAPS[type(node.ops[0])]()


def _changed(tree, index, what, change):
    fresh = copy.deepcopy(tree)
    node = next(found for position, found in enumerate(ast.walk(fresh)) if position == index)
    line = getattr(node, "lineno", getattr(getattr(node, "pattern", None), "lineno", 0))
    change(node)
    return line, what, ast.fix_missing_locations(fresh)


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a changed tree."""

    def __init__(self, source, tree):
        self._source = source
        self._name = ".".join(source.relative_to(ROOT / "src").with_suffix("").parts)
        self._code = compile(tree, str(source), "exec")

    def find_spec(self, name, _path=None, _target=None):
        """Claim that module, and no other."""
        found = name == self._name
        return importlib.util.spec_from_file_location(name, self._source, loader=self) if found else None

    def exec_module(self, module):
        """Run the changed code."""
        exec(self._code, vars(module))


def start(source, mutated, tests):
    """Fork a process that runs the tests against the mutated file; return its pid. It exits with pytest's status."""
    pid = os.fork()
    if pid:
        return pid
    status = 3
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)  # not a session: the scheduler would treat each as a user of its own, whatever its priority
        os.environ |= {"PLANARIA_SIM_CLUSTERS": os.environ.get("PLANARIA_SIM_CLUSTERS", CLUSTERS)}
        sys.path[:0] = [str(ROOT / "src")]
        sys.dont_write_bytecode = True
        sys.meta_path.insert(0, Mutated(source, mutated))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        status = int(pytest.main([*OPTIONS, *tests]))
    finally:
        os._exit(status)


def timed_sound_run(source, tests):
    """Run the tests against the file as it is; return how many seconds they took. They have to pass."""
    began = time.monotonic()
    pid = start(source, ast.parse(source.read_text()), tests)
    try:
        failed = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except BaseException:
        end([pid])
        raise
    if failed:
        sys.exit(f"the tests fail without any mutant: {' '.join(tests)}")
    return time.monotonic() - began


def end(pids):
    """Kill these children of ours with all they started, and reap them."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # one that was forked a moment ago leads no group yet
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def judged(source, tests, patience_s):
    """Yield (line, description, "survived", "caught" or "hung") for every mutant of a file, as they come to their end."""
    left = mutants(ast.parse(source.read_text()))
    running = {}
    try:
        while True:
            while len(running) < (os.cpu_count() or 1):
                fresh = next(left, None)
                if fresh is None:
                    break
                line, what, mutated = fresh
                running[start(source, mutated, tests)] = line, what, time.monotonic() + patience_s
            if not running:
                return
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                line, what, _ = running.pop(pid)
                yield line, what, "caught" if os.waitstatus_to_exitcode(status) else "survived"
                continue
            time.sleep(0.01)  # there is no waiting for one of many children with a limit
            for overdue in [pid for pid, (_, _, until) in running.items() if time.monotonic() > until]:
                line, what, _ = running.pop(overdue)
                end([overdue])
                yield line, what, "hung"
    finally:
        end(running)  # Ctrl-C, and whatever else ends this early


def report(source, tests):
    """Print the survivors of one file and return how many nobody explained."""
    lines = source.read_text().splitlines()
    patience_s = max(PATIENCE_S, PATIENCE_FACTOR * timed_sound_run(source, tests))
    counts = dict.fromkeys(("caught", "hung", "explained", "unexplained"), 0)
    with contextlib.closing(judged(source, tests, patience_s)) as all_judged:
        for line, what, fate in all_judged:
            shown = lines[line - 1].strip()
            reason = ""
            if fate == "survived":
                reason = next(
                    (why for (code, kind), why in EXPLAINED.items() if code in shown and what.startswith(kind)), ""
                )
            counts[fate if fate in counts else "explained" if reason else "unexplained"] += 1
            if fate != "caught":
                told = f"  ({reason})" if reason else ""
                print(f"{fate}: {source.name}:{line}: {what}: {shown}{told}", flush=True)
    told = ", ".join(f"{count} {fate}" for fate, count in counts.items())
    print(f"{source.name}: {sum(counts.values())} mutants, {told}", flush=True)
    return counts["unexplained"]


def main(sources, *tests):
    """Judge the mutants of all sources; say with the status whether all were caught, hung or explained."""
    return 1 if sum(report(Path(source).resolve(), tests) for source in sources.split(",")) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C does: through every `finally`
    sys.exit(main(*sys.argv[1:]))
