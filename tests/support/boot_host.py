"""A host's script, run by a real bash, with programs of our own in the place of docker, aws and curl."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import told_hosts

from planaria.aws.boot import store_user_data, worker_user_data

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKER = worker_user_data(replace(told_hosts.WORKER, store_group="job_rdzv"))
STORE = store_user_data(told_hosts.STORE)
PATIENCE_S = 100.0  # for programs of Python among ours, on two busy cores
BEGIN = '\n{\nsay "'  # of the last part, which runs what stands before it
QUICK = (
    'sleep() { echo "slept $1"; }\nis_over() { return 1; }\nnotice() { return 1; }\nleave() { echo left; exit 0; }\n'
)
DECIDES = 'end_job() { echo "over: $1 $2"; exit 0; }\ngive_up() { echo "gave up: $1 $2"; exit 0; }\n'
METADATA = """\
case $* in
*/instance-id) echo i-1 ;;
*/local-ipv4) echo 10.0.0.1 ;;
*lifecycle*) echo Terminated ;;
esac"""


class Host:
    """A folder in the place of /run/planaria, and one with programs that come first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        (folder / "bin").mkdir()

    def program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>{self.folder}/asked\n{text}\n')
        path.chmod(0o755)

    def asked(self, part: str) -> list[str]:
        path = self.folder / "asked"
        return [line for line in path.read_text().splitlines() if part in line] if path.exists() else []

    @contextlib.contextmanager
    def started(self, script: str, then: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """Run a script as cloud-init's later boots do; with `then`, that instead of its last part."""
        text = script.replace("/run/planaria", str(self.home)).replace("/opt/planaria", f"{self.folder}/opt")
        if then:
            text = f"{text.partition(BEGIN)[0]}\n{then}"
        with open(self.folder / "said", "wb") as said, open(self.folder / "wailed", "wb") as wailed:
            process = subprocess.Popen(
                ["bash", "-c", text, "planaria", "run"],
                env={"PATH": f"{self.folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=wailed,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, script: str, then: str = "", status: int = 0) -> str:
        """Run a script up to its end; return what it said."""
        with self.started(script, then) as process:
            process.wait(PATIENCE_S)
        said = (self.folder / "said").read_text()
        assert process.returncode == status, said + (self.folder / "wailed").read_text()
        return said


@pytest.fixture
def host(tmp_path: Path) -> Host:
    found = Host(tmp_path)
    found.program("curl", METADATA)
    return found
