"""A library may read the environment when it is loaded: a standby has set by then what the program sets, and takes it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from standing import LOCAL_RANK, Job, end, ready

from planaria.contract import blackbox
from planaria.contract.standby import JOIN
from planaria.process.spares import Lesson, Plan, make_plans

if TYPE_CHECKING:
    from pathlib import Path

    from standing import Ended

# What a library finds when it is loaded: in Python, in C, and what is none of its business.
SEES = """\
import ctypes, os
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
NAMES = ("MODE", "KEPT", "OLD", "LATE", "RANK")
{name} = [*map(os.environ.get, NAMES[:-1]), getenv(b"MODE"), getenv(b"OLD")]
"""
SAYS = "print(early.EARLY, late.LATE)\nprint([os.environ.get(name) for name in early.NAMES], len(os.environ))\n"


def job(folder: Path, text: str, **variables: str) -> Job:
    """Return a program beside an installed library of `early` and `late`, which say what they saw."""
    library = folder / "lib" / "site-packages"
    library.mkdir(parents=True, exist_ok=True)
    for name in ("early", "late"):
        (library / f"{name}.py").write_text(SEES.format(name=name.upper()))
    (folder / "main.py").write_text(f"import os\nfrom planaria import worker\n{text}")
    return Job(folder, "script", "main.py", PYTHONPATH=str(library), OLD="old", KEPT="given", **variables)


def plan_after(ended: Ended, folder: Path) -> Plan:
    plan = make_plans(Lesson(ended.learned), (str(folder / "main.py"),), LOCAL_RANK + 1)[LOCAL_RANK]
    assert {"early", "late"} <= dict(plan.load).keys(), "a standby that loads nothing proves nothing"
    return plan


@pytest.mark.parametrize("join", ["", "worker.join()\n"])
def test_what_a_program_sets_before_it_imports_is_set_when_that_is_loaded_ahead(tmp_path: Path, join: str) -> None:
    text = (
        f"{join}os.environ['MODE'] = 'first'\ndel os.environ['OLD']\nimport early\n"
        "os.environ['MODE'] = 'second'\nos.environ['OLD'] = 'new'\nos.environ['KEPT'] = 'given'\nos.environ['RANK'] = '77'\n"
        f"import late\nos.environ['LATE'] = 'too'\n{SAYS}"
    )
    one = job(tmp_path, text)
    ended = cold = one.cold()
    assert cold.stdout.startswith(
        "['first', 'given', None, None, b'first', None] ['second', 'given', 'new', None, b'second', b'new']\n"
        "['second', 'given', 'new', 'too', '77']"
    )
    for _ in range(3):  # what a promoted life teaches is the same as what a cold one does
        plan = plan_after(ended, tmp_path)
        assert [(change.name, change.value) for change in plan.changes] == [
            ("MODE", "first"),
            ("OLD", None),
            ("MODE", "second"),
            ("OLD", "new"),
            ("KEPT", "given"),
        ]
        assert (plan.mode == JOIN) == bool(join)
        ended = one.promoted(plan)
        assert ended[:3] == cold[:3]


@pytest.mark.parametrize("join", ["", "worker.join()\n"])
def test_a_program_begins_with_the_environment_that_it_would_have_had(tmp_path: Path, join: str) -> None:
    """It finds what a cold start finds, and not what its standby was given ahead."""
    begin = f"{join}print([os.environ.get(name) for name in ('MODE', 'KEPT', 'OLD')], os.environ.copy().get('MODE'))\n"
    sets = "os.environ['MODE'] = 'first'\nos.environ['KEPT'] = 'mine'\ndel os.environ['OLD']\n"
    cold = job(tmp_path, f"{begin}{sets}import early, late\n").cold()
    assert cold.stdout == "[None, 'given', 'old'] None\n"
    assert job(tmp_path, begin).promoted(plan_after(cold, tmp_path))[:3] == cold[:3]


def test_what_the_program_itself_has_set_before_join_is_its_own(tmp_path: Path) -> None:
    text = "os.environ['MODE'] = {mode!r}\nimport early\nworker.join()\nos.environ['OLD'] = 'new'\nimport late\n" + SAYS
    cold = job(tmp_path, text.format(mode="one")).cold()
    one = job(tmp_path, text.format(mode="two"))
    assert one.promoted(plan_after(cold, tmp_path)).stdout == one.cold().stdout
    assert "['two', 'given', 'new', None, b'two', b'new']" in one.cold().stdout


def test_what_a_library_sets_when_it_is_loaded_is_not_set_before(tmp_path: Path) -> None:
    one = job(tmp_path, "import setter, early, late\nos.environ['LATE'] = 'mine'\nimport json\n" + SAYS)
    setter = tmp_path / "lib" / "site-packages" / "setter.py"
    setter.write_text("import os\nBEFORE = os.environ.get('MODE')\nos.environ['MODE'] = 'set'\nprint(BEFORE)\n")
    cold = one.cold()
    assert [setting.name for setting in cold.learned.settings] == ["LATE"]
    assert cold.stdout.startswith("None\n['set', ")
    assert one.promoted(plan_after(cold, tmp_path))[:3] == cold[:3]


def test_what_a_function_of_a_library_sets_for_the_program_is_set_ahead(tmp_path: Path) -> None:
    one = job(tmp_path, "import configure\nconfigure.configure()\nimport early, late\n" + SAYS)
    (tmp_path / "lib" / "site-packages" / "configure.py").write_text(
        "import os\ndef configure():\n    os.environ['MODE'] = 'configured'\n"
    )
    cold = one.cold()
    assert "b'configured'" in cold.stdout
    assert one.promoted(plan_after(cold, tmp_path))[:3] == cold[:3]


def test_threads_of_a_library_are_as_many_as_the_program_says(tmp_path: Path) -> None:
    """OpenBLAS reads its variable once, in C, when NumPy is imported."""
    np = pytest.importorskip("numpy")
    assert np
    one = job(
        tmp_path,
        "os.environ['OPENBLAS_NUM_THREADS'] = '1'\nimport early, late, numpy\n"
        "numpy.ones((300, 300)) @ numpy.ones((300, 300))\nprint(len(os.listdir('/proc/self/task')))\n",
        OPENBLAS_NUM_THREADS="2",
    )
    cold = one.cold()
    assert one.promoted(plan_after(cold, tmp_path)).stdout == cold.stdout == "1\n"


def test_what_is_no_text_and_what_is_set_by_forked_children_does_no_harm(tmp_path: Path) -> None:
    one = job(
        tmp_path,
        "import sys\naudit = sys.audit\nos.environb[b'MODE'] = b'\\xff\\n\\x1e'\n"
        "audit('os.putenv', 1, [])\naudit('os.putenv')\n"
        "if not os.fork():\n    os.environ['LATE'] = 'child'\n    os._exit(0)\nos.wait()\n"
        "import early, late\nprint(ascii(early.EARLY), late.LATE == early.EARLY)\n",
    )
    cold = one.cold()
    assert [setting.name for setting in cold.learned.settings] == ["MODE"]
    assert "late" not in dict(cold.learned.files)  # nobody knows what was set then
    (tmp_path / "main.py").write_text(
        (tmp_path / "main.py").read_text().replace("sys.audit", "print if 0 else lambda *_: 0")
    )
    cold = one.cold()
    assert [(setting.name, setting.value) for setting in cold.learned.settings] == [("MODE", "\udcff\n\x1e")]
    assert one.promoted(plan_after(cold, tmp_path))[:3] == cold[:3]
    assert cold.stdout == "['\\udcff\\n\\x1e', 'given', 'old', None, b'\\xff\\n\\x1e', b'old'] True\n"


def test_one_that_sets_variables_without_end_teaches_what_it_has_loaded_by_then(tmp_path: Path) -> None:
    one = job(tmp_path, "import early\nfor n in range(300): os.environ['LATE'] = str(n)\nimport late\n")
    cold = one.cold()
    found = dict(cold.learned.files)
    assert ("early" in found, "late" in found) == (True, False)
    assert len(cold.learned.settings) == 256


def test_what_draws_random_numbers_is_not_loaded_ahead_of_a_program_that_may_seed_them(tmp_path: Path) -> None:
    one = job(tmp_path, "import random\nrandom.seed(5)\nimport early, late, drawer\nprint(random.random())\n")
    (tmp_path / "lib" / "site-packages" / "drawer.py").write_text("import random\nrandom.random()\n")
    standby = one.standby(plan_after(one.cold(), tmp_path))
    try:
        assert ready(standby)
        assert standby.report is not None
        assert standby.report.unfit == {"drawer"}
    finally:
        end(standby)


def test_settings_are_not_seen_by_people(tmp_path: Path) -> None:
    """They may be secrets: they are in the black box, which nobody shows, and of which the text is what else is there."""
    one = job(tmp_path, "os.environ['TOKEN'] = 'secret'\nimport early, late\n")
    cold = one.cold()
    promoted = one.promoted(plan_after(cold, tmp_path))
    for ended in (cold, promoted):
        assert [setting.value for setting in ended.learned.settings] == ["secret"]
        assert ended[:3] == (0, "", "")
        assert blackbox.read(ended.box) == blackbox.BlackBox(has_ended=True)
