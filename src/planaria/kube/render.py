"""`planaria k8s render`: print the manifests of an elastic job, or of what it needs. It asks no cluster anything."""

from __future__ import annotations

import shlex

from planaria.base.files import tell, write_all
from planaria.base.usage import quoted
from planaria.contract import exit_status
from planaria.errors import UsageError
from planaria.kube import manifests, parts
from planaria.kube.manifests import Wanted
from planaria.kube.parts import Dataset, Etcd, Storage
from planaria.kube.render_flags import Asked, read
from planaria.kube.yaml_text import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.kube.yaml_text import Document

COMMAND = "planaria k8s render"
OVERVIEW = """\
usage: planaria k8s render [FLAGS] SCRIPT [ARGUMENTS]

  planaria k8s render --help    every flag, with examples
"""
HELP = """\
usage: planaria k8s render [FLAGS] SCRIPT [ARGUMENTS]
       planaria k8s render --part=etcd|storage|dataset [FLAGS]

Print the manifests of an elastic job, for `kubectl apply -f -`. No cluster is asked anything. What stands after SCRIPT is the
script's, exactly as typed.

Examples:
  planaria k8s render --name=mnist --nnodes=1:4 /workspace/examples/imagenet/main.py --epochs=2 | kubectl apply -f -
  planaria k8s render --name=mnist --nnodes=2:8 --gpus=1 --checkpoint-claim=efs-claim s3://my-bucket/train.py --lr=0.1
  planaria k8s render --name=mnist --store=kubernetes --job /workspace/train.py      # no etcd; lost pods are replaced
  planaria k8s render --name=mnist --operator -o mnist.yaml /workspace/train.py      # for `planaria operator`
  planaria k8s render --part=etcd | kubectl apply -f -
  planaria k8s render --part=storage --efs=fs-0123456789abcdef0 | kubectl apply -f -

The job:
  SCRIPT                     a path in the image, or s3://BUCKET/KEY of a script or archive, which is fetched first
  --name NAME                of the job, and the run; train
  --nnodes N|MIN:MAX         how many nodes train together; 1:3
  --pods N                   how many of them to make; MAX, or MIN with --operator, which makes the others
  --nproc-per-node N|gpu|... workers on each node; 1
  --store etcd|kubernetes    where nodes meet: etcd, or the API server of the cluster; etcd
  --etcd HOST:PORT           where etcd is; etcd:2379
  --checkpoint-claim C[:DIR] claim that commits of the training state are kept on, mounted at DIR; /checkpoints
  --volume CLAIM:/DIR        another claim; may be repeated
  --max-restarts N           how often workers may be restarted before giving up; 100
  --grace SECONDS            how long workers may take to end when their pod has to; 30
  --sha256 HASH              of what s3:// has: nothing else is run
  --env NAME=VALUE           a variable; may be repeated
  --service-account NAME     whom the pods act as, as in a role for S3

The pods:
  --image IMAGE              hello_elastic:dev
  --gpus N                   nvidia.com/gpu of a pod; 0
  --cpu, --memory, --shared-memory QUANTITY    of a pod; 1, 4Gi and 1Gi
  --job                      a batch Job instead of bare pods: it replaces what is lost
  --operator                 a PyTorchJob instead, for `planaria operator`
  --master                   ... with a Master beside the Workers. It trains nothing

Beside a job:
  --part etcd                [--name SERVICE] [--bare: a pod instead of a Deployment]
  --part storage             --efs ID or --nfs SERVER:/PATH [--claim efs-claim] [--pv efs-pv] [--size 5Gi]
  --part dataset             [--url https://.../NAME.zip] [--claim efs-claim] [--image IMAGE]

Everywhere:
  --namespace NAMESPACE      written into the objects; else kubectl's own counts
  --output FILE, -o FILE     write there instead
  --json                     JSON, one List, which kubectl takes as well
  --help                     this text

Exit statuses: 0 printed, 1 the file could not be written, 2 bad input.
"""


def run(argv: Sequence[str]) -> int:
    """Do what `planaria k8s ...` says; return the exit status."""
    match argv:
        case ["render", *rest]:
            return _guarded(rest)
        case ["--help" | "-h" | "help"]:
            return _show(OVERVIEW)
        case []:
            tell(2, OVERVIEW)
            return exit_status.USAGE
        case _:
            _complain(f"planaria k8s has no command {quoted(argv[0])}, expected render")
            return exit_status.USAGE


def rendered(asked: Asked) -> str:
    """Return the text that was asked for: with what was typed in its first line, so that it can be made again."""
    made = _documents(asked)
    if asked.is_json:
        import json

        items = [value for _, value in made]
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2) + "\n"
    (comment, first), *rest = made
    typed = f"{COMMAND} {shlex.join(asked.command)}".rstrip()
    return documents([("\n".join(filter(None, (typed, comment))), first), *rest])


def _documents(asked: Asked) -> tuple[Document, ...]:
    match asked.wanted:
        case Wanted():
            makers = {"pods": manifests.pods, "job": manifests.batch_job, "operator": manifests.pytorch_job}
            return makers[asked.kind](asked.wanted)
        case Etcd():
            return parts.etcd(asked.wanted)
        case Storage():
            return parts.storage(asked.wanted)
        case Dataset():
            return parts.dataset(asked.wanted)
    raise AssertionError("help has no documents")


def _guarded(argv: Sequence[str]) -> int:
    try:
        asked = read(argv)
        if asked.wanted is None:
            return _show(HELP)
        text = rendered(asked)
    except UsageError as problem:
        _complain(str(problem))
        return exit_status.USAGE
    return _show(text) if asked.output in ("", "-") else _write(asked.output, text)


def _show(text: str) -> int:
    try:
        write_all(1, text.encode())
    except BrokenPipeError:  # planaria k8s render ... | head
        return exit_status.DONE
    except OSError as problem:
        _complain(f"cannot print: {problem.strerror}")
        return exit_status.of_error(problem)
    return exit_status.DONE


def _complain(text: str) -> None:
    tell(2, f"planaria: {text}\n")


def _write(path: str, text: str) -> int:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        _complain(f"--output: cannot write {quoted(path)}: {problem.strerror}")
        return exit_status.of_error(problem)
    return exit_status.DONE
