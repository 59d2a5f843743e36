"""The command line of `planaria k8s render`: what was typed becomes checked values. Pure."""

from __future__ import annotations

import re

from planaria.base.usage import quoted, taken_flag, wrong
from planaria.base.value import Value
from planaria.errors import UsageError
from planaria.kube import names
from planaria.kube.manifests import Volume, Wanted
from planaria.kube.parts import Dataset, Etcd, Storage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PARTS = ("job", "etcd", "storage", "dataset")
# What is followed by a value, and for which part it has a meaning.
_VALUES: dict[str, tuple[str, ...]] = {
    "--part": PARTS,
    "--output": PARTS,
    "--namespace": PARTS,
    "--name": ("job", "etcd"),
    "--image": ("job", "dataset"),
    "--claim": ("storage", "dataset"),
    "--url": ("dataset",),
    "--pv": ("storage",),
    "--size": ("storage",),
    "--efs": ("storage",),
    "--nfs": ("storage",),
} | dict.fromkeys(
    (
        "--nnodes", "--pods", "--nproc-per-node", "--gpus", "--cpu", "--memory", "--shared-memory", "--store", "--etcd",
        "--checkpoint-claim", "--volume", "--env", "--sha256", "--service-account", "--grace", "--max-restarts",
    ),
    ("job",),
)  # fmt: skip
_SWITCHES: dict[str, tuple[str, ...]] = {
    "--help": PARTS,
    "--json": PARTS,
    "--bare": ("etcd",),
    "--job": ("job",),
    "--operator": ("job",),
    "--master": ("job",),
}
_SHORT = {"-o": "--output", "-h": "--help"}
_REPEATED = ("--volume", "--env")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"[0-9]{1,12}(\.[0-9]{1,3})?([kMGTP]|[KMGTP]i)?|[0-9]{1,12}m")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"\S{1,1000}")
_ENDPOINT = re.compile(r"[\w.:\[\],-]{1,1000}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_OURS = {
    "PET_NNODES": "--nnodes",
    "PET_NPROC_PER_NODE": "--nproc-per-node",
    "PET_RDZV_BACKEND": "--store",
    "PET_RDZV_ENDPOINT": "--etcd",
    "PET_RDZV_ID": "--name",
    "PET_MAX_RESTARTS": "--max-restarts",
    "PET_SHUTDOWN_TIMEOUT": "--grace",
    "PET_SNAPSHOT_DIR": "--checkpoint-claim",
    "PLANARIA_FETCH_SHA256": "--sha256",
}
_FIXED = ("PET_LOCAL_ADDR", "PET_HEALTH_CHECK_PORT", "PET_HEALTH_CHECK_HOST", "PLANARIA_TOKEN", "PLANARIA_TOKEN_FILE")
_MOST_NODES = 1000
_USUAL = Wanted("", "")


class Asked(Value):
    """What is to be printed, how, and where; `kind` is pods, job or operator."""

    wanted: Wanted | Etcd | Storage | Dataset | None
    kind: str = "pods"
    output: str = ""
    is_json: bool = False
    command: tuple[str, ...] = ()


def read(argv: Sequence[str]) -> Asked:
    """Return what a command line means; `wanted` is None where it asks for help. Raises UsageError."""
    found, several, rest = _collect(argv)
    if "--help" in found:
        return Asked(None)
    part = _one_of(found, "--part", PARTS, "job")
    for flag in (*found, *several):
        if part not in (_VALUES | _SWITCHES)[flag]:
            raise UsageError(f"{flag} has no meaning with --part={part}", hint="planaria k8s render --help")
    if part != "job" and rest:
        raise UsageError(f"--part={part} expects no script, got {quoted(rest[0])}")
    readers: dict[str, Callable[[], Wanted | Etcd | Storage | Dataset]] = {
        "job": lambda: _job(found, several, rest),
        "etcd": lambda: _etcd(found),
        "storage": lambda: _storage(found),
        "dataset": lambda: _dataset(found),
    }
    return Asked(readers[part](), _kind(found), found.get("--output", ""), "--json" in found, _kept(argv, rest))


def _collect(argv: Sequence[str]) -> tuple[dict[str, str], dict[str, list[str]], tuple[str, ...]]:
    """Return flags by their long names, those that may be repeated, and the words from the script on."""
    found: dict[str, str] = {}
    several: dict[str, list[str]] = {}
    words = list(argv)
    for word in words:
        if not word.isascii() and any("\ud800" <= letter < "\ue000" for letter in word):
            raise UsageError(f"a word of the command line expects UTF-8, got {quoted(word)}")
    while words and words[0].startswith("-") and words[0] != "-":
        name, value = taken_flag(words, _VALUES, _SWITCHES, "planaria k8s render", _called)
        if name in _REPEATED:
            several.setdefault(name, []).append(value)
        else:
            found[name] = value
    return found, several, tuple(words)


def _called(typed: str) -> str:
    return _SHORT.get(typed, typed.replace("_", "-"))


def _kept(argv: Sequence[str], rest: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that decide what is printed, not where or how: they make the first line of a file."""
    flags = list(argv[: len(argv) - len(rest)])
    kept: list[str] = []
    while flags:
        word = flags.pop(0)
        if word in ("-o", "--output"):
            flags.pop(0)
        elif word != "--json" and not word.startswith(("--output=", "-o=")):
            kept.append(word)
    return (*kept, *rest)


def _kind(found: Mapping[str, str]) -> str:
    if "--job" in found and "--operator" in found:
        raise UsageError("--job and --operator exclude each other: a batch Job, or a PyTorchJob")
    if "--master" in found and "--operator" not in found:
        raise UsageError("--master has a meaning with --operator only")
    return "job" if "--job" in found else "operator" if "--operator" in found else "pods"


def _job(found: Mapping[str, str], several: Mapping[str, list[str]], rest: tuple[str, ...]) -> Wanted:
    if not rest:
        raise UsageError(
            "a script is missing: a path in the image, or s3://BUCKET/KEY", hint="planaria k8s render --help"
        )
    least, most = _nodes(found.get("--nnodes", "1:3"))
    store = _one_of(found, "--store", ("etcd", "kubernetes"), "etcd")
    if store == "kubernetes" and "--etcd" in found:
        raise UsageError("--etcd has no meaning with --store=kubernetes")
    checkpoints = _volume(found["--checkpoint-claim"], "--checkpoint-claim") if "--checkpoint-claim" in found else None
    volumes = tuple(_volume(text, "--volume") for text in several.get("--volume", ()))
    _check_paths(volumes if checkpoints is None else (checkpoints, *volumes))
    return Wanted(
        _job_name(found.get("--name", "train")),
        rest[0],
        rest[1:],
        namespace=_namespace(found),
        image=_match(found, "--image", _WORD, "the name of an image", _USUAL.image),
        min_nodes=least,
        max_nodes=most,
        pods=_number(found, "--pods", 1, most, least if "--operator" in found else most),
        nproc=_processes(found.get("--nproc-per-node", "1")),
        gpus=_number(found, "--gpus", 0, 1000, 0),
        cpu=_quantity(found, "--cpu", _USUAL.cpu),
        memory=_quantity(found, "--memory", _USUAL.memory),
        shared_memory=_quantity(found, "--shared-memory", _USUAL.shared_memory),
        store=store,
        etcd=_match(found, "--etcd", _ENDPOINT, "HOST:PORT of etcd", _USUAL.etcd),
        checkpoints=checkpoints,
        volumes=volumes,
        environment=tuple(_variable(text) for text in several.get("--env", ())),
        sha256=_match(found, "--sha256", _SHA256, "64 hexadecimal digits", "").lower(),
        service_account=_match(found, "--service-account", _OBJECT, "the name of a ServiceAccount", ""),
        grace_s=_number(found, "--grace", 1, 86_400, 30),
        max_restarts=_number(found, "--max-restarts", 0, 10**6, 100),
        has_master="--master" in found,
    )


def _etcd(found: Mapping[str, str]) -> Etcd:
    service = _match(found, "--name", _SERVICE, "the name of a Service", Etcd().service)
    return Etcd(service, _namespace(found), is_bare="--bare" in found)


def _storage(found: Mapping[str, str]) -> Storage:
    if ("--efs" in found) == ("--nfs" in found):
        raise UsageError("--part=storage expects one of --efs=ID and --nfs=SERVER:/PATH")
    server, colon, path = found.get("--nfs", "").partition(":/")
    if "--nfs" in found and not (_WORD.fullmatch(server) and colon):
        raise wrong("--nfs", "SERVER:/PATH", found["--nfs"])
    return Storage(
        claim=_claim(found),
        volume=_match(found, "--pv", _OBJECT, "the name of a PersistentVolume", Storage().volume),
        namespace=_namespace(found),
        size=_quantity(found, "--size", Storage().size),
        efs=_match(found, "--efs", _WORD, "the id of a file system", ""),
        server=server,
        path=f"/{path}" if colon else "",
    )


def _dataset(found: Mapping[str, str]) -> Dataset:
    usual = Dataset()
    image = _match(found, "--image", _WORD, "the name of an image", usual.image)
    url = found.get("--url", usual.url)
    if not (_WORD.fullmatch(url) and url.startswith(("http://", "https://")) and url.endswith(".zip")):
        raise wrong("--url", "an address of an archive, https://.../NAME.zip", url)
    return Dataset(_claim(found), _namespace(found), image, url)


def _claim(found: Mapping[str, str]) -> str:
    return _match(found, "--claim", _OBJECT, "the name of a PersistentVolumeClaim", Storage().claim)


def _namespace(found: Mapping[str, str]) -> str:
    return _match(found, "--namespace", names.LABEL, "the name of a namespace", "")


def _job_name(name: str) -> str:
    if names.name_problem(name):
        expected = f"at most {names.LONGEST_JOB} lower-case letters, digits and dashes, a letter first and no dash last"
        raise wrong("--name", expected, name)
    return name


def _match(found: Mapping[str, str], flag: str, pattern: re.Pattern[str], expected: str, default: str) -> str:
    text = found.get(flag, default)
    if flag in found and not pattern.fullmatch(text):
        raise wrong(flag, expected, text)
    return text


def _one_of(found: Mapping[str, str], flag: str, choices: Sequence[str], default: str) -> str:
    text = found.get(flag, default)
    if text not in choices:
        raise wrong(flag, f"one of {', '.join(choices)}", text)
    return text


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _number(found: Mapping[str, str], flag: str, least: int, most: int, default: int) -> int:
    number = _whole(found[flag]) if flag in found else default
    if number is None or not least <= number <= most:
        raise wrong(flag, f"a number from {least} to {most}", found.get(flag, str(default)))
    return number


def _nodes(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    least, most = _whole(first), _whole(last if colon else first)
    if least is None or most is None or not 0 < least <= most <= _MOST_NODES:
        raise wrong("--nnodes", f"a number of nodes or MIN:MAX, from 1 to {_MOST_NODES} and MIN not above MAX", text)
    return least, most


def _processes(text: str) -> str:
    if text not in ("auto", "cpu", "gpu") and not _whole(text):
        raise wrong("--nproc-per-node", "a number of workers, or auto, cpu, gpu", text)
    return text


def _quantity(found: Mapping[str, str], flag: str, default: str) -> str:
    text = _match(found, flag, _QUANTITY, "a quantity of Kubernetes such as 4, 500m or 8Gi", default)
    if not text.strip("0.kmMGTPi"):
        raise wrong(flag, "a quantity above 0", text)
    return text


def _volume(text: str, flag: str) -> Volume:
    claim, colon, path = text.partition(":")
    if flag == "--checkpoint-claim" and not colon:
        path = "/checkpoints"
    if not (_OBJECT.fullmatch(claim) and _WORD.fullmatch(path) and path.startswith("/") and ":" not in path):
        raise wrong(flag, "CLAIM:/PATH", text)
    return Volume(claim, path)


def _check_paths(volumes: Sequence[Volume]) -> None:
    taken = {"/", "/dev/shm"}  # noqa: S108  a mount of ours
    for volume in volumes:
        path = volume.path.rstrip("/") or "/"
        if path in taken:
            raise UsageError(
                f"{quoted(path)} is where something else is mounted, expected another path for {volume.claim}"
            )
        taken.add(path)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        raise wrong("--env", "NAME=VALUE", text)
    if name in _OURS:
        raise UsageError(f"--env expects no {name}, which is what {_OURS[name]} is for")
    if name in _FIXED:
        raise UsageError(f"--env expects no {name}, which the manifests set themselves")
    return name, value
