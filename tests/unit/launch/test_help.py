from __future__ import annotations

import shlex
import subprocess
import sys

from planaria.contract.exit_status import TABLE
from planaria.launch import help as help_page
from planaria.launch.flags import OURS, TORCHRUN
from planaria.launch.parse import parse


def test_every_flag_and_every_exit_status_is_on_the_page() -> None:
    page = help_page.text()
    for flag in (*TORCHRUN, *OURS):
        assert any(f"{flag.name}{end}" in page for end in (" ", "\n", "[="))
    for row in TABLE:
        assert row.name in page


def test_the_page_is_plain_text_of_100_columns() -> None:
    page = help_page.text()
    assert all(len(line) <= 100 and line == line.rstrip() for line in page.splitlines())
    assert page.isascii()
    assert page.replace("\n", "").isprintable()


def test_every_example_is_a_command_line_that_parses() -> None:
    examples = [line for line in help_page.text("run").splitlines() if line.startswith("  run ")]
    assert 3 <= len(examples) <= 5
    for example in examples:
        assert parse(shlex.split(example)[1:], {}).training_script


def test_the_default_path_imports_nothing_heavy() -> None:
    """A launch takes 50 ms; each of these would cost 1 to 30 of them (floors.md section 1)."""
    heavy = "typing enum re json argparse dataclasses signal socket pathlib string shutil uuid collections subprocess"
    code = (
        "import sys; before = set(sys.modules)\n"
        "from planaria.launch import parse, plan, script\n"
        "options = parse.parse(['--nproc-per-node=2', sys.argv[1]], {})\n"
        "facts = script.check(options, True, {'PATH': '/bin'})\n"
        "plan.plan(options, {}, plan.Machine(sys.executable, 4, 'id', facts))\n"
        f"loaded = (set(sys.modules) - before) & set({heavy.split()!r})\n"
        "late = 'help devices numa dryrun conf meeting credentials'.split()\n"
        "lazy = {'planaria.launch.' + name for name in late} & set(sys.modules)\n"
        "assert not loaded | lazy, loaded | lazy\n"
    )
    script = "import planaria, sys; sys.stdout.write(planaria.__path__[0])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    # -S: an editable install's finder would import some of these by itself.
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code, __file__],
        env={"PYTHONPATH": found.removesuffix("/planaria")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
