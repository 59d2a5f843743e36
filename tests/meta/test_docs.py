from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import pytest

from planaria import errors
from planaria.aws.specs import ETCD
from planaria.contract.exit_status import SIGNAL_ROW, TABLE
from planaria.doctor.model import CHECKS
from planaria.launch.flags import OURS, TORCHRUN

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("changelog.d/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    return (ROOT / name).read_text()


def anchors(text: str) -> set[str]:
    """Return what a heading can be linked by, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Raised and caught inside the package: nobody outside meets them. A new one is either here or on a page.
INSIDE = {
    "aws/flags.py Help",
    "aws/main.py Interrupted",
    "base/channel.py ChannelBroken",
    "chaos/campaign.py Over",
    "chaos/hand.py NotNow",
    "chaos/hand.py Stuck",
    "contract/commit.py OtherStep",
    "elastic/store/thread.py Over",
    "kube/flags.py Help",
    "launch/owner_http.py NotAnswered",
    "process/pickling.py NotPicklable",
    "store/etcd_gateway.py EtcdAway",
    "store/etcd_gateway.py EtcdDenied",
    "store/etcd_gateway.py EtcdRefused",
    "store/kubernetes_api.py ApiAway",
    "store/kubernetes_api.py ApiConflict",
    "store/kubernetes_api.py ApiDenied",
    "store/kubernetes_api.py ApiForgot",
    "store/kubernetes_watch.py Lost",
    "worker/bundle.py Superseded",
    "worker/driver.py NoMemory",
    "worker/upload.py Damaged",
}


def exception_classes() -> list[tuple[str, str]]:
    """Return the public exception classes of every module, by reading it: no library is needed for that."""
    found = [
        (
            str(path.relative_to(ROOT / "src/planaria")),
            node.name,
            {ast.unparse(base).split(".")[-1] for base in node.bases},
        )
        for path in sorted(ROOT.glob("src/planaria/**/*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    known = {
        name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
    }
    while more := {name for _, name, bases in found if bases & known} - known:
        known |= more
    return [(module, name) for module, name, bases in found if bases & known and not name.startswith("_")]


def error_classes() -> list[str]:
    return [name for module, name in exception_classes() if module == "errors.py"]


def test_every_exception_is_in_errors_py_or_on_a_page_of_the_python_api_or_never_leaves_the_code() -> None:
    pages = "".join(path.read_text() for path in ROOT.glob("docs/elastic*.md"))
    others = {(module, name) for module, name in exception_classes() if module != "errors.py"}
    told = {(module, name) for module, name in others if module.startswith("elastic/") and f"`{name}`" in pages}
    assert {f"{module} {name}" for module, name in others - told} == INSIDE


@pytest.mark.parametrize("name", error_classes())
def test_every_error_has_its_entry_in_the_operations_page(name: str) -> None:
    assert re.search(rf"^### `{name}`$", page("docs/operations.md"), re.MULTILINE)


@pytest.mark.parametrize("name", error_classes())
def test_an_error_has_one_exit_status_in_the_code_and_in_the_operations_page(name: str) -> None:
    entry = page("docs/operations.md").partition(f"### `{name}`\n")[2].partition("\n#")[0]
    status = re.search(r"Exit status (\d+)", getattr(errors, name).__doc__ or "")
    if status is not None:
        assert re.findall(r"Exit\sstatus (\d+)", entry)[0] == status[1]


def test_every_exit_status_has_its_row_in_the_operations_page() -> None:
    wanted = [(str(row.status), row.name) for row in TABLE]
    status, name, _ = (part.strip() for part in SIGNAL_ROW.split("|"))
    text = page("docs/operations.md").partition("## Exit statuses")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w+]+) \| ([\w ]+) \|", text, re.MULTILINE)
    assert rows[1:] == [*wanted, (status, name)]


@pytest.mark.parametrize("flag", [*TORCHRUN, *OURS], ids=lambda flag: flag.name)
def test_every_flag_has_its_row_in_the_compatibility_page(flag: object) -> None:
    shown = [name for name in flag.names if "_" not in name]  # type: ignore[attr-defined]
    cell = ", ".join(f"`{name}`" for name in shown)
    assert re.search(rf"^\| {re.escape(cell)} \|", page("docs/torchrun-compat.md"), re.MULTILINE), cell


def test_the_compatibility_page_has_no_flag_that_does_not_exist() -> None:
    known = {name for flag in (*TORCHRUN, *OURS) for name in flag.names}
    text = page("docs/torchrun-compat.md").partition("## Flags")[2].partition("## How the command line")[0]
    rows = re.findall(r"^\| ((?:`-[^`]*`(?:, )?)+) \|", text, re.MULTILINE)
    assert len(rows) == len(TORCHRUN) + len(OURS)
    assert {name for row in rows for name in re.findall(r"`([^`]*)`", row)} <= known


def test_every_event_and_metric_of_the_agent_has_its_row_in_the_events_page() -> None:
    sources = {path.name: path.read_text() for path in (ROOT / "src/planaria/agent").glob("*.py")}
    telling = sources["observer.py"] + sources["pulse.py"] + sources["vigil.py"]
    alone = "restart|progress|commit|preflight|hang|straggler|stalled"
    events = set(re.findall(rf'"(planaria\.(?:[a-z]+\.[a-z.]+|{alone}))"', telling))
    exposing = sources["meters.py"] + sources["status.py"] + page("src/planaria/observe/handlers.py")
    metrics = set(re.findall(r'(?:"|# HELP )(planaria_[a-z_]+)', exposing))
    rows = re.findall(r"^\| `(planaria[._][a-z._]+)", page("docs/events.md"), re.MULTILINE)
    assert sorted(rows) == sorted(events | metrics)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    text = path.read_text()
    dead = []
    for link in LINK.findall(FENCED.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        # What is in changelog.d is read in CHANGELOG.md later, so its links are those of the root.
        folder = ROOT if path.parent.name == "changelog.d" and path.name != "README.md" else path.parent
        target = (folder / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            dead.append(link)
    assert dead == []


def test_pages_and_image_name_one_torch_and_one_etcd() -> None:
    """The Dockerfile names no package index, so the pages say how the smaller torch is had."""
    [torch] = re.findall(r"^ARG TORCH=(.*)$", page("Dockerfile"), re.MULTILINE)
    assert "INDEX_URL=" not in page("Dockerfile")
    for name in ("docs/containers.md", "examples/multi_container/README.md"):
        assert re.search(rf"(?s)PIP_EXTRA_INDEX_URL.*TORCH={re.escape(torch)}\+cpu", page(name)), name
    [etcd] = set(re.findall(r"/v([\d.]+)/etcd-", ETCD))
    for name in ("examples/multi_container/docker-compose.yml", "docs/aws.md"):
        assert set(re.findall(r"etcd(?::v| )(\d[\d.]+)", page(name))) == {etcd}, name


def test_every_page_is_in_the_index_of_the_readme() -> None:
    index = page("README.md").partition("## Where to read on")[2]
    assert [path.name for path in ROOT.glob("docs/*.md") if f"(docs/{path.name})" not in index] == []


def test_the_readme_has_exactly_two_set_up_commands_and_their_scripts_exist() -> None:
    commands = [line for line in page("README.md").splitlines() if line.lstrip().startswith("sh scripts/")]
    assert commands == ["sh scripts/demo", "sh scripts/test"]
    for command in commands:
        assert (ROOT / command.split()[1]).is_file()


def test_what_the_doctor_is_shown_to_say_adds_up() -> None:
    """A group with trouble does not say how many checks it has; disks are checked for two folders in that example."""
    shown = page("docs/doctor.md").partition("$ planaria doctor ")[2].partition("```")[0]
    well = sum(int(count) for count in re.findall(r"^ok +[a-z]+: (\d+) checks?$", shown, re.MULTILINE))
    troubled = re.findall(r"^(?:warn|fail) +([a-z]+)\.", shown, re.MULTILINE)
    assert troubled == ["shm", "disk"]
    assert f"\n{well + len(CHECKS['shm']) + 2 * len(CHECKS['disk'])} checks: " in shown


def test_every_check_of_the_doctor_has_its_row() -> None:
    rows = re.findall(r"^\| `([a-z]+\.[a-z-]+)` \| (?:ok|warn|fail) \|", page("docs/doctor.md"), re.MULTILINE)
    assert rows == [f"{group}.{check}" for group, checks in CHECKS.items() for check in checks]
