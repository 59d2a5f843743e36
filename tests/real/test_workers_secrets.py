"""Workers of a program that brings the agent along get none of the run's secrets, however they are started."""

import json

import pytest
from host_program import Program

SECRETS = {
    "PLANARIA_TOKEN": "of the run",
    "PLANARIA_ETCD_PASSWORD": "of etcd",
    "PET_RDZV_CONF": "username=a,password=b",
    "PET_RDZV_ENDPOINT": "etcd://h:1/r?password=b",
}
ASKED = {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "60"}  # what only an agent that is asked can do
FUNCTION = """
def work():
    told = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout.decode().split("\\0")
    return sorted({one.partition("=")[0] for one in told} & set(SECRETS)), sorted(set(os.environ) & set(SECRETS))

if __name__ == "__main__":
    assert set(SECRETS) <= set(os.environ)
    print(launch(work, start_method=METHOD))
    assert set(SECRETS) <= set(os.environ), "the program keeps its own"
"""
PROGRAM = """
config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=1, run_id="r", max_restarts=0)
elastic_launch(config, "sh")("-c", f"env > {FOLDER}/environment")
"""


@pytest.mark.parametrize("more", [{}, ASKED], ids=["driven", "asked"])
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_function_does_not_find_the_secrets_of_the_run_in_its_environment(tmp_path, method, more):
    body = f"METHOD, SECRETS = {method!r}, {json.dumps(sorted(SECRETS))}\n" + FUNCTION
    with Program(tmp_path, body, **SECRETS, **more) as program:
        assert program.end() == "{0: ([], []), 1: ([], [])}\n"


@pytest.mark.parametrize("more", [{}, ASKED], ids=["driven", "asked"])
def test_a_program_does_not_inherit_the_secrets_of_the_run(tmp_path, more):
    with Program(tmp_path, f"FOLDER = {str(tmp_path)!r}\n" + PROGRAM, **SECRETS, **more) as program:
        program.end()
    names = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert "RANK" in names
    assert not names & set(SECRETS)
