"""Tell what happened in a few lines, and find the shortest version of what went wrong."""

import re

from clustersim.checks import Violation
from clustersim.cluster import Cluster
from clustersim.plan import Fault, Plan
from planaria.base.value import Value, replace
from planaria.rendezvous import messages, model

LINES = 60
OPENING = 10
"""How many of them tell the beginning, which is mostly the same."""
DULL_EVENTS = (model.Ticked, model.Opened, model.StoreAnswered)
DULL_MESSAGES = (messages.Renew, messages.Ack, messages.Ask, messages.Leads, messages.Waiting)
DULL_EFFECTS = (model.WakeAt, model.Fence, model.AskAround, model.ReadKey, model.Close)


def run(plan, watcher=None):
    """Run a plan; return the cluster, and the violation or None."""
    cluster = Cluster(plan, watcher)
    try:
        cluster.run()
    except Violation as violation:
        return cluster, violation
    return cluster, None


def shrink(plan, tries=150):
    """Return a plan with fewer faults and agents that goes wrong in the same way."""
    kind = run(plan)[1].kind
    changed = True
    while changed and tries > 0:
        changed = False
        for smaller in _smaller(plan):
            tries -= 1
            violation = run(smaller)[1]
            if violation is not None and violation.kind == kind:
                plan, changed = smaller, True
                break
            if tries <= 0:
                break
    return plan


def _smaller(plan):
    """Yield plans that are simpler by one thing."""
    for index in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:index] + plan.faults[index + 1 :])
    for index in range(len(plan.specs)):
        yield replace(plan, specs=plan.specs[:index] + plan.specs[index + 1 :])
    for field, plain in (("coupled", False), ("failing", 0.0), ("port_taken", 0.0), ("drift", 0.0), ("work_s", None)):
        if getattr(plan, field) != plain:
            yield replace(plan, **{field: plain})


def explain(plan, lines=LINES):
    """Return the story of a plan that goes wrong, as short as it can be made."""
    plan = shrink(plan)
    told, violation = tell(plan)
    if len(told) > lines:
        told = [*told[:OPENING], f"... {len(told) - lines} lines ...", *told[OPENING - lines :]]
    settings = [f"{name}={getattr(plan, name)!r}" for name in Plan._fields if name not in ("specs", "faults")]
    agents = [f"{spec.name} at {spec.address} from {spec.at:g} s" for spec in plan.specs]
    return "\n".join([f"seed {plan.seed}: {violation}", ", ".join(settings), "; ".join(agents), *told])


def tell(plan, *, sent_only=False):
    """Run a plan and return its story line by line, and the violation or None. `sent_only`: each message once."""
    lines, known = [], set()

    def watcher(now, agent, event, effects):
        what = told_event(event)
        if (
            sent_only
            and isinstance(event, (model.Received, model.KeyRead, model.KeyWritten))
            and not effects_told(effects)
        ):
            return
        follows = effects_told(effects)
        if isinstance(event, (model.Answered, model.Lost, model.Ticked)):
            line = agent.name, re.sub(r"\d+", "", f"{what} {follows}")  # what differs only in a number
            if line in known:
                return
            known.add(line)
        if what is None and not follows:
            return
        name = agent.name.partition("-")[0] if agent is not None else "-"
        lines.append(f"{now:8.3f} s  {name:<2} {what or 'a moment passes':<46} {'; '.join(follows)}".rstrip())

    violation = run(plan, watcher)[1]
    return lines, violation


def told_event(event):
    """Say in words what happened; None for what happens all the time."""
    if event is None:
        return "begins"
    if isinstance(event, Fault):
        lasting = f" for {event.lasting:g} s" if event.lasting else ""
        more = f" {event.more}" if event.more is not None else ""
        return f"*** {event.kind} {event.who.partition('-')[0]}{lasting}{more}"
    if isinstance(event, DULL_EVENTS):
        return None
    if isinstance(event, model.Received):
        return (
            None
            if isinstance(event.message, DULL_MESSAGES) or event.conn == model.SELF
            else f"{event.conn} says {_short(event.message)}"
        )
    if isinstance(event, model.Answered):
        if event.leads is None:
            return f"{event.address} refuses" if event.refused else f"{event.address} is mute"
        return f"{event.address} answers: {_leads(event.leads)}" if event.leads.address else None
    return _short(event)


def _leads(leads):
    return f"{leads.address} leads, term {leads.term}{', valid' if leads.valid else ''}"


def effects_told(effects):
    """Say in words what was ordered, as far as it is worth it; a message to many once."""
    found = {}
    for effect in effects:
        text = told_effect(effect)
        if text and isinstance(effect, model.Send):
            conn, _, said = text.removeprefix("to ").partition(": ")
            found.setdefault(said, []).append(conn)
        elif text:
            found[text] = []
    return [f"to {', '.join(conns)}: {said}" if conns else said for said, conns in found.items()]


def told_effect(effect):
    """Say in words what was ordered; None for what is ordered all the time."""
    if isinstance(effect, DULL_EFFECTS):
        return None
    if isinstance(effect, model.Send):
        return (
            None
            if isinstance(effect.message, DULL_MESSAGES) or effect.conn == model.SELF
            else f"to {effect.conn}: {_short(effect.message)}"
        )
    if isinstance(effect, model.StartWorkers):
        place = effect.place
        return f"STARTS round {place.round} (term {place.term}) as {place.slot} of {place.size}, restart {place.restart_count}"
    if isinstance(effect, model.Say):
        return f'"{effect.text}"'
    return _short(effect)


SHOWN = {
    messages.Join: ("node", "state", "fenced", "since_ack_s", "dead"),
    messages.Place: ("round", "slot", "size", "restart_count"),
    messages.Ended: ("kind", "status"),
    model.EndRun: (),
    messages.Failed: ("round",),
    model.WorkersFailed: ("names_peer",),
    model.StopWorkers: ("round",),
    model.KillWorkers: (),
    model.WriteKey: ("key", "expect"),
    model.KeyRead: ("key", "revision", "value"),
}


def _short(value):
    if not isinstance(value, Value):
        return repr(value)
    names = SHOWN.get(type(value), type(value)._fields)
    return f"{type(value).__name__}({', '.join(_field(getattr(value, name)) for name in names)})"


def _field(item):
    if isinstance(item, float):
        return f"{item:.3g}"
    if isinstance(item, str):
        return item if len(item) < 60 else item[:57] + "..."
    return _short(item) if isinstance(item, Value) else repr(item)
