from groupsim import place

from planaria.agent.model import Job, StartWorkers
from planaria.agent.rounds import lone_round, placed_round
from planaria.agent.settings import Meeting
from planaria.base.value import replace
from planaria.process.model import Command

JOB = Job(
    command=Command("program", "true"),
    local_world_size=3,
    run_id="r",
    role="trainer",
    max_restarts=5,
    shutdown_timeout_s=30.0,
    signals=(),
    environment={},
)


def test_one_node_alone_has_every_rank():
    life = lone_round(JOB, StartWorkers(2, 1, "rank 0 failed"), 4711)
    assert (life.first_rank, life.world_size, life.group_rank, life.group_world_size) == (0, 3, 0, 1)
    assert (life.master_addr, life.master_port, life.restart_reason) == ("127.0.0.1", 4711, "rank 0 failed")


def test_one_of_many_has_the_ranks_of_its_place():
    told = place(
        7, slot=2, nodes=4, size=3, restart_count=1, reason="node b left", first_role_rank=1, role_world_size=9
    )
    life = placed_round(JOB, told)
    assert (life.number, life.first_rank, life.world_size) == (7, 6, 12)
    assert (life.group_rank, life.group_world_size, life.local_world_size) == (2, 4, 3)
    assert (life.first_role_rank, life.role_world_size) == (1, 9)
    assert (life.master_addr, life.master_port) == ("10.0.0.1", 4711)
    assert (life.restart_count, life.max_restarts, life.restart_reason) == (1, 5, "node b left")
    assert (life.run_id, life.role) == ("r", "trainer")


def test_in_a_static_run_the_master_has_the_address_that_was_given():
    job = replace(JOB, master_addr="head.svc", master_port=29500)
    static = Meeting("static", ("head.svc:29500",), "r", 2, 2, node_rank=1)
    told = place(0, slot=1, master_port=29500)
    life = placed_round(replace(job, meeting=static), told)
    assert (life.master_addr, life.master_port) == ("head.svc", 29500)
    elastic = Meeting("embedded", ("head.svc:29400",), "r", 2, 2)
    assert placed_round(replace(job, meeting=elastic), told).master_addr == "10.0.0.1"
