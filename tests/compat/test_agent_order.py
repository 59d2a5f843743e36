"""torch's `SimpleElasticAgent` and ours, with the same scripted subclass: the same calls in the same order."""

import importlib.util
import signal

import pytest
from scripted_agent import scripted

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="compares with torch itself"),
]

STORIES = {
    "success": (["HEALTHY", "HEALTHY", "SUCCEEDED"], {}),
    "a restart": (["FAILED", "HEALTHY", "SUCCEEDED"], {}),
    "an unhealthy group": (["UNHEALTHY", "SUCCEEDED"], {}),
    "no restart left": (["FAILED", "FAILED"], {}),
    "no restart at all": (["FAILED"], {"max_restarts": 0}),
    "new members are free": (["HEALTHY", "HEALTHY", "SUCCEEDED"], {"waiting": [0, 2], "max_restarts": 0}),
    "a lost group": (["HEALTHY", "UNKNOWN"], {}),
    "an agent that breaks": (["HEALTHY", OSError("broken")], {}),
}


def torch_api():
    from torch.distributed import HashStore
    from torch.distributed.elastic.agent.server import api

    return api, HashStore


def tell(api, store, states, more):
    agent, calls = scripted(api, list(states), store=store, **more)
    try:
        result = agent.run()
        ended = (result.state.name, result.return_values)
    except Exception as problem:  # noqa: BLE001  torch raises the plainest one there is
        ended = str(problem)
    return calls, ended, agent._remaining_restarts, agent.get_worker_group().state.name


@pytest.mark.parametrize("story", STORIES)
def test_the_four_methods_are_called_as_torch_calls_them(story):
    from planaria.elastic.agent.server import api as ours

    theirs, store = torch_api()
    states, more = STORIES[story]
    assert tell(ours, store(), states, more) == tell(theirs, store(), states, more)


@pytest.mark.parametrize("raised", ["RendezvousGracefulExitError", "SignalException"])
def test_what_ends_a_run_early_ends_it_as_in_torch(raised):
    import torch.distributed.elastic.multiprocessing as their_multiprocessing
    import torch.distributed.elastic.rendezvous as their_rendezvous

    import planaria.elastic.multiprocessing as our_multiprocessing
    import planaria.elastic.rendezvous as our_rendezvous
    from planaria.elastic.agent.server import api as ours

    theirs, store = torch_api()
    told = []
    for api, rendezvous, multiprocessing in (
        (ours, our_rendezvous, our_multiprocessing),
        (theirs, their_rendezvous, their_multiprocessing),
    ):
        if raised == "SignalException":
            error = multiprocessing.SignalException("stop", signal.SIGINT)
        else:
            error = rendezvous.RendezvousGracefulExitError("left")
        agent, calls = scripted(api, [error], store=store())
        if raised == "SignalException":
            with pytest.raises(multiprocessing.SignalException):
                agent.run()
        else:
            agent.run()
        told.append([call for call in calls if not call.startswith("monitor")])
    assert told[0] == told[1]
