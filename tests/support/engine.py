"""A real container engine for tests: dockerd and containerd of Debian, in namespaces of their own, as root.

An `Engine` has a network, mounts and processes of its own. Its bridges and firewall rules touch nobody, its images and
containers live in memory, and the kernel ends all of it together when the first process there ends: when the block ends,
or when whoever started it is gone, however that happened.

    with Engine() as engine:
        engine.load(images.base())
        print(engine.docker("run", "--rm", images.BASE, "python3", "-V"))

Its socket is a file, so `docker` and `docker-compose` are started outside, with `engine.environment`. There is no way out
of its network and none in, but through `engine.command()`: the words before a command that shall run in there. An engine
on a host of `hosts.Network` has the network of that host instead: `Engine(network.hosts[0].namespace)`. Containers with
`--net=host` are on that host then.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Self

import enclosure
from enclosure import PATH, PATIENCE_S, Enclosure
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

DOCKER = "/usr/bin/docker"  # Debian's: another one may come first in PATH
COMPOSE = "/usr/bin/docker-compose"
PORT = "8000"  # of the package index; nobody else is in that network
NEEDED = (*enclosure.NEEDED, "dockerd", "containerd", "runc", "docker-init", "iptables", "tini")

# The first process of the namespaces. Nothing it mounts is seen outside, and all of it goes with it. It ends when its
# standard input does, or dockerd.
INIT = """\
set -eu
folder=$1 images=$2
mount --make-rprivate /
mount -t proc proc /proc
mount --bind "$folder/resolv.conf" /etc/resolv.conf
mount -t tmpfs -o mode=755 tmpfs /run
if [ -n "$images" ]; then cp -a "$images" /run/images; fi
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1
exec 3<&0 >"$folder/log" 2>&1
dockerd --config-file "$folder/daemon.json" </dev/null &
cat <&3 >/dev/null &
exec 3<&-
wait -n
"""


def why_not() -> str:
    """Return what is missing for an engine here; empty when nothing is."""
    if os.geteuid() != 0:
        return "a container engine of our own needs root"
    missing = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    missing += [path for path in (DOCKER, COMPOSE) if not os.path.exists(path)]
    if missing:
        return f"a container engine of our own needs {', '.join(missing)}: scripts/setup installs them"
    return ""


class Engine:
    """One dockerd. `environment` is for programs that talk to it; `folder` is seen inside under the same name."""

    def __init__(self, namespace: str = "", images: str = "") -> None:
        """Be on a host where one is named, and begin with the images that another engine kept in a folder."""
        self._images = images
        self._namespace = namespace
        self.folder = ""
        self.environment: dict[str, str] = {}
        self._enclosure: Enclosure | None = None

    def __enter__(self) -> Self:
        self.folder = tempfile.mkdtemp(prefix="ple-", dir="/tmp")  # short: the path of a socket has 107 characters
        group = os.path.basename(self.folder)
        address = f"unix://{self.folder}/docker.sock"
        self.environment = {
            "PATH": PATH,
            "HOME": self.folder,
            "DOCKER_CONFIG": f"{self.folder}/config",
            "DOCKER_HOST": address,
            "DOCKER_BUILDKIT": "0",  # Debian has no buildx
        }
        self._write("resolv.conf", "nameserver 127.0.0.1\n")  # nobody answers there, which is known at once
        settings = {
            "bridge": "none" if self._namespace else "",
            "cgroup-parent": f"/{group}",
            "data-root": "/run/images",
            "deprecated-key-path": "/run/key.json",
            "dns": ["127.0.0.1"],
            "exec-root": "/run/docker",
            "hosts": [address],
            "iptables": not self._namespace,
            "pidfile": "/run/docker.pid",
        }
        self._write("daemon.json", json.dumps(settings))
        self._enclosure = Enclosure(self.folder, INIT, self._images, namespace=self._namespace)
        try:
            wait_until(self._is_there, "dockerd answers")
        except BaseException as exc:
            log = self.log()
            self.close()
            if isinstance(exc, AssertionError):
                raise RuntimeError(f"dockerd did not start: {log[-2000:]}") from exc
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything in there, and wait until it is gone."""
        if self._enclosure is not None:
            self._enclosure.close()
            self._enclosure = None

    def _write(self, name: str, text: str) -> None:
        with open(f"{self.folder}/{name}", "w") as file:
            file.write(text)

    def _is_there(self) -> bool:
        assert self._enclosure is not None
        if self._enclosure.has_ended():
            raise RuntimeError("the container engine has ended at once")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(5)
            caller.connect(f"{self.folder}/docker.sock")
            caller.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in caller.recv(100)
        return False

    def log(self) -> str:
        """Return what dockerd said."""
        with contextlib.suppress(OSError), open(f"{self.folder}/log") as file:
            return file.read()
        return ""

    def command(self) -> list[str]:
        """Return the words before a command that shall run in there: its network, mounts and processes."""
        assert self._enclosure is not None
        return self._enclosure.command()

    # The programs people type.

    def docker(self, *words: str, stdin: bytes | None = None, timeout_s: float = PATIENCE_S) -> str:
        """Run `docker` and return what it printed on standard output.

        Raises:
            AssertionError: It failed; with all it said.
        """
        done = self.try_docker(*words, stdin=stdin, timeout_s=timeout_s)
        said = (done.stdout + done.stderr).decode(errors="replace")
        assert done.returncode == 0, f"docker {' '.join(words)}: {said[-4000:]}"
        return done.stdout.decode(errors="replace").strip()

    def try_docker(
        self, *words: str, stdin: bytes | None = None, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `docker`, which may fail."""
        return self._run([DOCKER, *words], stdin, timeout_s)

    def compose(
        self, folder: Path | str, *words: str, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `docker-compose` in a folder; it may fail."""
        return self._run([COMPOSE, "--ansi=never", *words], None, timeout_s, folder)

    def _run(
        self, words: list[str], stdin: bytes | None, timeout_s: float, folder: Path | str | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            words, env=self.environment, cwd=folder, input=stdin, capture_output=True, check=False, timeout=timeout_s
        )

    def load(self, archive: Path) -> None:
        """Take in an image from a file."""
        self.docker("load", "-q", "-i", str(archive))

    def keep_images(self, folder: Path) -> None:
        """Copy all images into a folder, for engines that shall have them without loading. There may be no container."""
        assert self.docker("ps", "-aq") == ""
        words = ["cp", "-a", "/run/images/image", "/run/images/overlay2", str(folder)]
        subprocess.run([*self.command(), *words], check=True, capture_output=True, timeout=PATIENCE_S)


class Index:
    """A package index in the network of an engine, from folders of wheels. `arguments` are for `docker build`."""

    arguments = (
        "--network=host",
        f"--build-arg=PIP_INDEX_URL=http://127.0.0.1:{PORT}/",
    )

    def __init__(self, engine: Engine, folder: Path) -> None:
        words = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(folder), PORT]
        self._server = subprocess.Popen(
            [*engine.command(), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": PATH},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.wait(PATIENCE_S)
