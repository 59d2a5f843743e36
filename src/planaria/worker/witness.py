"""A thread that waits beside the training and, when the agent asks, writes down which collectives this process is in.

The start-up file loads this by its path where torch's flight recorder is on, so it imports only what is built in. A signal
handler would not do: its Python part runs in the main thread, which is the one that hangs.
"""

import _socket
import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SWITCHES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
RECORDERS = {"nccl": "_dump_nccl_trace_json", "generic": "_dump_fr_trace_json"}
"""The recorders of torch, and how each is asked: NCCL's own, which only builds with CUDA have, and that of Gloo and others."""
_HELLO = b'{"type": "witness"}\n'
_LOOK = b'"look"'


def is_wanted(environ: "Mapping[str, str]") -> bool:
    """Tell whether torch records collectives in this process."""
    return any(environ.get(name, "").isdecimal() and int(environ[name]) > 0 for name in SWITCHES)


def begin(path: str, rank: str) -> None:
    """Wait for the agent's question from now on, in a thread of its own. Where nobody listens there is none."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(path)
        connection.sendall(_HELLO)
        _thread.start_new_thread(_serve, (connection, rank))
    except (OSError, RuntimeError):  # no thread left: the training matters more
        connection.close()


def _serve(connection: "_socket.socket", rank: str) -> None:
    heard = b""
    try:
        while chunk := connection.recv(1 << 14):
            *lines, heard = (heard + chunk).split(b"\n")
            for line in lines:
                if _LOOK in line:
                    _look(line, rank)
    except OSError:
        return
    finally:
        connection.close()


def _look(line: bytes, rank: str) -> None:
    import json

    try:
        folder = json.loads(line)["folder"]
        found = _recorded(sys.modules["torch._C._distributed_c10d"])
        if not found:
            return
        os.makedirs(folder, mode=0o700, exist_ok=True)
        draft = f"{folder}/.flight.{rank}"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(found)
        os.replace(draft, f"{folder}/rank{rank}.collectives.json")
    except Exception:  # noqa: BLE001  no torch yet, a full disk: then there is no such file
        return


def _recorded(torch: object) -> bytes:
    """Return an object with what each recorder has, by its name; nothing where none answers.

    They are not made one: process groups have numbers of their own in each. Where one is only another name for the other, it
    is written once.
    """
    found: dict[str, bytes] = {}
    for name, function in RECORDERS.items():
        try:
            told = getattr(torch, function)(True, False)
        except Exception:  # noqa: BLE001, S112  this torch has no such recorder, or cannot say; the other one may
            continue
        if told and told not in found.values():
            found[name] = told
    parts = b", ".join(b'"%s": %s' % (name.encode(), told) for name, told in found.items())
    return b"{%s}\n" % parts if parts else b""
