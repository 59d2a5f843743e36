"""What can go wrong in a cluster, chosen by a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kubesim.life import NAME, Life, elastic_job
from kubesim.server import Json
from planaria.kube.names import JOB_KIND

CALM_AFTER_S = 150.0
_NODES = ("n1", "n2", "n3")
_STATUSES = (1, 2, 75, 134, 137, 143)
_RATES = (float, lambda size: min(size, 2.0), lambda size: size**0.7, lambda _: 1.0)


def seeded(seed: int) -> Life:
    """Return a life in which everything goes wrong for a while."""
    life = _life(seed)
    for _ in range(life.rng.randint(3, 9)):
        life.time.after(life.rng.uniform(1.0, CALM_AFTER_S), lambda: _fault(life))
    life.operator.kill_at = {life.rng.randint(0, 120) for _ in range(life.rng.randint(0, 6))}
    life.operator.conflict_at = {life.rng.randint(0, 120) for _ in range(life.rng.randint(0, 6))}
    life.time.after(CALM_AFTER_S, lambda: _calm(life))
    return life


def _life(seed: int) -> Life:
    rng = Random(seed)
    least = rng.randint(1, 2)
    most = rng.randint(least, 4)
    job = elastic_job(least, most, rng.randint(1, most))
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = rng.choice(["OnFailure", "ExitCode", "Always"])
    rooms = {name: rng.randint(0, 3) for name in _NODES}
    return Life(seed, job, rooms, work=rng.uniform(100.0, 400.0), rate=rng.choice(_RATES))


def _fault(life: Life) -> None:
    if life.is_over:
        return
    fault = life.rng.choice(
        [_crash, _crash, _evict, _delete, _silence, _vanish, _room, _room, _scale, _suspend, _mistake]
    )
    fault(life)


def _crash(life: Life) -> None:
    running = [container for container in life.nodes.running.values() if not container.is_drained]
    if running and not life.run.is_finished:
        container = life.rng.choice(running)
        final = container.policy == "Never"  # a permanent failure ends the job: those are for tests of their own
        life.nodes.end(container, life.rng.choice((75, 137, 143) if final else _STATUSES))


def _evict(life: Life) -> None:
    if life.pods():
        life.nodes.evict(life.rng.choice(life.pods()))


def _delete(life: Life) -> None:
    if life.pods():
        life.server.delete("Pod", life.rng.choice(life.pods()))


def _silence(life: Life) -> None:
    node = life.rng.choice(_NODES)
    if life.server.get("Node", node) is not None and node not in life.nodes.silent:
        life.nodes.fall_silent(node)
        if life.rng.random() < 0.5:
            life.time.after(life.rng.uniform(5.0, 100.0), lambda: _speak(life, node))


def _speak(life: Life, node: str) -> None:
    if life.server.get("Node", node) is not None and node in life.nodes.silent:
        life.nodes.speak_again(node)


def _vanish(life: Life) -> None:
    node = life.rng.choice(_NODES)
    if life.server.get("Node", node) is not None:
        life.nodes.vanish(node)


def _room(life: Life) -> None:
    node = life.rng.choice(_NODES)
    if life.server.get("Node", node) is None:
        life.nodes.add(node, life.rng.randint(0, 3))
    else:
        life.nodes.resize(node, life.rng.randint(0, 3))


def _scale(life: Life) -> None:
    size = life.rng.randint(0, 5)
    _edit(life, lambda spec: spec["pytorchReplicaSpecs"]["Worker"].update(replicas=size))


def _suspend(life: Life) -> None:
    if not _is_as_it_was(life):
        return
    _edit(life, lambda spec: spec.update(suspend=True))
    life.time.after(life.rng.uniform(0.5, 30.0), lambda: _edit(life, lambda spec: spec.update(suspend=False)))


def _mistake(life: Life) -> None:
    """The owner changes what cannot be changed, and takes it back."""
    if not _is_as_it_was(life):
        return
    was = life.bounds[1]
    _edit(life, lambda spec: spec["elasticPolicy"].update(maxReplicas=was + life.rng.choice([1, -was])))
    life.time.after(
        life.rng.uniform(0.5, 30.0), lambda: _edit(life, lambda spec: spec["elasticPolicy"].update(maxReplicas=was))
    )


def _is_as_it_was(life: Life) -> bool:
    """Before it has run everything may be changed while there are no pods, and then it is no mistake."""
    spec, has_run = life.job["spec"], (life.status.get("operator") or {}).get("hasRun")
    return bool(has_run) and not spec.get("suspend") and spec["elasticPolicy"]["maxReplicas"] == life.bounds[1]


def _edit(life: Life, change: Callable[[Json], None]) -> None:
    life.server.edit(JOB_KIND, NAME, lambda job: change(job["spec"]))


def _calm(life: Life) -> None:
    """End all that is wrong, so that the job can end well."""
    _edit(life, lambda spec: spec.update(suspend=False))
    for node in _NODES:
        if life.server.get("Node", node) is None:
            life.nodes.add(node, 2)
        else:
            _speak(life, node)
            life.nodes.resize(node, 2)
