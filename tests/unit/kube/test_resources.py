from __future__ import annotations

from planaria.kube.resources import CLUSTER_ROLE, JOB, KINDS, NODE, POD, path


def test_paths_are_those_of_the_api() -> None:
    assert path(POD) == "/api/v1/pods"
    assert path(POD, "n", "p", "log") == "/api/v1/namespaces/n/pods/p/log"
    assert path(JOB, "n", "j", "status") == "/apis/training.kubedl.io/v1alpha1/namespaces/n/pytorchjobs/j/status"
    assert path(NODE, "ignored", "x") == "/api/v1/nodes/x"
    assert path(CLUSTER_ROLE, name="a/../b") == "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%2F..%2Fb"


def test_kinds_are_found_by_their_names() -> None:
    assert all(name == kind.name for name, kind in KINDS.items())
    assert (JOB.api_version, POD.api_version) == ("training.kubedl.io/v1alpha1", "v1")
