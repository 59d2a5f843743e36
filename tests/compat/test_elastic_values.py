"""torch's own `record`, `ChildFailedError`, sampler, events and parser beside ours, on the same input."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from programs import clean_environment

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is what is compared with", allow_module_level=True)

pytestmark = pytest.mark.torch
TIMEOUT_S = 110


def environment(**changes: str) -> dict[str, str]:
    return clean_environment("PYTHON", OMP_NUM_THREADS="1", **changes)


def python(folder: Path, script: str, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    (folder / "main.py").write_text(script)
    return subprocess.run(
        [sys.executable, "-W", "ignore", *words, "main.py"],
        cwd=folder,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def said(folder: Path, script: str, *words: str, **changes: str) -> str:
    done = python(folder, script, *words, **changes)
    assert done.returncode == 0, done.stderr
    return done.stdout


ERRORS = """
import json, os, sys, importlib

def write(root, path, error):
    errors = importlib.import_module(f"{root}.elastic.multiprocessing.errors")
    os.environ["TORCHELASTIC_ERROR_FILE"] = path

    @errors.record
    def main():
        raise error

    try:
        main()
    except Exception:
        pass

def read(root, *paths):
    errors = importlib.import_module(f"{root}.elastic.multiprocessing.errors")
    failures = {
        rank: errors.ProcessFailure(local_rank=rank, pid=7 + rank, exitcode=code, error_file=path)
        for rank, (path, code) in enumerate(zip(paths, (1, -11, 1, -9)))
    }
    for failure in failures.values():
        if failure.error_file == "<N/A>":
            failure.timestamp = 2_000_000_000
    error = errors.ChildFailedError("main.py", failures)
    told = [[f.message, f.timestamp, f.signal_name(), f.timestamp_isoformat(), f.error_file, f.error_file_data]
            for f in failures.values()]
    rank, first = error.get_first_failure()
    os.environ["TORCHELASTIC_ERROR_FILE"] = f"{root}.json"
    errors.get_error_handler().dump_error_file(first.error_file, first.exitcode)
    return [str(error), rank, told, json.load(open(f"{root}.json"))]

write("torch.distributed", "a.json", RuntimeError("theirs \\u00e9"))
write("planaria", "b.json", KeyError("ours"))
for path in "a.json", "b.json":  # the same whole second, the second one later in it
    told = json.load(open(path))
    told["message"]["extraInfo"]["timestamp"] = "1700000000"
    json.dump(told, open(path, "w"))
    os.utime(path, (1700000000.25 if path == "a.json" else 1700000000.5,) * 2)
json.dump({"message": "new", "timestamp": 1700000003}, open("c.json", "w"))
paths = "a.json", "b.json", "c.json", "none.json"
print(json.dumps([read(root, *paths) for root in ("torch.distributed", "planaria")]))
"""


def test_either_reads_what_the_other_has_written_and_reports_it_in_the_same_words(tmp_path: Path) -> None:
    theirs, ours = json.loads(said(tmp_path, ERRORS))
    assert ours == theirs
    assert "RuntimeError: theirs" in ours[2][0][0]["message"]
    assert ours[2][1][0]["message"] == "KeyError: 'ours'"


SAMPLERS = """
import itertools, os, torch
import torch.distributed.elastic.utils.data as theirs
import planaria.elastic.utils.data as ours

for size, replicas, start, epoch in itertools.product((1, 2, 7, 64, 1000), (1, 2, 3), (0, 1, 5), (0, 1, 12345)):
    if start >= size or (size - start) * 2 < replicas:  # torch asserts when there are twice as many ranks as data
        continue
    for rank in range(replicas):
        pair = [one.ElasticDistributedSampler(range(size), replicas, rank, start) for one in (theirs, ours)]
        for sampler in pair:
            sampler.set_epoch(epoch)
        assert list(pair[0]) == list(pair[1]), (size, replicas, start, epoch)
        assert len(pair[0]) == len(pair[1])
        names = "num_replicas rank epoch drop_last num_samples total_size shuffle seed start_index dataset".split()
        assert [getattr(pair[0], name) for name in names] == [getattr(pair[1], name) for name in names]
loaded = torch.utils.data.DataLoader(range(10), batch_size=5, sampler=ours.ElasticDistributedSampler(range(10), 2, 1))
print([batch.tolist() for batch in loaded])
"""


def test_our_sampler_has_the_order_of_torch_s_and_serves_its_data_loader(tmp_path: Path) -> None:
    batches = json.loads(said(tmp_path, SAMPLERS))
    assert len(batches) == 1
    assert len(set(batches[0])) == 5


SAMPLER_IN_A_WORKER = """
import torch.distributed as dist
from torch.distributed.elastic.utils.data import ElasticDistributedSampler
import planaria.elastic.utils.data as ours

dist.init_process_group("gloo")
mine = list(ElasticDistributedSampler(range(11), start_index=1))
assert mine == list(ours.ElasticDistributedSampler(range(11), start_index=1))
shares = [None, None]
dist.all_gather_object(shares, mine)
if dist.get_rank() == 0:
    print(sorted(shares[0] + shares[1]))
dist.destroy_process_group()
"""


def test_torch_s_sampler_deals_the_data_out_under_our_agent(tmp_path: Path) -> None:
    told = said(tmp_path, SAMPLER_IN_A_WORKER, "-m", "planaria", "run", "--nproc-per-node=2")
    assert json.loads(told) == list(range(1, 11))


EVENTS = """
import torch.distributed.elastic.events as theirs
import planaria.elastic.events as ours

for one, other in (theirs, ours), (ours, theirs):
    told = one.Event("x", one.EventSource.AGENT, 17, {"a": 1, "b": None})
    assert other.Event.deserialize(told.serialize()).serialize() == told.serialize()
    rdzv = one.RdzvEvent("x", "run", "hello", "host", 7, one.NodeState.FAILED, rank=3)
    assert other.RdzvEvent.deserialize(rdzv.serialize()).serialize() == rdzv.serialize()
assert str(ours.EventSource.AGENT) == str(theirs.EventSource.AGENT)
assert theirs.Event("x", theirs.EventSource.AGENT).timestamp == 0 < ours.Event("x", ours.EventSource.AGENT).timestamp
"""


def test_either_reads_the_other_s_events(tmp_path: Path) -> None:
    said(tmp_path, EVENTS)


PARSERS = """
import os
import torch.distributed.run as theirs
import planaria.run as ours

LINES = [
    ["x.py"],
    ["--nnodes=1:4", "--nproc_per_node", "2", "--rdzv-backend=c10d", "--rdzv-endpoint", "a:1", "x.py", "--y", "-z"],
    ["-m", "-r", "0:1", "-t3", "--redirect=3", "--max-restarts=3", "--monitor-interval", "2", "pkg.mod", "--", "a"],
    ["--standalone", "--no-python", "--run-path", "--virtual-local-rank", "--start-method=fork", "x", "${local_rank}"],
    ["--duplicate-stdout-filters", "a,b,,c", "--numa-binding=core-complex", "--logs-specs=mine", "x.py"],
    ["--node-rank=2", "--master-addr=h", "--master-port=1", "--local-addr=l", "--shutdown-timeout=5", "x.py"],
]
for variables in {}, {"PET_NNODES": "2:3", "PET_MODULE": "1", "PET_MASTER_PORT": "77", "PET_STANDALONE": "0"}:
    os.environ.update(variables)
    for line in LINES:
        pair = [vars(one.parse_args(line)) for one in (theirs, ours)]
        assert pair[0] == pair[1], (line, pair)
for name, arguments in [
    ("parse_min_max_nnodes", ("3",)), ("parse_min_max_nnodes", ("1:3",)), ("parse_min_max_nnodes", ("1:2:3",)),
    ("parse_min_max_nnodes", ("x",)), ("determine_local_world_size", ("4",)), ("determine_local_world_size", ("no",)),
]:
    answers = []
    for one in theirs, ours:
        try:
            answers.append(repr(getattr(one, name)(*arguments)))
        except Exception as exc:
            answers.append(repr(exc))
    assert answers[0] == answers[1], (name, arguments, answers)
"""


def test_command_lines_are_read_alike(tmp_path: Path) -> None:
    said(tmp_path, PARSERS)
