"""What happens to a cluster, drawn from one number: who starts when and where, what workers do, and every fault."""

import random

from planaria.base.value import Value

ENDPOINT = 29400
QUIETED = frozenset({"host", "pause", "freeze", "split", "oneway", "lossy"})
"""Faults that make somebody silent for a while."""
AMBUSHES = (
    "Stop",
    "Stopped",
    "Place",
    "Placed",
    "Start",
    "StartWorkers",
    "Welcome",
    "Join",
    "Ended",
    "Redirect",
    "WriteKey",
)
"""What somebody is struck right after; see `cluster.Ambush`."""
OWNED = 9
"""The last digit of the seeds whose clusters have an owner who ends the run."""
OPEN_ATTACKS = ("kill", "kill", "snap", "leave")
SILENT_ATTACKS = (*OPEN_ATTACKS, "isolate", "isolate", "vanish")


class Spec(Value):
    """One agent: its name, where it listens, and when it starts."""

    name: str
    host: str
    port: int
    at: float
    workers: int = 1
    role: str = "default"
    wish: int | None = None

    @property
    def address(self):
        return f"{self.host}:{self.port}"


class Fault(Value):
    """Something that happens at `at`. `who` is an agent's name or "leader"; `more` is whatever the kind needs."""

    at: float
    kind: str
    who: str = ""
    lasting: float = 0.0
    more: object = None


class Plan(Value):
    """Everything one cluster is made of. The seed also feeds delays, clocks and the fate of workers."""

    seed: int
    specs: tuple[Spec, ...]
    faults: tuple[Fault, ...]
    endpoints: tuple[str, ...]
    external: bool = False
    min_nodes: int = 1
    max_nodes: int = 1
    max_restarts: int = 3
    ttl_s: float = 5.0
    quiet_s: float = 2.0
    join_timeout_s: float = 600.0
    on_lost_majority: str = "wait"
    work_s: float | None = None
    failing: float = 0.0
    port_taken: float = 0.0
    coupled: bool = True
    token: bool = True
    drift: float = 0.01
    delay_s: float = 0.001
    is_mild: bool = True
    is_quiet: bool = False

    @property
    def is_peaceful(self):
        """Whether nothing befalls an agent that its owner did not want."""
        return self.is_quiet and not any(fault.kind == "ambush" for fault in self.faults)

    @property
    def wishes(self):
        """Whether an owner fixed a slot."""
        return any(spec.wish is not None for spec in self.specs)


def draw(seed):
    """Return the plan of a seed."""
    rng = random.Random(f"plan {seed}")
    nodes = rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7)) if rng.random() < 0.97 else 12
    external = rng.random() < 0.3
    style = rng.choice(("mild", "mild", "mild", "wild", "wild", "wild", "silent", "silent", "quiet", "exile"))
    specs, endpoints = _nodes(rng, nodes, external)
    least = rng.randint(1, nodes)
    most = max(least, nodes + rng.choice((-1, 0, 0, 0, 1, 2)))
    faults = _exile(rng, specs) if style == "exile" and nodes > 1 else _faults(rng, specs, style, external=external)
    faults += _owner(seed, specs, style)
    faults = _allowed(faults, specs, endpoints, external=external)
    return Plan(
        seed=seed,
        specs=tuple(specs),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        endpoints=endpoints,
        external=external,
        min_nodes=least,
        max_nodes=most,
        max_restarts=rng.choice((0, 1, 3, 3)),
        ttl_s=rng.choice((2.0, 5.0, 5.0, 5.0)),
        quiet_s=rng.choice((0.5, 2.0)),
        join_timeout_s=5.0 if rng.random() < 0.05 else 600.0,
        on_lost_majority=rng.choice(("wait", "wait", "exit")),
        work_s=rng.choice((None, None, 6.0, 20.0)),
        failing=rng.choice((0.0, 0.0, 0.0, 0.2)),
        port_taken=0.0 if style == "quiet" else rng.choice((0.0, 0.0, 0.1)),
        coupled=rng.random() < 0.7,
        token=rng.random() < 0.5,
        drift=rng.choice((0.0, 0.01)),
        delay_s=rng.choice((0.0005, 0.001, 0.01, 0.03)),
        is_mild=style in ("mild", "quiet"),
        is_quiet=style == "quiet",
    )


def _nodes(rng, nodes, external):
    """Draw who starts, most of them within a second, and which addresses everybody was told."""
    mixed = rng.random() < 0.2
    wishes = rng.random() < 0.05
    specs = [
        Spec(
            name=f"{chr(97 + index)}-{rng.getrandbits(32):08x}",
            host=f"h{index}",
            port=ENDPOINT,
            at=round(rng.random() * (1.0 if rng.random() < 0.85 else 4.0), 3),
            workers=rng.choice((1, 2, 4)) if mixed else 1,
            role=rng.choice(("default", "reader")) if mixed else "default",
            wish=index if wishes else None,
        )
        for index in range(nodes)
    ]
    if nodes > 1 and rng.random() < 0.15:  # two agents on one host: the second listens on a port of its own
        specs[1] = _changed(specs[1], host="h0", port=41001)
    owners = [specs[0]] if rng.random() < 0.75 else [spec for spec in specs if spec.port == ENDPOINT][:2]
    return specs, () if external else tuple(spec.address for spec in owners)


def _changed(spec, **changes):
    fields = {name: changes.get(name, getattr(spec, name)) for name in type(spec)._fields}
    return type(spec)(**fields)


OPEN = ["kill", "kill", "kill leader", "leave", "leave leader", "join", "join", "snap", "restart", "ambush", "ambush"]
SILENT = [
    "host",
    "host leader",
    "pause",
    "pause leader",
    "freeze",
    "doze",
    "split",
    "split leader",
    "oneway",
    "lossy",
    "stumble",
    "stumble",
]
KINDS = {
    "quiet": ["worker"],
    "mild": ["worker", *OPEN],
    "wild": ["worker", *OPEN, *SILENT, "ambush"],
    "silent": ["worker", "join", *SILENT, "ambush", "ambush"],
}


def _faults(rng, specs, style, *, external):
    """Draw the faults, some of them close together; joins and replacements add to `specs`."""
    kinds = KINDS.get(style, KINDS["wild"])
    if external and style not in ("quiet", "mild"):
        kinds = [*kinds, "outage", "outage", "forget"]
    found = []
    moment = rng.uniform(0.2, 12.0)
    for _ in range(rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6))):
        if rng.random() < 0.5:
            moment = rng.uniform(0.2, 16.0)
        else:
            moment += rng.choice((0.001, 0.02, 0.3, 1.0, 5.0)) * rng.random()
        kind, _, whom = rng.choice(kinds).partition(" ")
        found += _fault(rng, specs, kind, whom, round(moment, 3), style)
    return found


def _owner(seed, specs, style):
    """Let an owner end the run of every tenth cluster, sometimes by a node that is struck right after.

    Drawn by itself: the other clusters, and so the seeds that found a race, are what they were.
    """
    if seed % 10 != OWNED:
        return []
    rng = random.Random(f"owner {seed}")
    at = round(rng.uniform(0.1, 16.0), 3)
    found = [Fault(at, "quit", rng.choice(("leader", rng.choice(specs).name)), 0.0, rng.choice((0.0, 0.0, 3.0)))]
    if rng.random() < 0.5:
        attacks = OPEN_ATTACKS if style in ("mild", "quiet") else SILENT_ATTACKS
        what = rng.choice(("Quit", "Quit", "Stop", "Ended", "WriteKey", "Heard"))
        found.append(Fault(max(at - 0.001, 0.0), "ambush", "", 0.0, (what, rng.choice((1, 1, 2)), rng.choice(attacks))))
    return found + _impatience(seed, found[0], style)


def _impatience(seed, quit_fault, style):
    """Let an owner shorten the time it gave, or drain the node that it asked a moment ago.

    Drawn by itself, and for half of those clusters only: the others are what they were.
    """
    if seed // 10 % 2 == 0:
        return []
    rng = random.Random(f"impatience {seed}")
    soon = round(quit_fault.at + rng.uniform(0.0, 0.4), 3)
    match rng.randrange(3):
        case 0:
            return [Fault(soon, "quit", quit_fault.who, 0.0, 0.0)]
        case 1 if style == "quiet":
            return [Fault(soon, "go", quit_fault.who)]
        case 2 if style == "quiet":  # it drains already when it is asked
            return [Fault(max(quit_fault.at - 0.1, 0.0), "go", quit_fault.who)]
        case _:
            return []


def _exile(rng, specs):
    """Cut one node off, let the others go on with a newcomer and die, then let it come back: it must not believe its eyes."""
    begun = round(rng.uniform(3.0, 6.0), 3)
    lasting = round(rng.uniform(9.0, 16.0), 3)
    exile = rng.choice(specs)
    others = [spec for spec in specs if spec is not exile]
    back = begun + lasting
    specs.append(_newcomer(rng, specs, f"h{20 + len(specs)}", round(begun + rng.uniform(0.0, 8.0), 3)))
    kills = [Fault(round(back + rng.uniform(-2.0, 1.0), 3), "kill", spec.name) for spec in others if rng.random() < 0.9]
    return [Fault(begun, "split", "", lasting, (exile.host,)), *kills]


def _fault(rng, specs, kind, whom, at, style):
    who = whom or rng.choice(specs).name
    lasting = round(rng.choice((0.3, 2.0, 6.0, 15.0)) * rng.uniform(0.5, 1.5), 3)
    hosts = sorted({spec.host for spec in specs})
    match kind:
        case "join":
            # On a fresh host, or where one has been: a replacement at an old address, if that is free by then.
            host = f"h{20 + len(specs)}" if rng.random() < 0.6 else rng.choice(hosts)
            specs.append(_newcomer(rng, specs, host, at))
            return []
        case "restart":
            old = rng.choice(specs)
            later = 0.01 + rng.random() * rng.choice((0.2, 3.0))
            specs.append(_changed(old, name=f"{old.name[0]}-{rng.getrandbits(32):08x}", at=round(at + later, 3)))
            return [Fault(at, "kill", old.name)]
        case "stumble":
            # A pause while an answer is on its way, which ends with the network gone.
            return [Fault(at, "ambush", who, 0.0, ("Renew", rng.randint(1, 5), "stumble"))]
        case _:
            return [Fault(at, kind, who, *_details(rng, kind, lasting, hosts, style))]


def _details(rng, kind, lasting, hosts, style):
    """Return how long a fault lasts, and what else it needs."""
    match kind:
        case "host":
            return rng.choice((1.0, 5.0, 1000.0)), None
        case "split":
            inside = tuple(rng.sample(hosts, rng.randint(1, max(1, len(hosts) // 2))))
            return lasting, inside + (("store",) if rng.random() < 0.3 else ())
        case "snap":
            return rng.choice((0.0, 0.5, 3.0)) * rng.random(), None
        case "freeze":
            return lasting, rng.random() < 0.5  # is the kernel gone as well
        case "outage":
            return rng.choice((1.0, 10.0, 20.0)), rng.random() < 0.5  # do leases run on meanwhile
        case "ambush":
            attacks = OPEN_ATTACKS if style == "mild" else SILENT_ATTACKS
            nth = rng.choice((1, 1, 2, 2, 3, 4, 6, 9))
            return 0.0, (rng.choice(AMBUSHES), nth, rng.choice(attacks))
        case _:
            return lasting, None


def _newcomer(rng, specs, host, at):
    name = f"{chr(97 + len(specs) % 26)}-{rng.getrandbits(32):08x}"
    return Spec(name=name, host=host, port=rng.choice((ENDPOINT, 42000 + len(specs))), at=at)


def _allowed(faults, specs, endpoints, *, external):
    """Leave out what nobody could survive: a newcomer at an endpoint that cannot reach any survivor founds a world.

    With the embedded backend nothing but its survivors remembers a run, and a first leader asks for two seconds. So in
    the time around the start of an agent that owns an endpoint nobody falls silent; a store has no such limit.
    """
    if external:
        return faults
    windows = [(spec.at - 0.5, spec.at + 6.0) for spec in specs if spec.address in endpoints]
    if len(endpoints) == 1:
        windows = windows[1:]  # the only one who may be the first
    return [fault for fault in faults if not any(_falls_into(fault, window) for window in windows)]


def _falls_into(fault, window):
    if fault.kind == "ambush":
        return fault.more[2] in ("isolate", "stumble", "vanish")  # nobody knows when
    return fault.kind in QUIETED and fault.at <= window[1] and fault.at + fault.lasting >= window[0]
