"""moto's server: S3, EC2, SSM and the rest of AWS over HTTP on a free port, for real boto3 clients in any process.

One server serves a whole test session (of one xdist worker). Tests have buckets and jobs of their own names; `reset` would
take them from others. The fixture `aws` is made by `from aws_server import aws` in a conftest or test module.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

import pytest
import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "us-east-1"


class Aws:
    """Where the server listens, and what a program needs in its environment to talk to it and to nobody else."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.environment = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def client(self, service: str, region: str = REGION) -> object:
        """Return a client of boto3, with nothing from the environment. Whoever asked closes it."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            service,
            region_name=region,
            endpoint_url=self.endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            config=Config(connect_timeout=5, read_timeout=30, retries={"max_attempts": 0}, proxies={}),
        )

    def bucket(self) -> str:
        """Make a bucket nobody else has; return its name."""
        name = f"bucket-{uuid.uuid4().hex}"
        client = self.client("s3")
        client.create_bucket(Bucket=name)  # type: ignore[attr-defined]  boto3 makes its methods at run time
        client.close()  # type: ignore[attr-defined]
        return name


@pytest.fixture(scope="session")
def aws(request: pytest.FixtureRequest) -> Iterator[Aws]:
    pytest.importorskip("boto3")
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    rows.begun(request)
    try:
        host, port = server.get_host_and_port()
        yield Aws(f"http://{host}:{port}")
    finally:
        server.stop()
