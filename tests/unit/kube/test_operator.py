from __future__ import annotations

from types import SimpleNamespace

import pytest

from planaria.kube.api import Call
from planaria.kube.leadership import LeadershipLost
from planaria.kube.operator import Means, Operator, Settings

LEASES = "/apis/coordination.k8s.io/v1/namespaces/planaria-system/leases"


@pytest.mark.parametrize(
    ("call", "passes"),
    [
        (Call("PUT", f"{LEASES}/planaria-operator"), True),
        (Call("POST", LEASES, "planaria-operator"), True),
        (Call("GET", "/api/v1/pods"), True),
        (Call("PUT", f"{LEASES}/planaria-operator-2"), False),
        (Call("PUT", f"{LEASES}/planaria-operator/status"), False),
        (Call("POST", LEASES, "resnet-run"), False),
        (Call("POST", LEASES), False),
        (Call("DELETE", "/api/v1/namespaces/n/pods/a"), False),
    ],
)
def test_without_the_lease_nothing_but_the_lease_is_written(call: Call, passes: bool) -> None:
    api = SimpleNamespace(before_call=lambda _: None)
    means = Means(print, lambda: 0.0, lambda: "", lambda: 0.5)
    Operator(api, Settings("me"), means)  # type: ignore[arg-type]  # nobody is called
    if passes:
        api.before_call(call)
    else:
        with pytest.raises(LeadershipLost):
            api.before_call(call)


def test_the_lease_is_renewed_though_the_server_asks_for_quiet() -> None:
    api = SimpleNamespace(before_call=lambda _: None)
    Operator(api, Settings("me"), Means(print, lambda: 0.0, lambda: "", lambda: 0.5))  # type: ignore[arg-type]  # nobody is called
    assert api.exempt == f"{LEASES}/planaria-operator"
