from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.agent.conf import Credentials
from planaria.base.text import safe_line
from planaria.base.value import replace
from planaria.errors import InternalError, UsageError
from planaria.launch.devices import Counts
from planaria.launch.flags import OURS, TORCHRUN, Flag
from planaria.launch.numa import Topology
from planaria.launch.parse import parse
from planaria.launch.plan import Machine, Plan, needs, plan
from planaria.launch.script import ScriptFacts
from planaria.process.model import Command, StreamMask

MACHINE = Machine("/usr/bin/python3", 4, "fresh-id")
ASKED = Machine(
    "/usr/bin/python3", 4, "fresh-id", ScriptFacts(), Counts(0, 0, 0), Topology((), {}), Credentials(), frozenset()
)


def planned(*argv: str, environ: dict[str, str] | None = None, machine: Machine = MACHINE) -> Plan:
    environ = environ or {}
    return plan(parse([*argv], environ), environ, machine)


def test_a_script_alone_is_one_worker_by_itself_on_a_free_port() -> None:
    job = planned("train.py", "--lr", "1").job
    assert job.command == Command("script", "train.py", ("--lr", "1"), "/usr/bin/python3", True)
    assert (job.local_world_size, job.run_id, job.role, job.max_restarts) == (1, "fresh-id", "default", 0)
    assert (job.master_addr, job.master_port, job.shutdown_timeout_s, job.signals) == (
        "127.0.0.1",
        None,
        30.0,
        (15, 2, 1, 3),
    )


@pytest.mark.parametrize(
    ("argv", "run_id", "addr", "port"),
    [
        (["--standalone", "--rdzv-id=mine", "--master-port=1"], "fresh-id", "127.0.0.1", None),
        (["--rdzv-id=mine"], "fresh-id", "127.0.0.1", None),
        (["--local-addr=10.0.0.1"], "fresh-id", "10.0.0.1", None),
        (["--rdzv-backend=c10d", "--rdzv-id=mine", "--rdzv-endpoint=localhost:0"], "mine", "127.0.0.1", None),
        (["--rdzv-backend=c10d"], "none", "127.0.0.1", None),
        (["--rdzv-backend=embedded", "--rdzv-endpoint=a,b:1"], "none", "127.0.0.1", None),
        (["--master-port=1234"], "none", "127.0.0.1", 1234),
        (["--master-port=1234", "--master-addr=[::1]", "--rdzv-id=x"], "x", "::1", 1234),
        (["--rdzv-endpoint=head:4000"], "none", "head", 4000),
        (["--rdzv-endpoint=[fe80::1]:4000"], "none", "fe80::1", 4000),
        (["--rdzv-endpoint=[fe80::1]"], "none", "fe80::1", 29500),
        (["--rdzv-endpoint=head", "--master-port=7"], "none", "head", 7),
        (["--standalone", "--rdzv-backend=etcd", "--rdzv-endpoint=:::"], "fresh-id", "127.0.0.1", None),
    ],
    ids=str,
)
def test_the_rendezvous_flags_end_in_an_address_a_port_and_a_run_id(
    argv: list[str], run_id: str, addr: str, port: int | None
) -> None:
    job = planned(*argv, "a.py").job
    assert (job.run_id, job.master_addr, job.master_port) == (run_id, addr, port)


@pytest.mark.parametrize(
    ("word", "found", "workers"),
    [
        ("auto", Counts(2, 0, 0), 2),
        ("auto", Counts(0, 3, 3), 3),
        ("auto", Counts(0, 1, 0), 4),
        ("auto", Counts(0, 0, 0), 4),
        ("gpu", Counts(8, 0, 0), 8),
        ("xpu", Counts(0, 1, 0), 1),
        ("cpu", None, 4),
        ("7", None, 7),
    ],
)
def test_the_number_of_workers_comes_from_the_machine_when_asked(word: str, found: Counts | None, workers: int) -> None:
    machine = Machine("/usr/bin/python3", 4, "fresh-id", accelerators=found)
    assert planned(f"--nproc-per-node={word}", "a.py", machine=machine).job.local_world_size == workers


def test_only_what_a_flag_needs_is_asked_of_the_machine() -> None:
    assert needs(parse(["a.py"], {}), {}) == frozenset()
    assert needs(parse(["--nproc-per-node=cpu", "a.py"], {}), {}) == frozenset()
    assert needs(parse(["a.py"], {"PET_NPROC_PER_NODE": "auto"}), {}) == {"accelerators"}
    assert needs(parse(["--numa-binding=node", "a.py"], {}), {}) == {"topology"}
    assert needs(parse(["--health-check-port=0", "a.py"], {}), {}) == {"credentials"}
    assert needs(parse(["a.py"], {}), {"TORCHELASTIC_HEALTH_CHECK_PORT": "80"}) == {"credentials"}


def test_several_workers_get_one_thread_each_and_the_user_is_told_in_torchruns_words() -> None:
    made = planned("--nproc-per-node=2", "a.py")
    assert made.job.environment["OMP_NUM_THREADS"] == "1"
    assert len(made.notices) == 1
    assert "Setting OMP_NUM_THREADS environment variable for each process to be 1" in made.notices[0]


@pytest.mark.parametrize(
    ("nproc", "environ"), [("1", {}), ("2", {"OMP_NUM_THREADS": "8"}), ("2", {"OMP_NUM_THREADS": ""})]
)
def test_threads_are_left_alone_for_one_worker_or_when_set(nproc: str, environ: dict[str, str]) -> None:
    made = planned(f"--nproc-per-node={nproc}", "a.py", environ=environ)
    assert made.job.environment.get("OMP_NUM_THREADS") == environ.get("OMP_NUM_THREADS")
    assert made.notices == ()


def test_workers_inherit_everything_but_the_launchers_secrets() -> None:
    environ = {"A": "1", "PLANARIA_TOKEN": "s3cret", "PLANARIA_TOKEN_FILE": "/run/s3cret"}
    made = planned("--signals-to-handle=SIGTERM,SIGUSR1", "a.py", environ=environ)
    assert made.job.environment == {"A": "1", "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGUSR1"}
    assert made.job.signals == (15, 10)


@pytest.mark.parametrize(
    ("argv", "environ", "command"),
    [
        (["-m", "pkg.x"], {}, Command("module", "pkg.x", (), "/usr/bin/python3", True)),
        (["a.py"], {"PYTHON_EXEC": "/opt/py"}, Command("script", "a.py", (), "/opt/py", True)),
        (["a.py"], {"PYTHON_EXEC": ""}, Command("script", "a.py", (), "/usr/bin/python3", True)),
        (["--no-python", "./a.sh", "x"], {}, Command("program", "./a.sh", ("x",), "", False)),
        (["--no-bootstrap", "a.py"], {}, Command("script", "a.py", (), "/usr/bin/python3", False)),
        (["--no-bootstrap", "-m", "pkg"], {}, Command("module", "pkg", (), "/usr/bin/python3", False)),
        (
            ["--run-path", "--no-python", "-m", "a.py"],
            {"PYTHON_EXEC": "/opt/py"},
            Command("path", "a.py", (), "/usr/bin/python3"),
        ),
    ],
    ids=str,
)
def test_the_program_flags_end_in_one_command(argv: list[str], environ: dict[str, str], command: Command) -> None:
    assert planned(*argv, environ=environ).job.command == command


@pytest.mark.parametrize("kind", ["directory", "zip", "bytecode"])
def test_what_is_not_source_starts_without_the_bootstrap(kind: str) -> None:
    machine = Machine("/usr/bin/python3", 4, "fresh-id", ScriptFacts(kind))  # type: ignore[arg-type]  # parametrised
    assert not planned("thing", machine=machine).job.command.bootstrap


def test_masks_may_name_ranks_of_any_length() -> None:
    logs = planned("-r", "0:1,12:3", "-t2", "a.py").job.logs
    assert logs.redirects == StreamMask(by_rank=((0, 1), (12, 3)))
    assert (logs.redirects.of(12), logs.redirects.of(5), logs.tee.of(5)) == (3, 0, 2)


def test_the_log_flags_end_in_log_settings() -> None:
    logs = planned(
        "--log-dir=logs",
        "--local-ranks-filter=0, 2",
        "--duplicate-stdout-filters=loss,a,,b",
        "a.py",
        environ={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${rank}] ", "PET_DUPLICATE_STDERR_FILTERS": "err"},
    ).job.logs
    assert (logs.log_dir, logs.shown_ranks, logs.prefix_template) == ("logs", {0, 2}, "[${rank}] ")
    assert (logs.stdout_filters, logs.stderr_filters) == (("loss", "a,b"), ("err",))
    assert planned("--log-dir=", "a.py").job.logs.log_dir is None


@pytest.mark.parametrize(
    ("argv", "environ", "seconds"),
    [
        ([], {}, 30),
        ([], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5"}, 5),
        ([], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": ""}, 30),
        (["--shutdown-timeout=0"], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "x"}, 0),
    ],
)
def test_the_shutdown_timeout_is_the_flags_the_variables_or_30(
    argv: list[str], environ: dict[str, str], seconds: float
) -> None:
    assert planned(*argv, "a.py", environ=environ).job.shutdown_timeout_s == seconds


@pytest.mark.parametrize(
    ("text", "handlers"),
    [
        ("null", ""),
        ("dynamic_rendezvous", ""),
        ("console", "console"),
        ("logging,prometheus", "logging,prometheus"),
        ("prometheus:a.prom,jsonl:b", "prometheus:a.prom,jsonl:b"),
        ("mine:where", "mine:where"),
    ],
)
def test_event_handlers_are_ours_or_those_of_an_installed_package(text: str, handlers: str) -> None:
    options = parse([f"--event-log-handler={text}", "a.py"], {})
    installed = frozenset({"mine"}) if "event_handlers" in needs(options, {}) else None
    assert (installed is None) == (not text.startswith("mine")), "looking for plugins costs 30 ms"
    machine = replace(MACHINE, event_handlers=installed)
    assert plan(options, {}, machine).job.event_handlers == handlers


@pytest.mark.parametrize(
    ("argv", "notice"),
    [
        (["--start-method=fork"], "--start-method has no effect without --run-path"),
        (["--node-rank=1"], "--node-rank has no effect without the static rendezvous of --master-port"),
        (["--rdzv-backend=c10d", "--master-port=1"], "--master-port has no effect without the static rendezvous"),
        (["--standalone", "--rdzv-id=x"], "--rdzv-id has no effect with --standalone"),
        (["--standalone", "--nnodes=1:4"], "--nnodes has no effect with --standalone"),
        (["--json"], "--json has no effect without --dry-run"),
        (["--preflight-cooldown=9"], "--preflight-cooldown has no effect without --preflight"),
        (["--preflight", "--preflight-cooldown=9"], "--preflight-cooldown has no effect on one node"),
        (["--standbys=auto"], "--standbys has no effect on one node without --max-restarts"),
        (
            ["--standbys=1", "--no-bootstrap", "--max-restarts=1"],
            "--standbys has no effect without the start-up file (--no-python, --no-bootstrap, a script that is no source)",
        ),
        (
            ["--event-log-handler=prometheus"],
            "--event-log-handler has no effect without --health-check-port or prometheus:PATH",
        ),
    ],
)
def test_a_flag_without_effect_is_accepted_and_said_so(argv: list[str], notice: str) -> None:
    assert planned(*argv, "a.py").notices == (notice,)


@pytest.mark.parametrize(
    "argv",
    [
        ["--monitor-interval=5"],
        ["--nnodes=1:1"],
        ["--node-rank=0"],
        ["--master-port=1", "--master-addr=h"],
        ["--require-token"],
        ["--standbys=0"],
        ["--rdzv-conf=ttl=9,close_timeout=3"],
    ],
)
def test_flags_that_ask_for_what_happens_anyway_are_silent(argv: list[str]) -> None:
    assert planned(*argv, "a.py").notices == ()


def test_our_own_flags_reach_the_job() -> None:
    made = planned("--exit-code=worker", "--always-restart", "--report-file=r.json", "--dry-run", "--json", "a.py")
    assert (made.job.worker_exit_code, made.job.always_restart, made.job.report_file) == (True, True, "r.json")
    assert (made.dry_run, made.json, made.notices) == (True, True, ())


@pytest.mark.parametrize(
    ("argv", "standbys"),
    [
        ([], 0),
        (["--standbys=0", "--max-restarts=1"], 0),
        (["--standbys=2", "--max-restarts=1"], 2),
        (["--standbys=auto", "--max-restarts=1"], None),
        (["--standbys=2"], 0),
        (["--standbys=2", "--max-restarts=1", "--no-bootstrap"], 0),
        (["--standbys=2", "--max-restarts=1", "--no-python"], 0),
    ],
)
def test_standbys_are_kept_where_they_can_be_of_use(argv: list[str], standbys: int | None) -> None:
    assert planned(*argv, "a.py").job.standbys == standbys


def test_standbys_are_of_use_without_restarts_where_nodes_come_and_go() -> None:
    options = parse(["--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h", "--standbys=2", "a.py"], {})
    made = plan(options, {}, replace(MACHINE, credentials=Credentials()))
    assert (made.job.standbys, [one for one in made.notices if "standbys" in one]) == (2, [])


def test_numa_binding_ends_in_one_cpu_set_per_worker() -> None:
    topology = Topology((0, 1), {0: frozenset({0, 1}), 1: frozenset({2, 3})})
    machine = Machine("/usr/bin/python3", 4, "fresh-id", topology=topology)
    made = planned("--numa-binding=node", "--nproc-per-node=2", "a.py", machine=machine)
    assert made.job.cpu_sets == ({0, 1}, {2, 3})


def test_a_virtual_local_rank_needs_as_many_visible_devices_as_workers() -> None:
    flags = ("--virtual-local-rank", "--nproc-per-node=2", "a.py")
    assert planned(*flags).job.virtual_local_rank
    assert planned(*flags, environ={"CUDA_VISIBLE_DEVICES": "3,5"}).job.virtual_local_rank
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES='3'"):
        planned(*flags, environ={"CUDA_VISIBLE_DEVICES": "3"})


@pytest.mark.parametrize("argv", [["--nproc-per-node=auto"], ["--numa-binding=node"]])
def test_forgetting_to_ask_the_machine_is_a_bug_and_not_a_guess(argv: list[str]) -> None:
    with pytest.raises(InternalError):
        planned(*argv, "a.py")


FLAGS = [flag for flag in (*TORCHRUN, *OURS) if flag.kind != "flag"]
odd_text = st.one_of(st.text(max_size=12), st.text("0123456789:,=-[]. SIGTERMauto\u00b2\u0663\x1b", max_size=12))


@settings(max_examples=500)
@given(chosen=st.lists(st.tuples(st.sampled_from(FLAGS), odd_text), max_size=3), by_variable=st.booleans())
def test_whatever_is_typed_the_answer_is_a_plan_or_one_harmless_sentence(
    chosen: list[tuple[Flag, str]], by_variable: bool
) -> None:
    environ = {flag.variable: text for flag, text in chosen if flag.variable} if by_variable else {}
    argv = [] if by_variable else [f"{flag.name}={text}" for flag, text in chosen]
    sentence = ""
    try:
        planned(*argv, "a.py", environ=environ, machine=ASKED)
    except UsageError as refusal:
        sentence = str(refusal)
    assert safe_line(sentence, 1000) == sentence


def test_the_checks_before_a_node_joins_are_those_that_were_asked_for() -> None:
    assert planned("a.py").job.preflight == ()
    assert planned("--preflight=gpu,disk", "a.py").job.preflight == ("gpu", "disk")
    everything = planned("--preflight", "--preflight-cooldown=5", "a.py").job
    assert (len(everything.preflight), everything.preflight_cooldown_s) == (10, 5.0)
