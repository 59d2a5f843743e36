"""EC2 instances for tests: hosts of a `hosts.Network` that run their user data for real, against moto's AWS.

An `Instance` has a network, mounts and processes of its own and a real dockerd, as the `Engine` on its host. It runs the
script that EC2 would give it, as cloud-init would: real bash, curl, docker, and the aws program of PyPI. What is replaced
is in this table, and nothing else is:

    dnf         packages are "installed" by a line in /var/log/dnf.log: nothing comes from the Internet in a test
    mount       `mount -t efs` mounts a folder of the test instead; every other mount is what it was
    moto        has no CompleteLifecycleAction: `Cloud` answers it, and keeps what was said
    EC2         the metadata service is `metadata.Metadata`, at the address of the real one
    registry    none: the image is on the instance's disk before it boots (`test_boot.py`), so that no boot pulls one
    console     /dev/console is /dev/null: lines for EC2's console are not written to that of this machine
    /etc/hosts  names localhost alone, as on a fresh instance: those of this machine are nobody's business

"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import subprocess
import sys
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any, Self

from engine import PATH, Engine
from metadata import ACCESS_KEY, Metadata, in_namespace

if TYPE_CHECKING:
    from pathlib import Path

    from planaria.chaos.hosts import Host, Network

PORT = 5000  # of AWS, in the network of the instances
DNF = """\
#!/bin/bash
echo "$*" >>/var/log/dnf.log
"""
MOUNT = """\
#!/bin/bash
[ "$1 $2" = "-t efs" ] || exec /usr/bin/mount "$@"
echo "$*" >>/var/log/mount.log
exec /usr/bin/mount --bind "{folder}" "${{@: -1}}"
"""
AWS = """\
#!/bin/sh
exec {python} -m awscli "$@"
"""
LIFECYCLE_ANSWER = b"""\
<CompleteLifecycleActionResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">
  <CompleteLifecycleActionResult/><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>
</CompleteLifecycleActionResponse>"""
STAND_INS = {"dnf": DNF, "mount": MOUNT, "aws": AWS}  # aws is the real one, of the environment that runs the tests

# What a fresh instance has. Folders of this machine are covered, so that nothing of an instance is left behind in them.
FRESH = """\
set -eu
for name in /var/lib /var/log /opt /mnt /usr/local; do
  mkdir -p "/run/fresh$name/new" "/run/fresh$name/work"
  mount -t overlay overlay -o "lowerdir=$name,upperdir=/run/fresh$name/new,workdir=/run/fresh$name/work" "$name"
done
: >/var/log/planaria.log
ln -s "$1/docker.sock" /run/docker.sock
if [ -e /dev/console ]; then mount --bind /dev/null /dev/console; fi
if [ -e /etc/hosts ]; then printf '127.0.0.1 localhost\\n' >/run/hosts; mount --bind /run/hosts /etc/hosts; fi
mkdir -p /var/lib/cloud/instance/scripts
"""


class Cloud:
    """AWS in the network of the instances: moto, on a host of its own. Everything asked of it is asked by a role."""

    def __init__(self, network: Network) -> None:
        self._host = network.hosts[0]
        self.endpoint = f"http://{self._host.address}:{PORT}"
        self.completed: list[dict[str, str]] = []
        self.strangers: list[str] = []

    def __enter__(self) -> Self:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = DomainDispatcherApplication(create_backend_app)
        where = self._host.address, PORT
        self._server = in_namespace(self._host.namespace, lambda: make_server(*where, self._answer, threaded=True))
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        signed = environ.get("HTTP_AUTHORIZATION", "")
        if signed and f"Credential={ACCESS_KEY}/" not in signed:
            self.strangers.append(signed)
        if "/autoscaling/" in signed:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            asked = dict(urllib.parse.parse_qsl(body.decode()))
            if asked.get("Action") == "CompleteLifecycleAction":
                self.completed.append(asked)
                start_response("200 OK", [("Content-Type", "text/xml")])
                return [LIFECYCLE_ANSWER]
            environ["wsgi.input"] = io.BytesIO(body)
        return self._app(environ, start_response)

    def has_completed(self, instance: str, hook: str, result: str = "CONTINUE") -> bool:
        wanted = {"InstanceId": instance, "LifecycleHookName": hook, "LifecycleActionResult": result}
        return any(wanted.items() <= one.items() for one in self.completed)


class Instance:
    """One instance, from its launch to its end. `metadata` is what EC2 tells it."""

    def __init__(self, host: Host, instance: str, efs: Path, disk: str = "") -> None:
        self._efs = efs
        self.is_on = False
        self.engine = Engine(host.namespace, disk)
        self.metadata = Metadata(host.namespace, instance, host.address)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.engine)
            stack.enter_context(self.metadata)
            self.run("bash", "-c", FRESH, "fresh", self.engine.folder)
            for name, text in STAND_INS.items():
                self._write(f"{self.engine.folder}/bin/{name}", text.format(folder=self._efs, python=sys.executable))
            self._stack = stack.pop_all()
        self.is_on = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cut the power."""
        self.is_on = False
        self._stack.close()

    def _write(self, path: str, text: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o700)

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.engine.folder}/bin:{PATH}", "HOME": "/root", "AWS_CONFIG_FILE": "/dev/null"}

    def run(self, *words: str, stdin: str = "") -> str:
        """Run a command on the instance."""
        done = subprocess.run(
            [*self.engine.command(), *words],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{words[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def boot(self, user_data: str) -> None:
        """Do with user data what cloud-init does."""
        part = "/var/lib/cloud/instance/scripts/part-001"
        self.run("bash", "-c", f"cat >{part} && chmod 700 {part} && {part}", stdin=user_data)

    def log(self) -> str:
        """Return what the host's own script said."""
        return self.run("cat", "/var/log/planaria.log")

    def tell(self) -> None:
        """Print what happened here, for people."""
        if self.is_on:
            print(f"--- {self.metadata.instance} at {self.metadata.address}\n{self.log()}")
            print(self.container_log()[:4000])

    def container_log(self) -> str:
        """Return what the job's container said, the launcher's own lines first."""
        done = self.engine.try_docker("logs", "planaria")
        return (done.stderr + done.stdout).decode(errors="replace")

    def says(self, text: str) -> bool:
        return text in self.log()
