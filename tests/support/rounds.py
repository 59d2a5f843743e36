"""A round for tests that only need one: the second of two nodes with two workers each."""

from __future__ import annotations

from planaria.contract.env import Round

LIFE = Round(
    number=3,
    run_id="r",
    role="default",
    group_rank=1,
    group_world_size=2,
    first_rank=2,
    world_size=4,
    first_role_rank=2,
    role_world_size=4,
    local_world_size=2,
    master_addr="h",
    master_port=1,
    restart_count=0,
    max_restarts=3,
)
