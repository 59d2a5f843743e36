"""Images for the nodes of a test cluster, made without a registry, a network and a container engine.

PLANARIA is what the Dockerfile at the root makes: the same user, words and folders, with this tree's sources installed. torch
and whatever else tests have comes from HOST_SITE, which every container of such a node sees. IMAGENET is PLANARIA with another
program where KubeDL's tutorial has its own. PAUSE holds a pod's namespaces.
"""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import py_compile
import re
import shutil
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import images
import kube_programs

if TYPE_CHECKING:
    from collections.abc import Iterator

PLANARIA = "planaria-test/planaria:1"  # with a tag: what has none, or `latest`, is always pulled
IMAGENET = "planaria-test/imagenet:1"
PAUSE = "docker.io/planaria-test/pause:1"
USER = 1000
HOME = "/opt/planaria"  # of the environment


def write_all(folder: str) -> tuple[str, ...]:
    """Write archives with the images that every node has into a folder, and return their paths."""
    found = (Path(folder, "pause.tar"), Path(folder, "planaria.tar"))
    _write_pause(found[0])
    _write_planaria(found[1])
    return tuple(map(str, found))


def _write_pause(path: Path) -> None:
    layer = images.Layer()
    layer.file(kube_programs.program("pause"), "pause")
    images.write_image(path, PAUSE, {"Entrypoint": ["/pause"]}, layer.done())


def _write_planaria(path: Path) -> None:
    stamp = hashlib.sha256(f"{sys.version} {_own_text()}".encode())
    for source in _sources():
        stamp.update(f"{source.relative_to(images.ROOT)}\0".encode())
        stamp.update(source.read_bytes())
    # The layer alone is kept, a few megabytes: every change of the sources makes a new one.
    layer = images.made("layer-planaria", stamp.hexdigest(), _write_layer)
    layers = (images.base_layer(), layer.read_bytes())
    settings = _settings()
    images.write_images(path, {PLANARIA: (settings, layers), IMAGENET: (settings, (*layers, _tutorial_layer()))})


def _tutorial_layer() -> bytes:
    layer = images.Layer()
    layer.folder("workspace/data/tiny-imagenet-200")
    layer.file(str(Path(__file__).with_name("kube_trainee.py")), "workspace/examples/imagenet/main.py")
    return layer.done()


def _own_text() -> str:
    return Path(__file__).read_text()


def _sources() -> Iterator[Path]:
    """Give the files that the Dockerfile copies."""
    for name in ("Dockerfile", "pyproject.toml"):
        yield images.ROOT / name
    for name in ("bin", "src", "examples"):
        for folder, folders, files in os.walk(images.ROOT / name):
            folders[:] = sorted(found for found in folders if found != "__pycache__")
            yield from (Path(folder, file) for file in sorted(files))


def _settings() -> dict[str, object]:
    """Return how a container starts, as the last stage of the Dockerfile says."""
    last = (images.ROOT / "Dockerfile").read_text().rsplit("\nFROM ", 1)[1]
    words = dict(re.findall(r"^(ENTRYPOINT|ENV|USER|WORKDIR) (.*)$", last, re.MULTILINE))
    path = f"{HOME}/bin:{dict(line.split('=', 1) for line in images.PYTHON_SETTINGS['Env'])['PATH']}"
    variables = dict(word.split("=", 1) for word in words["ENV"].split()) | {"PATH": path}
    return {
        "Entrypoint": json.loads(words["ENTRYPOINT"]),
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "User": words["USER"],
        "WorkingDir": words["WORKDIR"],
    }


def _write_layer(path: Path) -> None:
    """Write what lies upon Python: the user, the environment with this tree's package, and the examples."""
    layer = images.Layer()
    for name, line in {
        "passwd": f"planaria:x:{USER}:{USER}::/home/planaria:/bin/sh",
        "group": f"planaria:x:{USER}:",
    }.items():
        layer.text(f"etc/{name}", f"{images.ETC[name]}{line}\n")
    layer.folder("home/planaria", 0o755, USER)
    layer.folder("checkpoints", 0o755, USER)
    layer.text(f"{HOME}/pyvenv.cfg", "home = /usr/local/bin\ninclude-system-site-packages = true\n")
    for name in ("python", "python3"):
        layer.link(f"{HOME}/bin/{name}", "/usr/local/bin/python3")
    _add_scripts(layer)
    _add_package(layer, f"{HOME}/lib/python{sysconfig.get_python_version()}/site-packages/planaria")
    layer.file(str(images.ROOT / "examples" / "echo.py"), "workspace/echo.py")
    for source in _sources():
        if source.is_relative_to(images.ROOT / "examples"):
            layer.file(str(source), f"workspace/{source.relative_to(images.ROOT)}")
    path.write_bytes(layer.done())


def _add_scripts(layer: images.Layer) -> None:
    """Add the programs as pip installs them."""
    with (images.ROOT / "pyproject.toml").open("rb") as file:
        scripts = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-scripts"]
    for source, name in scripts.items():
        text = (images.ROOT / source).read_text()
        layer.text(f"{HOME}/bin/{name}", re.sub(r"\A#!python.*", f"#!{HOME}/bin/python", text), 0o755)


def _add_package(layer: images.Layer, place: str) -> None:
    """Add the package, compiled: nobody in a container may write there, and every start would compile it again."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "planaria")
        shutil.copytree(images.ROOT / "src" / "planaria", copy, ignore=shutil.ignore_patterns("__pycache__"))
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        assert compileall.compile_dir(copy, quiet=1, stripdir=copy, prependdir=place, invalidation_mode=mode)
        for top, _, files in sorted(os.walk(copy)):
            for name in sorted(files):
                path = os.path.join(top, name)
                layer.file(path, f"{place}{path.removeprefix(copy)}")
