"""How long a pod has to end, and how much of that its workers have. Pure."""

from __future__ import annotations

POD_S = 60  # the workers' last commit takes up to --resize-grace, 10 s, and its copy to disk some more
SPARE_S = 30  # a drain takes the workers' grace, and the agent's time to bring commits to safety and say goodbye
WORKERS = "PET_SHUTDOWN_TIMEOUT"
"""The variable that tells an agent how long its workers have."""


def of_pod(workers_s: int) -> int:
    """Return what a pod needs whose workers have so long."""
    return workers_s + SPARE_S


def of_workers(pod_s: int) -> int:
    """Return how long workers have in a pod that is killed after so long: at least half of it, if less than that is spare."""
    return max(pod_s - SPARE_S, pod_s // 2)
