from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from planaria.agent import credentials
from planaria.agent.settings import Meeting
from planaria.contract.secret import Secret
from planaria.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def token_file(folder: Path, content: bytes, mode: int = 0o600) -> dict[str, str]:
    path = folder / "token"
    path.write_bytes(content)
    path.chmod(mode)
    return {"PLANARIA_TOKEN_FILE": str(path)}


def test_without_variables_there_is_no_token() -> None:
    assert credentials.read({}).token is None
    assert credentials.read({"PLANARIA_ETCD_PASSWORD": ""}).etcd_password is None


def test_a_pod_knows_where_its_api_server_is() -> None:
    assert credentials.read({}).kube_server == ""
    told = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert credentials.read(told).kube_server == "https://10.96.0.1:6443"
    assert credentials.read({"KUBERNETES_SERVICE_HOST": "fd00::1"}).kube_server == "https://[fd00::1]:443"


def test_a_token_is_the_same_from_a_variable_and_from_a_file(tmp_path: Path) -> None:
    assert credentials.read({"PLANARIA_TOKEN": "abc"}).token == Secret(b"abc")
    assert credentials.read(token_file(tmp_path, b"abc\n")).token == Secret(b"abc")
    assert (
        credentials.read(token_file(tmp_path, b"\xff\n")).token == credentials.read({"PLANARIA_TOKEN": "\udcff"}).token
    )


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_group_may_read_the_file(tmp_path: Path, mode: int) -> None:
    assert credentials.read(token_file(tmp_path, b"abc", mode)).token == Secret(b"abc")


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o444])
def test_a_file_that_everybody_can_read_is_no_secret(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UsageError, match="not everybody can read"):
        credentials.read(token_file(tmp_path, b"abc", mode))


def test_a_link_is_judged_by_what_it_leads_to(tmp_path: Path) -> None:
    token_file(tmp_path, b"abc")
    (tmp_path / "link").symlink_to("token")
    assert credentials.read({"PLANARIA_TOKEN_FILE": str(tmp_path / "link")}).token == Secret(b"abc")


@pytest.mark.parametrize("content", [b"", b" \n", b"x" * 4097, b"x" * 100_000])
def test_an_empty_or_endless_secret_is_refused_without_being_shown(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UsageError, match=r"PLANARIA_TOKEN_FILE expects a secret") as caught:
        credentials.read(token_file(tmp_path, content))
    assert "xx" not in str(caught.value)


def test_something_that_is_no_file_neither_hangs_nor_counts(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), str(tmp_path), "", "a\0b", "/dev/null"):
        with pytest.raises(UsageError, match="PLANARIA_TOKEN_FILE expects a"):
            credentials.read({"PLANARIA_TOKEN_FILE": path})


def test_files_of_the_settings_must_be_readable_but_a_plugins_are_its_own(tmp_path: Path) -> None:
    there = tmp_path / "ca.pem"
    there.write_text("x")
    base = {"endpoints": ("a:1",), "run_id": "r", "min_nodes": 1, "max_nodes": 2}
    credentials.check_files(Meeting(backend="etcd", options={"cacert": str(there), "username": "nowhere"}, **base))
    credentials.check_files(Meeting(backend="mine", options={"cert": "nowhere"}, **base))
    for backend, key in (("etcd", "cert"), ("embedded", "tls_ca"), ("mine", "tls_key")):
        with pytest.raises(UsageError, match=f"{key} expects a file that can be read, got 'nowhere'"):
            credentials.check_files(Meeting(backend=backend, options={key: "nowhere"}, **base))
