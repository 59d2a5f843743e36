"""Objects in S3: read in one stream, with every way in which that fails said in one sentence. The only door to boto3 here."""

from __future__ import annotations

from contextlib import closing

from planaria.base.text import safe_line
from planaria.base.usage import quoted
from planaria.errors import FetchFailed, UsageError
from planaria.ship.refusals import MISSING_OBJECT, is_denied, is_unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from planaria.ship.source import Stored

_CHUNK_BYTES = 1 << 20
_TRIES = 4  # of a stream that breaks off; requests that were not answered are repeated by boto3 itself


def connect(timeout_s: float = 60.0, tries: int = 5) -> Any:
    """Return a client of S3, as the environment says: credentials, region, AWS_ENDPOINT_URL.

    Raises:
        UsageError: boto3 is not installed.
        FetchFailed: The configuration of AWS cannot be used.
    """
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as problem:
        raise UsageError("s3:// needs boto3", hint="pip install 'planaria[aws]'") from problem
    session: Any = boto3.Session  # typed where stubs are installed, and by nobody elsewhere
    settings: Any = Config
    retries = {"total_max_attempts": tries, "mode": "standard"}
    try:
        config = settings(connect_timeout=min(timeout_s, 10.0), read_timeout=timeout_s, retries=retries)
        return session().client("s3", config=config)
    except (BotoCoreError, ValueError) as problem:
        raise FetchFailed(f"the configuration of AWS cannot be used: {safe_line(str(problem))}") from problem


def read(client: Any, source: Stored, began: Callable[[int], None] = lambda _size: None) -> Iterator[bytes]:
    """Give an object piece by piece; `began` hears its size first. A stream that breaks off goes on where it was.

    Raises:
        FetchFailed: One sentence about what is in the way.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield from pieces(client, source, began)
    except (BotoCoreError, ClientError, OSError) as problem:
        raise translated(problem, source) from problem


def pieces(client: Any, source: Stored, began: Callable[[int], None] = lambda _size: None) -> Iterator[bytes]:
    """Do what `read` does; what goes wrong comes as boto3 raises it."""
    from botocore.exceptions import ConnectionError as NoConnection
    from botocore.exceptions import HTTPClientError, IncompleteReadError

    taken = size = 0
    more: dict[str, str] = {}
    for left in reversed(range(_TRIES)):
        try:
            answer = client.get_object(Bucket=source.bucket, Key=source.key, **more)
            if not more:
                size = answer["ContentLength"]
                began(size)
            with closing(answer["Body"]) as body:
                for piece in body.iter_chunks(_CHUNK_BYTES):
                    taken += len(piece)
                    yield piece
        except (HTTPClientError, IncompleteReadError, NoConnection):
            if not left or not taken:
                raise
        if taken >= size:
            return
        more = {"Range": f"bytes={taken}-", "IfMatch": answer["ETag"]}  # of the same object, or not at all
    raise IncompleteReadError(actual_bytes=taken, expected_bytes=size)


def translated(problem: Exception, source: Stored) -> FetchFailed:
    """Return the one sentence for what boto3 raised about an object."""
    from botocore.exceptions import (
        ClientError,
        ConnectTimeoutError,
        EndpointConnectionError,
        IncompleteReadError,
        NoCredentialsError,
        PartialCredentialsError,
        ReadTimeoutError,
        ResponseStreamingError,
    )

    shown = quoted(source.url)
    if isinstance(problem, NoCredentialsError | PartialCredentialsError):
        return FetchFailed(
            f"cannot fetch {shown}: there are no credentials for AWS",
            hint="give the machine an instance profile, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE",
        )
    if isinstance(problem, ConnectTimeoutError | ReadTimeoutError):
        return FetchFailed(f"cannot fetch {shown}: S3 did not answer in time", hint="is there a way from here to S3?")
    if isinstance(problem, EndpointConnectionError):
        return FetchFailed(
            f"cannot fetch {shown}: no connection to S3",
            hint="is there a way from here to S3, and are AWS_ENDPOINT_URL and the region right?",
        )
    if isinstance(problem, IncompleteReadError | ResponseStreamingError):
        return FetchFailed(f"{shown} broke off again and again: {safe_line(str(problem))}", hint="run the job again")
    if isinstance(problem, ClientError):
        return _answered(problem, source, shown)
    return FetchFailed(f"cannot fetch {shown}: {safe_line(str(problem))}")


def _answered(problem: Any, source: Stored, shown: str) -> FetchFailed:
    error = problem.response.get("Error", {})
    code = str(error.get("Code", ""))
    if code == "NoSuchBucket":
        return FetchFailed(f"cannot fetch {shown}: there is no bucket {quoted(source.bucket)}")
    if code in MISSING_OBJECT:
        return FetchFailed(
            f"cannot fetch {shown}: there is no such object", hint="is the key right, and was it uploaded?"
        )
    if is_denied(code):
        return FetchFailed(
            f"cannot fetch {shown}: access denied",
            hint="the role needs s3:GetObject for it; S3 says the same of a missing object",
        )
    if is_unknown(code):
        return FetchFailed(f"cannot fetch {shown}: S3 does not take these credentials ({code})", hint="renew them")
    if code in ("412", "PreconditionFailed"):
        return FetchFailed(f"cannot fetch {shown}: it was replaced while it was read", hint="run the job again")
    said = safe_line(f"{code}: {error.get('Message', '')}")
    return FetchFailed(f"cannot fetch {shown}: S3 answered {said}")
