"""Certificates for tests, made by openssl; where there is none, the test is skipped."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


class Certificate(NamedTuple):
    """The files of a certificate and of its key."""

    cert: str
    key: str


def make_certificate(
    folder: Path, name: str, *, names: str = "", signed_by: Certificate | None = None, group: str = ""
) -> Certificate:
    """Make a certificate, by itself or by another. `names` are those it is for, such as `IP:127.0.0.1,DNS:localhost`.

    `group` is the organisation that the name belongs to, which Kubernetes takes for a group of users.
    """
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    made = Certificate(str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
    organisation = f"/O={group}" if group else ""
    subject = ["-subj", f"{organisation}/CN={name}", *(["-addext", f"subjectAltName={names}"] if names else [])]
    authority = ["-CA", signed_by.cert, "-CAkey", signed_by.key] if signed_by else []
    words = [openssl, "req", "-x509", *CURVE, *subject, "-out", made.cert, "-keyout", made.key, *authority]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return made
