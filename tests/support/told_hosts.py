"""What hosts of a job are told, for tests of their scripts."""

from __future__ import annotations

from planaria.aws.hosts import StoreHost, WorkerHost

WORKER = WorkerHost(
    job="job",
    run="run-1",
    region="us-west-2",
    bucket="bucket",
    prefix="pre/fix",
    image="registry.example/image:1",
    gpus=False,
    worker_group="job_worker",
    store_group=None,
    log_group="/planaria/job",
    token_parameter="/planaria/job/token",
    size=2,
)
STORE = StoreHost(
    job="job",
    run="run-1",
    region="us-west-2",
    store_group="job_rdzv",
    etcd_url="https://example.com/etcd.tar.gz",
    etcd_sha256="0" * 64,
)
