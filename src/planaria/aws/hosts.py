"""What a host of a job is told when it boots. No secrets in here: it becomes user data, which everybody on the host may read.

Nothing here names another host. Addresses change whenever an instance is replaced, so hosts look them up by group.
"""

from __future__ import annotations

from dataclasses import dataclass

ROOT_DISK = "/dev/xvda"  # of Amazon Linux, and of AWS's images with drivers
EFS_FOLDER = "/mnt/efs1"  # of the volume, on the host and in the container
NODES_NAME = "nodes.planaria"  # in the container: the private addresses of all running workers' hosts
STORE_NAME = "store.planaria"  # in the container: the private address of the host with etcd
NODES_PORT = 29400  # where agents look for each other
STORE_PORT = 2379  # etcd's own
READY_HOOK = "planaria-ready"  # of a group: a new host is in service once this is completed
DRAIN_HOOK = "planaria-drain"  # of a group: a host that is to go goes once this is completed
MAX_RESTARTS = 10  # of a container that crashed; a drain or an end of the job is no crash
MAX_REPLACED = 3  # hosts of a run that gave up before their container ran for an hour; then its group gets smaller


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHost:
    """A host that runs one container of the job, and so one agent."""

    job: str
    run: str
    region: str
    bucket: str
    prefix: str  # of all jobs of this specs file; without slashes at its ends, may be empty
    image: str
    gpus: bool
    worker_group: str  # auto scaling group of this host
    store_group: str | None  # auto scaling group of the host with etcd; None where the agents hold the store
    log_group: str  # stream: RUN/INSTANCE-ID
    token_parameter: str  # SSM SecureString with the job's token
    size: int  # of the group when the job was submitted; what it wants now is asked for
    efs_id: str | None = None
    shm_gb: int | None = None  # None: half of the host's memory
    grace_s: int = 90  # from the notice to the end of the container; EC2 takes a spot instance after 120
    endpoint: str | None = None  # of all AWS services, instead of the region's own


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHost:
    """A host that runs etcd for one job, directly, without a container."""

    job: str
    run: str
    region: str
    store_group: str  # auto scaling group of this host
    etcd_url: str  # of the release's archive
    etcd_sha256: str  # of that archive
    endpoint: str | None = None


def run_key(prefix: str, job: str, run: str, name: str) -> str:
    """Return the S3 key of a file that belongs to one run of a job; without a name, what all of them begin with."""
    return "/".join([*([prefix] if prefix else []), job, run, name])
