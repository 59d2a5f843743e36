"""The one door to boto3: sessions, clients and calls. What goes wrong comes out as one sentence.

Retries are AWS's own (standard mode; AWS_MAX_ATTEMPTS counts), so a plan sees a throttled call only after its last attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from planaria.aws.seen import is_missing
from planaria.aws.steps import Call
from planaria.base.text import safe_line
from planaria.errors import AwsError, UsageError
from planaria.ship.bucket import pieces
from planaria.ship.refusals import is_denied, is_unknown
from planaria.ship.source import Stored

INSTALL = "install it with `pip install 'planaria[aws]'`"
CONNECT_S = 5.0
READ_S = 30.0  # an upload waits no longer for the answer to its last byte
_BUSY = ("Throttl", "TooManyRequests", "RequestLimitExceeded", "SlowDown", "BandwidthLimit")
_BROKEN = ("ServiceUnavailable", "Internal", "RequestTimeout", "500", "502", "503", "504")  # of AWS itself, for a while
_NOBODY = "there are no AWS credentials"
_AGAIN = "is the network up, and --region right? The same command again goes on where this one stopped"
_LOG_IN = "set --profile or AWS_PROFILE, or run `aws configure` or `aws sso login`"


class Cloud:
    """AWS, in one region and under one profile. Nothing is asked before the first call."""

    def __init__(self, region: str | None, profile: str | None, *, timeout_s: float | None = None) -> None:
        self._region = region
        self._profile = profile
        self._timeout_s = timeout_s
        self._session: Any = None
        self._clients: dict[str, Any] = {}

    @property
    def region(self) -> str:
        """Return the region: the one asked for, or else that of the profile or environment."""
        found = self._region or self._open().region_name
        if not found:
            raise UsageError("--region is missing, expected one such as us-west-2", hint="or set AWS_DEFAULT_REGION")
        return str(found)

    def call(self, call: Call) -> Mapping[str, Any]:
        """Make one call.

        Raises:
            AwsError: It was refused, or nobody answered; in that case it may have been done.
        """
        with self._translated(call):
            found: Mapping[str, Any] = getattr(self._client(call.service), call.method)(**call.request)
        return found

    def ask(self, call: Call) -> Mapping[str, Any] | None:
        """Make a call that only reads; return None where what it asks for is not there."""
        try:
            return self.call(call)
        except AwsError as problem:
            if is_missing(problem.code, problem.detail):
                return None
            raise

    def pages(self, call: Call, field: str) -> Iterator[Any]:
        """Make a call that answers in pages; return the items under `field`, each page as it comes."""
        with self._translated(call):
            for page in self._client(call.service).get_paginator(call.method).paginate(**call.request):
                yield from page.get(field, [])

    def read(self, bucket: str, key: str, take: Callable[[bytes], object]) -> bool:
        """Give an object of S3 to `take`, piece by piece; return whether there is one. A stream that breaks off goes on.

        Raises:
            AwsError: It was refused, or broke off again and again.
        """
        try:
            with self._translated(Call("s3", "get_object", {})):
                for piece in pieces(self._client("s3"), Stored(bucket, key)):
                    take(piece)
        except AwsError as problem:
            if is_missing(problem.code, problem.detail):
                return False
            raise
        return True

    def close(self) -> None:
        """Close every connection."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _open(self) -> Any:
        if self._session is None:
            boto3, errors = _boto3()
            try:
                session = boto3.Session(region_name=self._region, profile_name=self._profile)
                _ = session.region_name  # the files may be read only now
                self._session = session
            except errors.ProfileNotFound as problem:
                raise UsageError(
                    f"--profile is {problem.kwargs['profile']!r}, and there is no such profile",
                    hint="AWS_PROFILE counts where the flag is missing",
                ) from problem
            except errors.BotoCoreError as problem:
                raise UsageError(f"the files of AWS's own settings are wrong: {problem}") from problem
        return self._session

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            from botocore.config import Config

            config = Config(
                connect_timeout=min(CONNECT_S, self._timeout_s or CONNECT_S),
                read_timeout=self._timeout_s or READ_S,
                retries={"mode": "standard"},
                user_agent_extra="planaria-petctl",
            )
            try:
                self._clients[service] = self._open().client(service, region_name=self.region, config=config)
            except (ValueError, AttributeError) as problem:  # boto3 says it in words that name no setting
                raise _wrong_settings(problem) from problem
        return self._clients[service]

    @contextmanager
    def _translated(self, call: Call) -> Iterator[None]:
        _, errors = _boto3()
        from botocore.parsers import ResponseParserError

        try:
            yield
        except errors.ClientError as problem:
            raise _refused(call, problem.response.get("Error", {})) from problem
        except (errors.NoCredentialsError, errors.PartialCredentialsError) as problem:
            raise AwsError(_NOBODY, hint=_LOG_IN, code="NoCredentials") from problem
        except (errors.CredentialRetrievalError, errors.TokenRetrievalError, errors.SSOError) as problem:
            raise AwsError(f"AWS credentials cannot be had: {problem}", hint=_LOG_IN, code="NoCredentials") from problem
        except (errors.ReadTimeoutError, errors.ConnectTimeoutError) as problem:
            raise _unanswered(call, "AWS did not answer in time") from problem
        except (errors.HTTPClientError, errors.IncompleteReadError) as problem:
            raise _unanswered(call, "AWS did not answer") from problem
        except errors.ConnectionError as problem:  # refused, no such host, a proxy or a certificate that is wrong
            raise _unanswered(call, f"there is no connection to AWS: {problem}") from problem
        except ResponseParserError as problem:  # a page of some gateway, or half of an answer
            raise _unanswered(call, "what came is no answer of AWS's") from problem
        except errors.BotoCoreError as problem:
            raise AwsError(f"{call}: {problem}", code=type(problem).__name__) from problem
        except OSError as problem:  # a file that the settings name
            raise _wrong_settings(problem) from problem


def _boto3() -> tuple[Any, Any]:
    try:
        import boto3
        import botocore.exceptions
    except ImportError as problem:
        raise UsageError("petctl needs boto3", hint=INSTALL) from problem
    return boto3, botocore.exceptions


def _wrong_settings(problem: Exception) -> UsageError:
    """Return one sentence about settings that boto3 stumbles over, with the one that it is about as far as it says so."""
    said = safe_line(str(problem))
    hint = "a variable AWS_..., or a line in ~/.aws/config, is not what it should be"
    if "endpoint" in said.lower():
        hint = "AWS_ENDPOINT_URL, or endpoint_url in ~/.aws/config, expects http://HOST or https://HOST"
    elif "region" in said.lower():
        hint = "the region in ~/.aws/config expects one such as us-west-2"
    elif isinstance(problem, OSError):
        hint = "a variable such as AWS_WEB_IDENTITY_TOKEN_FILE, or a line in ~/.aws/config, names that file"
    return UsageError(f"AWS's own settings are wrong: {said}", hint=hint)


def _unanswered(call: Call, what: str) -> AwsError:
    """Return the error of whoever cannot know what became of a call, and may try again."""
    return AwsError(f"{call}: {safe_line(what)}", hint=_AGAIN, code="NoAnswer", retryable=True)


def _refused(call: Call, error: Mapping[str, Any]) -> AwsError:
    """Return one sentence for a refusal: what is missing, and who can give it."""
    code, detail = str(error.get("Code", "")), str(error.get("Message", ""))
    told: dict[str, Any] = {"code": code, "detail": detail}
    if is_denied(code):
        return AwsError(
            f"{call}: AWS denied it",
            hint=f"your policy lacks {action(call)}; docs/aws.md has the whole policy",
            **told,
        )
    if is_unknown(code):
        return AwsError(f"{call}: AWS does not accept these credentials ({code})", hint=_LOG_IN, **told)
    if code.startswith(_BUSY):
        said = f"{call}: AWS has too many requests ({code})"
        return AwsError(said, hint="try again in a minute", retryable=True, **told)
    return AwsError(f"{call}: {detail or code} ({code})", retryable=code.startswith(_BROKEN), **told)


def action(call: Call) -> str:
    """Return the permission that a call needs, as policies spell it."""
    words = {"head_bucket": "ListBucket"}.get(call.method) or "".join(
        word.capitalize() for word in call.method.split("_")
    )
    service = {"efs": "elasticfilesystem"}.get(call.service, call.service)
    return f"{service}:{words}"
