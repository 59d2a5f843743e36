"""What `fetch_and_run` and the entry point are asked for. Pure: words and variables in, a request out."""

from __future__ import annotations

from planaria.base.usage import quoted, wrong
from planaria.base.value import Value
from planaria.errors import UsageError
from planaria.ship.source import S3, is_digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JOB = "PLANARIA_JOB"
"""Path of a job's description."""
FETCH = "PLANARIA_FETCH"
"""The entry point takes its words for those of fetch_and_run when this is 1."""
SHA256 = "PLANARIA_FETCH_SHA256"
"""The hash of what fetch_and_run is told to fetch by words."""
OURS = (JOB, FETCH, SHA256)
HELP = """\
usage: fetch_and_run SOURCE [ARGS ...]              a script
       fetch_and_run SOURCE SCRIPT [ARGS ...]       a script in a directory or archive
       PLANARIA_JOB=job.json fetch_and_run          a job as petctl describes it

Fetch the code of a job, verify it, and become `planaria run` with it. SOURCE is a path, or s3://BUCKET/KEY of a script or
of a .tar.gz, .tgz or .tar. Arguments arrive exactly as typed, and the exit status is that of `planaria run`.

variables:
  PET_*                    flags of planaria run, such as PET_NNODES=2:4
  PLANARIA_FETCH_SHA256    SHA-256 of the object or archive; it is run only if it has that one
  PLANARIA_JOB             path of a job's description, instead of words
  TMPDIR                   where code is unpacked (/tmp)

examples:
  fetch_and_run s3://my-bucket/train.py --lr 0.1
  PET_NPROC_PER_NODE=2 fetch_and_run s3://my-bucket/my_dir.tar.gz train.py --lr 0.1
  fetch_and_run /workspace/my_dir train.py
"""


class Launch(Value):
    """The words are the launcher's."""

    argv: tuple[str, ...]


class Described(Value):
    """A file describes the job."""

    path: str


class Typed(Value):
    """The words name a source, and the script in it where it holds one, and arguments."""

    source: str
    words: tuple[str, ...]
    sha256: str | None


class Help(Value):
    """The user wants to know."""


def entry(argv: Sequence[str], environ: Mapping[str, str]) -> Launch | Described | Typed:
    """Return what the entry point of the image is asked for.

    Raises:
        UsageError: A variable or word is wrong.
    """
    asked = environ.get(FETCH, "")
    if asked not in ("", "0", "1"):
        raise wrong(FETCH, "0 or 1", asked)
    if environ.get(JOB) or asked == "1" or (argv and argv[0].startswith(S3)):
        return _fetch(argv, environ)
    if environ.get(SHA256):
        raise UsageError(
            f"{SHA256} is set, and nothing is fetched that could have this hash",
            hint=f"{FETCH}=1 takes the first word for a source; else leave the hash out",
        )
    return Launch(tuple(argv))


def fetch_and_run(argv: Sequence[str], environ: Mapping[str, str]) -> Described | Typed | Help:
    """Return what `fetch_and_run` is asked for.

    Raises:
        UsageError: A variable or word is wrong.
    """
    return Help() if list(argv) in (["--help"], ["-h"]) else _fetch(argv, environ)


def _fetch(argv: Sequence[str], environ: Mapping[str, str]) -> Described | Typed:
    described = environ.get(JOB, "")
    if described:
        if argv:
            raise UsageError(
                f"{JOB} describes the job, and {quoted(argv[0])} is one word too many", hint="give one of both"
            )
        if environ.get(SHA256):
            raise UsageError(f"{JOB} describes the job, and has a hash of its own: {SHA256} is one too many")
        return Described(described)
    if not argv:
        raise UsageError(
            "what shall be run?", hint="name a script, a directory or s3://BUCKET/KEY; see fetch_and_run --help"
        )
    if argv[0].startswith("-"):
        raise UsageError(
            f"the first word has to be a script, a directory or s3://BUCKET/KEY, got {quoted(argv[0])}",
            hint="flags of planaria run are given by PET_*, such as PET_NNODES=2:4; for a path like this, put ./ before it",
        )
    digest = environ.get(SHA256, "").lower()
    if digest and not is_digest(digest):
        raise wrong(SHA256, "64 digits 0-9a-f", digest)
    return Typed(argv[0], tuple(argv[1:]), digest or None)
