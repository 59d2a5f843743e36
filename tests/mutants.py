"""Break one decision at a time and see whether the tests notice: python tests/mutants.py SOURCE[,SOURCE...] TESTS...

Every condition is made always true and always false, every comparison and every `and`/`or` is turned around, and every
element of a tuple of effects is dropped. A mutant that no test fails for is printed: either a test is missing or the
code is. `EXPLAINED` lists those that change nothing anybody could observe, with the reason. As many mutants run at once as
there are cores; simulated clusters are fewer than in CI, since most mutants die in the first ones.
"""

import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLUSTERS = "250"
SWAPS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SWAPS |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And}
EXPLAINED = {
    ("if TYPE_CHECKING:", "test"): "only type checkers go there",
    ("replace(group, progressed=True)", "test"): "spares a copy, nothing else",
    ("< EARLY_LIFE_S", "comparison"): "a life of exactly that age may be called either",
    ("crashed = failure.status < 0", "comparison"): "status 0 is no failure, so it never comes here",
    ("failure.at < group.stop_at", "comparison"): "two things at one instant have no order",
    ("at >= group.lease_until", "comparison"): "two things at one instant have no order",
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
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield _changed(tree, index, "comparison turned around", _swap_comparison)
        if isinstance(node, ast.BoolOp):
            yield _changed(tree, index, "and/or turned around", lambda n: setattr(n, "op", SWAPS[type(n.op)]()))
        if isinstance(node, ast.Tuple) and any(isinstance(part, ast.Call) for part in node.elts):
            for drop in range(len(node.elts)):
                if isinstance(node.elts[drop], ast.Call):
                    yield _changed(tree, index, f"element {drop} dropped", lambda n, d=drop: n.elts.pop(d))


def _swap_comparison(node):
    node.ops[0] = SWAPS[type(node.ops[0])]()


def _changed(tree, index, what, change):
    fresh = copy.deepcopy(tree)
    node = next(found for position, found in enumerate(ast.walk(fresh)) if position == index)
    line = getattr(node, "lineno", getattr(getattr(node, "pattern", None), "lineno", 0))
    change(node)
    return line, what, ast.fix_missing_locations(fresh)


def survives(source, mutated, tests):
    """Run the tests against a copy of the package with the mutated file; tell whether they all pass."""
    with tempfile.TemporaryDirectory(prefix="planaria-mutant-") as folder:
        package = Path(folder) / "planaria"
        shutil.copytree(ROOT / "src" / "planaria", package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / source.relative_to(ROOT / "src" / "planaria")).write_text(ast.unparse(mutated))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
        environ = (
            {"PLANARIA_SIM_CLUSTERS": CLUSTERS} | os.environ | {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        )
        try:
            done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def judged(source, tests):
    """Return (line, description, whether it survived) for every mutant of a file."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each waits for a process of its own
        found = [
            (line, what, pool.submit(survives, source, mutated, tests))
            for line, what, mutated in mutants(ast.parse(source.read_text()))
        ]
        return [(line, what, future.result()) for line, what, future in found]


def report(source, tests):
    """Print the survivors of one file and return how many nobody explained."""
    lines = source.read_text().splitlines()
    alive = explained = 0
    rows = judged(source, tests)
    for line, what, survived in rows:
        if survived:
            shown = lines[line - 1].strip()
            reason = next(
                (why for (code, kind), why in EXPLAINED.items() if code in shown and what.startswith(kind)), ""
            )
            explained += bool(reason)
            alive += not reason
            print(f"survived: {source.name}:{line}: {what}: {shown}" + (f"  ({reason})" if reason else ""), flush=True)
    caught = len(rows) - alive - explained
    print(f"{source.name}: {len(rows)} mutants, {caught} caught, {explained} explained, {alive} unexplained")
    return alive


def main(sources, *tests):
    return 1 if sum(report(Path(source).resolve(), tests) for source in sources.split(",")) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
