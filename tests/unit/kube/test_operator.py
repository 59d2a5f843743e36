from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from planaria.errors import KubeError, LeadershipLost
from planaria.kube.api import Call
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


def test_the_lease_is_renewed_while_the_first_objects_are_listed() -> None:
    class Leadership:
        is_held = True
        is_kept = asyncio.Event()

        async def acquire(self, _say: object) -> None:
            pass

        async def keep(self) -> None:
            self.is_kept.set()
            await asyncio.Event().wait()

        async def release(self) -> None:
            pass

    leadership = Leadership()

    async def slow_list(*_: object, **__: object) -> None:
        async with asyncio.timeout(60.0):
            await leadership.is_kept.wait()
        raise KubeError("enough", status=422)

    async def story() -> None:
        api = SimpleNamespace(before_call=lambda _: None, list=slow_list)
        means = Means(lambda _: None, lambda: 0.0, lambda: "", lambda: 0.5)
        operator = Operator(api, Settings("me", host="127.0.0.1", port=0), means)  # type: ignore[arg-type]  # only lists
        operator._leadership = leadership  # type: ignore[assignment]  # its place in the order is what counts
        with pytest.raises(KubeError, match="enough"):
            await operator.run()

    asyncio.run(story())


def test_without_a_view_of_nodes_nobody_is_asked_for_permissions_that_are_not_meant_to_be() -> None:
    async def no_nodes(*_: object, **__: object) -> None:
        raise KubeError("GET /api/v1/nodes was refused with 403", hint="are they in place?", status=403)

    said: list[str] = []
    api = SimpleNamespace(before_call=lambda _: None, list=no_nodes)
    operator = Operator(api, Settings("me"), Means(said.append, lambda: 0.0, lambda: "", lambda: 0.5))  # type: ignore[arg-type]  # only lists
    asyncio.run(operator._look_for_nodes())
    assert said == ["going on without a view of nodes: GET /api/v1/nodes was refused with 403"]


def test_the_lease_is_renewed_though_the_server_asks_for_quiet() -> None:
    api = SimpleNamespace(before_call=lambda _: None)
    Operator(api, Settings("me"), Means(print, lambda: 0.0, lambda: "", lambda: 0.5))  # type: ignore[arg-type]  # nobody is called
    assert api.exempt == f"{LEASES}/planaria-operator"
