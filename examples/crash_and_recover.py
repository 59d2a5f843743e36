"""Watch a job lose a worker and finish all the same. Standard library only; about three seconds.

    planaria run --standalone --nproc-per-node=2 --max-restarts=3 examples/crash_and_recover.py

The workers add up the numbers of their steps, one step at a time and all together, as a training loop would. After each
step rank 0 saves a checkpoint. In the middle of its first life rank 1 kills itself. Planaria starts both workers again;
they find the checkpoint, go on from there, and the sum comes out as if nothing had happened.

An optional argument names the folder for the checkpoint, which is then kept. Otherwise it is a temporary one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from planaria import worker

STEPS = 20
CRASH_AT = 11  # the step in which rank 1 dies, in its first life only
STEP_S = 0.1  # how long one step "trains"
LOOK_AGAIN_S = 0.002


def say(rank: int, text: str) -> None:
    """Write a whole line at once, so that two workers do not mix theirs."""
    sys.stdout.write(f"  rank {rank}: {text}\n")
    sys.stdout.flush()


def save(path: Path, content: dict[str, int]) -> None:
    """Replace a file by a whole new one: whoever reads it meets the old or the new content, also after a crash."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(json.dumps(content))
    draft.replace(path)


def load(path: Path) -> dict[str, int]:
    """Return what `save` wrote last; step 0 with a sum of 0 when it never did."""
    return json.loads(path.read_text()) if path.exists() else {"step": 0, "sum": 0}


def wait_until_done(paths: list[Path], step: int) -> None:
    """Wait until everybody has come as far as `step`: the part that a collective plays in real training."""
    while any(load(path)["step"] < step for path in paths):
        time.sleep(LOOK_AGAIN_S)


def train(folder: Path, rank: int, world_size: int, life: int) -> int:
    """Do the steps that the checkpoint does not have yet; return the final sum."""
    checkpoint = folder / "checkpoint.json"
    reached = [folder / f"life-{life}-rank-{other}.json" for other in range(world_size)]
    state = load(checkpoint)
    if life:
        why = os.environ.get("PLANARIA_RESTART_REASON", "")
        say(rank, f"life {life + 1} begins because {why or 'a worker failed'}; step {state['step']} is safe, going on")
    else:
        say(rank, f"life 1 begins at step {state['step']} of {STEPS}")
    for step in range(state["step"] + 1, STEPS + 1):
        time.sleep(STEP_S)
        if rank == 1 and step == CRASH_AT and life == 0:
            say(rank, f"in step {step} I die by SIGKILL, without a word to anybody")
            os.kill(os.getpid(), signal.SIGKILL)
        state = {"step": step, "sum": state["sum"] + step}
        save(reached[rank], state)
        if rank == 0:
            wait_until_done(reached, step)
            save(checkpoint, state)
            if step % 5 == 0:
                say(rank, f"step {step} of {STEPS} done by all {world_size} workers, sum {state['sum']}")
        else:
            wait_until_done([checkpoint], step)
        worker.report_progress(step, sum=state["sum"])
    return state["sum"]


def main() -> None:
    """Train; then rank 0 sums up and clears the temporary folder away."""
    if "RANK" not in os.environ:
        sys.exit("start me with: planaria run --standalone --nproc-per-node=2 --max-restarts=3 " + sys.argv[0])
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    temporary = Path(tempfile.gettempdir(), f"crash-and-recover-{os.environ['TORCHELASTIC_RUN_ID']}")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else temporary
    folder.mkdir(parents=True, exist_ok=True)
    total = train(folder, rank, world_size, life)
    save(folder / f"goodbye-{rank}.json", {"step": STEPS})
    if rank == 0:
        wait_until_done([folder / f"goodbye-{other}.json" for other in range(world_size)], STEPS)
        expected = sum(range(STEPS + 1))
        say(rank, f"finished: {STEPS} steps in {life + 1} lives; sum {total}, without a crash it is {expected}")
        if folder == temporary:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
