from __future__ import annotations

import os

import pytest

from planaria.base.value import replace
from planaria.contract.env import LONGEST_REASON, Round, for_workers, visible_device, worker_environment

ROUND = Round(
    number=4,
    run_id="id",
    role="trainer",
    group_rank=1,
    group_world_size=2,
    first_rank=8,
    world_size=16,
    first_role_rank=6,
    role_world_size=14,
    local_world_size=8,
    master_addr="10.0.0.1",
    master_port=4242,
    restart_count=3,
    max_restarts=5,
    restart_reason="rank 2 failed",
)


def environment(inherited: dict[str, str], local_rank: int = 2, virtual: bool = False) -> dict[str, str]:
    return worker_environment(inherited, ROUND, local_rank, error_file="/e", control="/c", virtual_rank=virtual)


@pytest.mark.parametrize("reason", ["a\0b", "node \ud800 left", "é\n" * 200_000])
def test_whatever_other_nodes_are_called_the_reason_can_be_handed_to_exec(reason: str) -> None:
    life = replace(ROUND, restart_reason=reason)
    found = worker_environment({}, life, 0, error_file="/e", control="/c", virtual_rank=False)
    text = found["PLANARIA_RESTART_REASON"]
    assert text.isprintable()
    assert 0 < len(text) <= LONGEST_REASON + 10
    assert os.fsencode(text)


def test_every_name_has_its_value() -> None:
    assert environment({}) == {
        "RANK": "10",
        "LOCAL_RANK": "2",
        "GROUP_RANK": "1",
        "ROLE_RANK": "8",
        "ROLE_NAME": "trainer",
        "LOCAL_WORLD_SIZE": "8",
        "WORLD_SIZE": "16",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_WORLD_SIZE": "14",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4242",
        "TORCHELASTIC_RESTART_COUNT": "3",
        "TORCHELASTIC_MAX_RESTARTS": "5",
        "TORCHELASTIC_RUN_ID": "id",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": "/e",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "PLANARIA_CONTROL": "/c",
        "PLANARIA_ROUND": "4",
        "PLANARIA_RESTART_REASON": "rank 2 failed",
    }


def test_what_is_inherited_stays_unless_it_is_ours_to_say() -> None:
    inherited = {"HOME": "/h", "RANK": "99", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
    found = environment(inherited)
    assert (found["HOME"], found["RANK"], found["TORCH_NCCL_ASYNC_ERROR_HANDLING"]) == ("/h", "10", "0")
    assert inherited["RANK"] == "99"


def test_a_virtual_rank_is_zero_and_sees_its_own_device() -> None:
    found = environment({"CUDA_VISIBLE_DEVICES": "5, 6 ,7"}, virtual=True)
    assert (found["LOCAL_RANK"], found["RANK"], found["CUDA_VISIBLE_DEVICES"]) == ("0", "10", "7")
    assert environment({}, virtual=True)["CUDA_VISIBLE_DEVICES"] == "2"
    assert visible_device("GPU-1,MIG-2", 1) == "MIG-2"


def test_a_round_is_a_value() -> None:
    assert replace(ROUND, number=5) != ROUND
    with pytest.raises(AttributeError, match="immutable"):
        ROUND.number = 5  # type: ignore[misc]


def test_workers_inherit_everything_but_the_secrets_of_the_run() -> None:
    secrets = dict.fromkeys(("PLANARIA_TOKEN", "PLANARIA_TOKEN_FILE", "PLANARIA_ETCD_PASSWORD"), "x")
    harmless = {"HOME": "/", "PET_RDZV_CONF": "ttl=3", "PASSWORD": "theirs"}
    assert for_workers({**secrets, **harmless, "PET_RDZV_ENDPOINT": "etcd://h/r?password=x"}) == harmless
