"""The names of `torch.distributed.run`, and `python -m planaria.run`, which is `planaria run`.

As a command it is the launcher: an agent with a guardian above it, on the fast path of `planaria.launch`. As a module it
is what torch's is: `main(["--nproc-per-node=2", "train.py"])` and `run(args)` launch a job from the caller's own process,
through `planaria.elastic`, and raise `ChildFailedError` when it fails. Everything is imported where it is used, since
the command pays for whatever stands at the top.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable
    from typing import Any

    from planaria.elastic.launcher.api import LaunchConfig
    from planaria.elastic.multiprocessing import LogsSpecs

_MASTER_PORT = 29500


def _logger() -> logging.Logger:
    from planaria.elastic.utils.logging import get_logger

    return get_logger("planaria.run")


def get_args_parser() -> ArgumentParser:
    """Return a parser of torchrun's command line; its defaults come from the `PET_*` variables of this moment."""
    from planaria.launch.argparser import make_parser

    return make_parser(os.environ)


def parse_args(args: list[str] | None) -> Namespace:
    """Read a command line without the program's own name; None means this process's."""
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """Read `2` or `1:4`.

    Raises:
        RuntimeError: There is more than one colon.
        ValueError: A part is no whole number.
    """
    parts = [int(part) for part in nnodes.split(":")] if nnodes.count(":") < 2 else []
    if not parts:
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    return parts[0], parts[-1]


def determine_local_world_size(nproc_per_node: str) -> int:
    """Return the number of workers that a number or one of `auto`, `cpu`, `gpu` and `xpu` means on this machine.

    Raises:
        ValueError: There is no such device, or the word is none of these.
    """
    from planaria.launch.devices import count

    try:
        return int(nproc_per_node)
    except ValueError as exc:
        if nproc_per_node not in ("auto", "cpu", "gpu", "xpu"):
            raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}") from exc
    cpus = len(os.sched_getaffinity(0))
    if nproc_per_node == "cpu":
        return cpus
    found = count(os.environ)
    if nproc_per_node == "auto":
        return found.gpus or found.discrete_xpus or cpus
    devices = found.gpus if nproc_per_node == "gpu" else found.xpus
    if not devices:
        raise ValueError("Cuda is not available." if nproc_per_node == "gpu" else "Xpu is not available.")
    return devices


def get_rdzv_endpoint(args: Namespace) -> str:
    """Return where nodes meet: the endpoint, or for `static` without one the master's address and port."""
    if args.rdzv_backend == "static" and not args.rdzv_endpoint:
        return f"{args.master_addr}:{args.master_port}"
    return str(args.rdzv_endpoint)


def get_use_env(args: Namespace) -> bool:
    """Tell whether a script learns its local rank from the environment; torch's old launcher could pass it as a flag."""
    return bool(getattr(args, "use_env", True))


def config_from_args(args: Namespace) -> tuple[LaunchConfig, Callable[..., Any] | str, list[str]]:
    """Return the launch that a command line means: its configuration, what to run in every worker, and with what.

    Raises:
        ValueError: A value is wrong; so for torch's reasons do AssertionError and RuntimeError.
    """
    from planaria.elastic.launcher.api import LaunchConfig

    min_nodes, max_nodes = parse_min_max_nnodes(args.nnodes)
    if not 0 < min_nodes <= max_nodes:
        raise AssertionError(
            f"min_nodes must be > 0 and <= max_nodes, got min_nodes={min_nodes}, max_nodes={max_nodes}"
        )
    if args.max_restarts < 0:
        raise AssertionError("max_restarts must be >= 0")
    nproc_per_node = determine_local_world_size(args.nproc_per_node)
    _set_omp_num_threads(nproc_per_node)
    config = LaunchConfig(
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        nproc_per_node=nproc_per_node,
        run_id=args.rdzv_id,
        role=args.role,
        rdzv_endpoint=get_rdzv_endpoint(args),
        rdzv_backend=args.rdzv_backend,
        rdzv_configs=_rdzv_configs(args),
        max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval,
        start_method=args.start_method,
        log_line_prefix_template=os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        local_addr=args.local_addr,
        logs_specs=_logs_specs(args),
        event_log_handler=args.event_log_handler,
        numa_options=_numa_options(args),
        signals_to_handle=args.signals_to_handle,
        duplicate_stdout_filters=args.duplicate_stdout_filters,
        duplicate_stderr_filters=args.duplicate_stderr_filters,
        virtual_local_rank=args.virtual_local_rank,
        shutdown_timeout=args.shutdown_timeout,
    )
    return config, *_command(args)


def _set_omp_num_threads(nproc_per_node: int) -> None:
    """Keep several workers from taking all CPUs each. Workers inherit it from this process, as under torch."""
    if nproc_per_node > 1 and "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"
        _logger().warning("Setting OMP_NUM_THREADS environment variable for each process to be 1 in default")


def _rdzv_configs(args: Namespace) -> dict[str, Any]:
    from planaria.elastic.rendezvous.utils import _parse_rendezvous_config

    if args.rdzv_backend != "static":
        if args.node_rank != 0:
            _logger().warning(
                "node_rank is only used for static rdzv_backend. It will be ignored for rdzv_backend=%s.",
                args.rdzv_backend,
            )
        return dict(_parse_rendezvous_config(args.rdzv_conf))
    return {**_parse_rendezvous_config(args.rdzv_conf), "rank": args.node_rank}


def _logs_specs(args: Namespace) -> LogsSpecs:
    from planaria.elastic.multiprocessing import Std

    ranks: set[int] | None = None
    if args.local_ranks_filter:
        try:
            ranks = {int(part) for part in args.local_ranks_filter.split(",")}
        except ValueError as exc:
            raise ValueError(
                "--local_ranks_filter must be a comma-separated list of integers e.g. --local_ranks_filter=0,1,2"
            ) from exc
    return _get_logs_specs_class(args.logs_specs)(
        log_dir=args.log_dir,
        redirects=Std.from_str(args.redirects),
        tee=Std.from_str(args.tee),
        local_ranks_filter=ranks,
    )


def _get_logs_specs_class(logs_specs_name: str | None) -> type[LogsSpecs]:
    """Return the class that an installed package offers under that name, or ours."""
    from planaria.elastic.multiprocessing import DefaultLogsSpecs

    if logs_specs_name is None:
        return DefaultLogsSpecs
    from importlib import metadata

    found = metadata.entry_points(group="torchrun.logs_specs", name=logs_specs_name)
    if not found:
        raise ValueError(f"Could not find entrypoint under 'torchrun.logs_specs[{logs_specs_name}]' key")
    loaded: type[LogsSpecs] = found[logs_specs_name].load()
    return loaded


def _numa_options(args: Namespace) -> object:
    if args.numa_binding is None:
        return None
    from planaria.launch.numa_binding import AffinityMode, NumaOptions

    return NumaOptions(affinity_mode=AffinityMode(args.numa_binding))


def _command(args: Namespace) -> tuple[Callable[..., Any] | str, list[str]]:
    """Return what every worker runs, and its arguments. `--run-path` beats `--no-python`."""
    from planaria.elastic.utils import macros

    what: Callable[..., Any] | str = args.training_script
    words: list[str] = []
    if args.run_path:
        what, words = run_script_path, [args.training_script]
    elif not args.no_python:
        what = os.environ.get("PYTHON_EXEC", sys.executable)
        words = ["-u", *(["-m"] if args.module else []), args.training_script]
    elif args.module:
        raise ValueError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
    if not get_use_env(args):
        words.append(f"--local-rank={macros.local_rank}")
    return what, [*words, *args.training_script_args]


def run_script_path(training_script: str, *training_script_args: str) -> None:
    """Run a script in this interpreter as its main program. This is what a worker of `--run-path` calls."""
    import runpy

    sys.argv = [training_script, *training_script_args]
    runpy.run_path(training_script, run_name="__main__")


def run(args: Namespace) -> None:
    """Launch the job of a parsed command line from this process and wait for it.

    Raises:
        ChildFailedError: A worker failed and the restarts are spent.
        SignalException: A signal stopped the job.
    """
    from planaria.elastic.launcher.api import elastic_launch

    alone = args.rdzv_backend == "static" and not args.rdzv_endpoint and args.master_port is None
    if args.standalone or (alone and parse_min_max_nnodes(args.nnodes)[1] == 1):
        import uuid

        args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = "c10d", "localhost:0", str(uuid.uuid4())
    if args.master_port is None:
        args.master_port = _MASTER_PORT
    config, what, words = config_from_args(args)
    elastic_launch(config=config, entrypoint=what)(*words)


def main(args: list[str] | None = None) -> None:
    """Launch the job of a command line from this process; None means this process's own command line.

    The error file of the first worker that failed is copied to ours, if `TORCHELASTIC_ERROR_FILE` names one.
    """
    from planaria.elastic.multiprocessing.errors import record

    record(run)(parse_args(args))


def _as_a_command(argv: list[str]) -> int:
    from planaria.launch.main import run as launch  # after `leave` has put the import path right

    return launch(argv)


if __name__ == "__main__":
    from planaria.__main__ import leave

    leave(_as_a_command, sys.argv[1:])
