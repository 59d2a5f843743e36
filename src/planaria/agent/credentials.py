"""Find the token of a job and look at the files that its settings name, before anything starts.

A token comes from `PLANARIA_TOKEN` or from the file that `PLANARIA_TOKEN_FILE` names, never from a flag: command lines can be
read by everybody on the machine.
"""

from __future__ import annotations

import os
import stat

from planaria.agent.conf import BACKENDS, FILES, TLS, Credentials
from planaria.base.usage import quoted
from planaria.contract.env import PASSWORD_VARIABLE, TOKEN, TOKEN_FILE
from planaria.contract.secret import Secret, SecretText
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.agent.settings import Meeting

_LONGEST_TOKEN = 4096


def read(environ: Mapping[str, str]) -> Credentials:
    """Return what the environment offers.

    Raises:
        UsageError: The token is empty, given twice, or in a file that cannot be trusted or read.
    """
    password = environ.get(PASSWORD_VARIABLE) or None
    return Credentials(_token(environ), SecretText(password) if password is not None else None, kube_server(environ))


def kube_server(environ: Mapping[str, str]) -> str:
    """Return where a pod finds the API server of its cluster; empty elsewhere."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://{f'[{host}]' if ':' in host else host}:{port}" if host else ""


def check_files(meeting: Meeting) -> None:
    """Refuse certificates and keys that this process cannot read. What a plugin's options mean, only the plugin knows."""
    files = FILES if meeting.backend in BACKENDS.values() else TLS
    for key, path in meeting.options.items():
        if key in files and not (os.path.isfile(path) and os.access(path, os.R_OK)):
            raise UsageError(f"--rdzv-conf {key} expects a file that can be read, got {quoted(path)}")


def _token(environ: Mapping[str, str]) -> Secret | None:
    if TOKEN in environ and TOKEN_FILE in environ:
        raise UsageError(f"{TOKEN} and {TOKEN_FILE} exclude each other: set one of them")
    if TOKEN in environ:
        return _checked(os.fsencode(environ[TOKEN]), TOKEN)
    if TOKEN_FILE in environ:
        return _checked(_content(environ[TOKEN_FILE]), TOKEN_FILE)
    return None


def _checked(content: bytes, source: str) -> Secret:
    token = content.strip()  # an editor or `echo` leaves a newline
    if not token:
        raise UsageError(f"{source} expects a secret, got an empty one")
    if len(token) > _LONGEST_TOKEN:
        raise UsageError(f"{source} expects a secret of at most {_LONGEST_TOKEN} bytes, got more")
    return Secret(token)


def _content(path: str) -> bytes:
    """Read the file once it is known to be one, and nobody's but its owner's and his group's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "not a path"
        raise UsageError(f"{TOKEN_FILE} expects a file that can be read, got {quoted(path)}: {why}") from problem
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise UsageError(f"{TOKEN_FILE} expects a file, got {quoted(path)}, which is something else")
        if mode & stat.S_IROTH:
            raise UsageError(
                f"{TOKEN_FILE} expects a file that not everybody can read, got {quoted(path)}", hint="chmod 600"
            )
        return os.read(descriptor, _LONGEST_TOKEN * 2)
    finally:
        os.close(descriptor)
