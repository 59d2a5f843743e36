"""A node that is lost with the majority of its round: the operator says when it is gone for good, and its agents believe it.

API server, operator and agents are real; pods are played (`kube_player`), and a machine is lost by stopping all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crew import Crew
from operator_rig import Rig
from pytorchjobs import resnet
from stopping import stop
from waiting import wait_until

from planaria.contract.burial import pod_of
from planaria.kube.burial import round_seen
from planaria.kube.resources import CONFIG_MAP, POD

if TYPE_CHECKING:
    from pathlib import Path

    from crew import CrewNode
    from harness import Room
    from kube_cluster import Cluster
    from kube_player import Stage

TTL_S = 6.0
GONE = "is not waited for any more: it is gone for good, by its own word or that of the cluster"


def pod(rig: Rig, stage: Stage, name: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = rig.call(rig.api.get(POD, stage.namespace, name))
    return found


def job_of(workers: int, namespace: str) -> dict[str, Any]:
    """Return a job that has so many workers at first, and that meets through the cluster."""
    job = resnet(namespace)
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = workers
    del job["spec"]["elasticPolicy"]["rdzvBackend"], job["spec"]["elasticPolicy"]["rdzvEndpoint"]
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    return job


def crew_of(room: Room, rig: Rig, stage: Stage, cluster: Cluster, folder: Path) -> Crew:
    """Return nodes that meet as the agents in the job's pods do."""
    token_file = folder / "token"
    token_file.write_text(cluster.token("resnet-agent", stage.namespace))
    conf = f"server={cluster.url},cacert={cluster.authority.cert},token_file={token_file}"
    where = {"backend": "kubernetes", "endpoint": f"{stage.namespace}/resnet-run", "conf": conf}
    run_id = rig.job(stage)["metadata"]["uid"]
    return Crew(room, "--max-restarts=0", nodes="1:3", ttl_s=TTL_S, run_id=run_id, **where)


def lose(node: CrewNode) -> None:
    """Stop all of a node at once: it neither refuses nor answers."""
    node._crew.room.is_littered = True
    stop(*node.processes())


def add(crew: Crew, rig: Rig, stage: Stage, name: str, worker: int) -> str:
    """Start the agent of a worker's pod, once there is one; return the pod's uid."""
    found = wait_until(lambda: pod(rig, stage, f"resnet-worker-{worker}"), f"worker {worker}")
    uid = str(found["metadata"]["uid"])
    crew.add(name, env={"PLANARIA_POD_UID": uid})
    return uid


def buried(rig: Rig, stage: Stage) -> set[str]:
    """Return of which pods the store says that they are gone."""
    found = rig.call(rig.api.get(CONFIG_MAP, stage.namespace, "resnet-run"))
    return {pod_of(node) for node in round_seen(found, rig.job(stage)["metadata"]["uid"]).buried}


def test_replacements_wait_for_a_lost_machine_until_its_pod_is_gone(
    kube_api: Cluster, rig: Rig, room: Room, tmp_path: Path
) -> None:
    with rig.stage("resnet") as stage, rig.operator(stage):
        rig.call(rig.api.create(job_of(1, stage.namespace)))
        wait_until(lambda: pod(rig, stage, "resnet-worker-0"), "a worker, and all that it needs")
        crew = crew_of(room, rig, stage, kube_api, tmp_path)
        old = add(crew, rig, stage, "a", 0)
        crew.wait_world("a")

        lose(crew.nodes["a"])
        rig.call(rig.player.fall_silent(stage))
        rig.call(rig.api.delete(POD, stage.namespace, "resnet-worker-0"))
        add(crew, rig, stage, "b", 1)
        crew.nodes["b"].wait_said("holding: 0 of 1 members of round 0 are here")
        assert pod(rig, stage, "resnet-worker-0") is not None
        assert [world.nodes for world in crew.worlds()] == [{"a"}]
        assert buried(rig, stage) == set()

        rig.call(rig.api.delete(POD, stage.namespace, "resnet-worker-0", uid=old, grace_s=0))
        crew.wait_world("b")
        assert GONE in crew.nodes["b"].err()
        assert buried(rig, stage) == {old[:8]}
        crew.nodes["a"].kill()
        crew.end_well("b")


def test_the_one_that_is_left_of_three_goes_on_when_the_pods_of_the_others_are_gone(
    kube_api: Cluster, rig: Rig, room: Room, tmp_path: Path
) -> None:
    with rig.stage("resnet") as stage, rig.operator(stage):
        rig.call(rig.api.create(job_of(3, stage.namespace)))
        wait_until(lambda: pod(rig, stage, "resnet-worker-0"), "a worker, and all that it needs")
        crew = crew_of(room, rig, stage, kube_api, tmp_path)
        uids = [add(crew, rig, stage, name, index) for index, name in enumerate("abc")]
        crew.wait_world("a", "b", "c")

        rig.call(rig.player.fall_silent(stage))
        room.is_littered = True
        stop(*[pid for name in "ab" for pid in crew.nodes[name].processes()])
        crew.nodes["c"].wait_said("holding: 1 of 3 members")
        for index in range(2):
            rig.call(rig.api.delete(POD, stage.namespace, f"resnet-worker-{index}", uid=uids[index], grace_s=0))
        crew.wait_world("c")
        said = buried(rig, stage)  # with one of them gone for good, one of two is enough
        assert said
        assert said <= {uids[0][:8], uids[1][:8]}
        for name in "ab":
            crew.nodes[name].kill()
        crew.end_well("c")
