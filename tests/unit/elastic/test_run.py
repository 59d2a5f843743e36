"""The names of `torch.distributed.run`. What a launch does is tested where it is done; here it is a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from planaria import run
from planaria.errors import UsageError

Launch = Callable[..., dict[str, Any]]


class Std:
    @staticmethod
    def from_str(text: str) -> str:
        return f"std {text}"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand in for the launcher, the log specs and the rendezvous; return what the launch was given."""
    seen: dict[str, Any] = {}

    def elastic_launch(config: object, entrypoint: object) -> Callable[..., None]:
        seen.update(config=config, entrypoint=entrypoint)
        return lambda *args: seen.update(args=list(args))

    def stand_in(name: str, **members: object) -> None:
        module = types.ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)

    launcher: dict[str, object] = {"LaunchConfig": SimpleNamespace, "elastic_launch": elastic_launch}
    stand_in("planaria.elastic.launcher")
    stand_in("planaria.elastic.launcher.api", **launcher)
    stand_in("planaria.elastic.rendezvous")
    stand_in(
        "planaria.elastic.rendezvous.utils",
        _parse_rendezvous_config=lambda text: dict(pair.split("=") for pair in text.split(",") if pair),
    )
    import planaria.elastic.multiprocessing as real

    monkeypatch.setattr(real, "Std", Std, raising=False)
    monkeypatch.setattr(real, "DefaultLogsSpecs", SimpleNamespace, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    for name in [name for name in os.environ if name.startswith(("PET_", "PYTHON_EXEC", "TORCHELASTIC_"))]:
        monkeypatch.delenv(name)
    return seen


def arguments(*words: str) -> Namespace:
    return run.parse_args([*words, "train.py", "--lr=1"])


@pytest.mark.parametrize(("text", "nodes"), [("2", (2, 2)), ("1:4", (1, 4))])
def test_a_range_of_nodes_is_read(text: str, nodes: tuple[int, int]) -> None:
    assert run.parse_min_max_nnodes(text) == nodes


def test_a_wrong_range_of_nodes_is_refused_as_torch_does() -> None:
    with pytest.raises(RuntimeError, match='nnodes=1:2:3 is not in "MIN:MAX" format'):
        run.parse_min_max_nnodes("1:2:3")
    with pytest.raises(ValueError, match="invalid literal"):
        run.parse_min_max_nnodes("many")


def test_workers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = SimpleNamespace(gpus=0, xpus=0, discrete_xpus=0)
    monkeypatch.setattr("planaria.launch.devices.count", lambda _environ: counts)
    cpus = len(os.sched_getaffinity(0))
    assert [run.determine_local_world_size(word) for word in ("7", "cpu", "auto")] == [7, cpus, cpus]
    with pytest.raises(ValueError, match=r"^Cuda is not available\.$"):
        run.determine_local_world_size("gpu")
    with pytest.raises(ValueError, match=r"^Xpu is not available\.$"):
        run.determine_local_world_size("xpu")
    counts.gpus, counts.xpus = 4, 2
    assert [run.determine_local_world_size(word) for word in ("gpu", "xpu", "auto")] == [4, 2, 4]


def test_an_unknown_word_for_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="Unsupported nproc_per_node value: lots"):
        run.determine_local_world_size("lots")


def test_the_endpoint_of_a_static_rendezvous_is_the_master() -> None:
    args = Namespace(rdzv_backend="static", rdzv_endpoint="", master_addr="node-a", master_port=7)
    assert run.get_rdzv_endpoint(args) == "node-a:7"
    args.rdzv_backend, args.rdzv_endpoint = "c10d", "node-b:8"
    assert run.get_rdzv_endpoint(args) == "node-b:8"


def test_only_the_old_launcher_passes_the_local_rank_as_a_flag() -> None:
    assert run.get_use_env(Namespace()) is True
    assert run.get_use_env(Namespace(use_env=False)) is False


def test_variables_are_the_defaults_of_flags(launched: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_MAX_RESTARTS", "4")
    monkeypatch.setenv("PET_STANDALONE", "1")
    monkeypatch.setenv("PET_DUPLICATE_STDOUT_FILTERS", "a,b,,c")
    args = arguments("--role=x")
    assert (args.max_restarts, args.standalone, args.role) == (4, True, "x")
    assert args.duplicate_stdout_filters == ["a", "b,c"]
    assert arguments("--max-restarts=2").max_restarts == 2


def test_a_wrong_variable_of_a_switch_is_refused(launched: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_MODULE", "yes")
    with pytest.raises(UsageError, match="PET_MODULE expects 0 or 1, got 'yes'"):
        run.get_args_parser()


def test_every_flag_becomes_a_field_of_the_configuration(
    launched: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[${rank}]")
    args = arguments(
        "--nnodes=1:2", "--nproc-per-node=3", "--rdzv-backend=c10d", "--rdzv-endpoint=a:1", "--rdzv-id=job",
        "--rdzv-conf=ttl=3", "--max-restarts=5", "--monitor-interval=0.5", "--start-method=fork", "--role=trainer",
        "--log-dir=logs", "-r1", "-t2", "--local-ranks-filter=0,12", "--local-addr=b", "--event-log-handler=console",
        "--signals-to-handle=SIGTERM", "--shutdown-timeout=9", "--virtual-local-rank", "--numa-binding=node",
        "--duplicate-stderr-filters=x",
    )  # fmt: skip
    config, what, words = run.config_from_args(args)
    numa = vars(config).pop("numa_options")
    assert numa.affinity_mode == "node"
    assert vars(vars(config).pop("logs_specs")) == {
        "log_dir": "logs",
        "redirects": "std 1",
        "tee": "std 2",
        "local_ranks_filter": {0, 12},
    }
    assert vars(config) == {
        "min_nodes": 1,
        "max_nodes": 2,
        "nproc_per_node": 3,
        "run_id": "job",
        "role": "trainer",
        "rdzv_endpoint": "a:1",
        "rdzv_backend": "c10d",
        "rdzv_configs": {"ttl": "3"},
        "max_restarts": 5,
        "monitor_interval": 0.5,
        "start_method": "fork",
        "log_line_prefix_template": "[${rank}]",
        "local_addr": "b",
        "event_log_handler": "console",
        "signals_to_handle": "SIGTERM",
        "duplicate_stdout_filters": [],
        "duplicate_stderr_filters": ["x"],
        "virtual_local_rank": True,
        "shutdown_timeout": 9,
    }
    assert (what, words) == (sys.executable, ["-u", "train.py", "--lr=1"])


@pytest.mark.parametrize(
    ("flags", "what", "words"),
    [
        (("-m",), sys.executable, ["-u", "-m", "train.py", "--lr=1"]),
        (("--no-python",), "train.py", ["--lr=1"]),
        (("--run-path", "--no-python"), run.run_script_path, ["train.py", "--lr=1"]),
    ],
)
def test_every_way_to_start_a_worker_has_its_command(
    launched: dict[str, Any], flags: tuple[str, ...], what: object, words: list[str]
) -> None:
    assert run.config_from_args(arguments(*flags))[1:] == (what, words)


def test_the_interpreter_may_be_named(launched: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_EXEC", "python9")
    assert run.config_from_args(arguments())[1] == "python9"


def test_a_script_of_the_old_launcher_gets_its_local_rank(launched: dict[str, Any]) -> None:
    args = arguments()
    args.use_env = False
    assert run.config_from_args(args)[2] == ["-u", "train.py", "--local-rank=${local_rank}", "--lr=1"]


@pytest.mark.parametrize(
    ("flags", "error", "told"),
    [
        (("--nnodes=0",), AssertionError, "min_nodes must be > 0 and <= max_nodes, got min_nodes=0, max_nodes=0"),
        (("--nnodes=3:2",), AssertionError, "got min_nodes=3, max_nodes=2"),
        (("--max-restarts=-1",), AssertionError, "max_restarts must be >= 0"),
        (("--no-python", "-m"), ValueError, "Don't use both the '--no-python' flag and the '--module' flag"),
        (("--local-ranks-filter=a",), ValueError, "--local_ranks_filter must be a comma-separated list of integers"),
        (("--logs-specs=nope",), ValueError, r"Could not find entrypoint under 'torchrun.logs_specs\[nope\]' key"),
    ],
)
def test_wrong_values_are_refused_as_torch_does(
    launched: dict[str, Any], flags: tuple[str, ...], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        run.config_from_args(arguments(*flags))


def test_several_workers_get_one_thread_each_unless_told_otherwise(
    launched: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run.config_from_args(arguments("--nproc-per-node=2"))
    assert (os.environ["OMP_NUM_THREADS"], caplog.messages) == ("3", [])
    monkeypatch.delenv("OMP_NUM_THREADS")
    run.config_from_args(arguments("--nproc-per-node=1"))
    assert "OMP_NUM_THREADS" not in os.environ
    run.config_from_args(arguments("--nproc-per-node=2"))
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert "Setting OMP_NUM_THREADS" in caplog.text


def test_a_node_rank_belongs_to_the_static_rendezvous(
    launched: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    static = run.config_from_args(arguments("--node-rank=1", "--nnodes=2", "--master-port=7"))[0]
    assert (static.rdzv_configs, static.rdzv_endpoint) == ({"rank": 1}, "127.0.0.1:7")
    assert caplog.messages == []
    run.config_from_args(arguments("--node-rank=1", "--rdzv-backend=c10d"))
    assert "node_rank is only used for static rdzv_backend" in caplog.text


@pytest.mark.parametrize("flags", [("--standalone", "--rdzv-id=mine"), ()])
def test_one_node_by_itself_meets_nobody(launched: dict[str, Any], flags: tuple[str, ...]) -> None:
    run.run(arguments(*flags))
    config = launched["config"]
    assert (config.rdzv_backend, config.rdzv_endpoint) == ("c10d", "localhost:0")
    assert config.run_id not in ("none", "mine")
    assert launched["args"] == ["-u", "train.py", "--lr=1"]


@pytest.mark.parametrize("flags", [("--nnodes=2",), ("--master-port=29500",)])
def test_a_static_rendezvous_stays_one(launched: dict[str, Any], flags: tuple[str, ...]) -> None:
    run.run(arguments(*flags))
    assert (launched["config"].rdzv_backend, launched["config"].rdzv_endpoint) == ("static", "127.0.0.1:29500")


def test_a_command_line_is_launched_from_this_process(launched: dict[str, Any]) -> None:
    assert run.main(["--nproc-per-node=2", "train.py", "--", "-x"]) is None
    assert (launched["config"].nproc_per_node, launched["entrypoint"]) == (2, sys.executable)


def test_a_script_is_run_as_the_main_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nsys.modules['seen'] = (__name__, sys.argv)\n")
    monkeypatch.setattr(sys, "argv", ["launcher"])
    monkeypatch.setitem(sys.modules, "seen", None)  # type: ignore[arg-type]
    run.run_script_path(str(script), "a", "b")
    assert sys.modules["seen"] == ("__main__", [str(script), "a", "b"])


def test_as_a_command_it_is_planaria_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "planaria.run", "--dry-run", "--no-python", "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "true" in done.stdout
