"""Groups of a few workers that run, and what may happen to them, for tests of the machine step by step."""

from groupsim import failure

from planaria.agent.machine import step
from planaria.agent.model import Begun, Group, StartWorkers, WorkersStarted


def running(size=2, master_port=0, **settings):
    group = Group(**({"size": size, "max_restarts": 3, "grace_s": 30.0} | settings))
    group, effects = step(group, Begun(0.0))
    assert effects == (StartWorkers(0, 0, ""),)
    group, effects = step(group, WorkersStarted(0.0, master_port))
    assert effects == ()
    return group


def feed(group, *events):
    effects = ()
    for event in events:
        group, effects = step(group, event)
    return group, effects


def mistake(rank, at, **more):
    return failure(rank, 1, at, "exception", ("ModuleNotFoundError", "ImportError", "Exception"), **more)


def usage_error(rank, at):
    return failure(rank, 2, at, "exit", ())
