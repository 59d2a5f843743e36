from __future__ import annotations

import subprocess
import sys


def test_the_data_room_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "from planaria.worker.data import *\n"
        "sampler = ElasticSampler(10, 4, rank=0, world_size=1)\n"
        "data = sampler.seeded(list(range(100, 110)))\n"
        "print(sorted(sample for batch in sampler.count() for sample in data.__getitems__(batch)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{list(range(100, 110))}\n"


def test_the_worker_room_does_not_load_it_unasked() -> None:
    code = "import sys, planaria.worker; print([name for name in sys.modules if 'worker.data' in name])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"
