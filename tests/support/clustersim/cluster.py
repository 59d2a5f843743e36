"""One cluster on one heap of events."""

import heapq
import random

from clustersim.agent import Agent
from clustersim.checks import Checks, Violation
from clustersim.jobs import Jobs
from clustersim.keys import Store
from clustersim.net import Net
from planaria.rendezvous.model import Send, Settings

SETTLED_S = 60.0
"""How long after the last fault a cluster may take to be one world again: twice the verdict's wait, and then some."""
MOST_CALLS = 150_000
"""So that a cluster that spins is noticed: the longest ones take a tenth of this."""
ISOLATED_S = 9.0
"""How long an ambush cuts a host off: long enough for the others to go on."""
AMBUSHED_S = ISOLATED_S + 5.0
"""How long the effects of an ambush last, from when it is laid; if it strikes much later, they are cut short."""
FOR_EVER_S = 1000.0
HELD_S = 10.0
"""How long those are watched who do not have to settle."""
WAKE_S = 0.1
"""For how long a woken node's workers may live on before its guardian has looked at the clock: no timing covers that."""


class Cluster:
    """Runs a plan; raises a Violation if an invariant breaks or nothing settles."""

    def __init__(self, plan, watcher=None):
        self.plan = plan
        self.watcher = watcher
        self.now = 0.0
        self.heap = []
        self.count = 0
        self.store = None
        self.net = Net(self, self.rng_for("net"), plan.delay_s)
        self.checks = Checks(self)
        self.jobs = Jobs(self, self.rng_for("jobs"))
        if plan.external:
            self.store = Store(self, self.rng_for("store"))
        self.agents = []
        self.thaws = {}
        """Agents whose whole node stands still, and what to do when it wakes."""
        self.dozing = set()
        self.ambush = None

    def rng_for(self, what):
        """Return a generator of its own for one part, so that dropping a fault changes little elsewhere."""
        return random.Random(f"{self.plan.seed} {what}")

    # Time.

    def at(self, when, call, *args):
        """Call something at a moment."""
        self.count += 1
        heapq.heappush(self.heap, (when, self.count, call, args))

    def after(self, seconds, call, *args):
        """Call something later."""
        self.count += 1
        heapq.heappush(self.heap, (self.now + seconds, self.count, call, args))

    def run(self):
        """Run until everything settled or ended."""
        for spec in self.plan.specs:
            self.at(spec.at, self.start, spec)
        quiet_at = max((spec.at for spec in self.plan.specs), default=0.0)
        for fault in self.plan.faults:
            self.at(fault.at, self.strike, fault)
            quiet_at = max(quiet_at, fault.at + (AMBUSHED_S if fault.kind == "ambush" else 0.0))
            quiet_at = max(quiet_at, fault.at + (fault.lasting if fault.lasting < FOR_EVER_S else 0.0))
        self.at(quiet_at + 1.0, self._settle, quiet_at + SETTLED_S, 0)
        heap = self.heap
        while heap:
            self.now, _, call, args = heapq.heappop(heap)
            call(*args)
            if self.count > MOST_CALLS:
                raise Violation("spinning", f"{self.count} things happen in {self.now:.3f} s")
        return self

    def _settle(self, limit, calm):
        """Look every second whether the cluster is one world, or has ended; stop looking when it stays so."""
        why = self.checks.restless()
        calm = 0 if why else calm + 1
        hopeless = why and self.now > limit - SETTLED_S + HELD_S and not self.must_settle()
        if calm == 2 or hopeless:
            self.heap.clear()
        elif why and self.now > limit:
            raise Violation("liveness", f"{self.now - limit + SETTLED_S:.0f} s after the last fault: {why}")
        else:
            self.after(1.0, self._settle, limit, calm)

    def living(self):
        """Return who takes part, or could find those who do: it knows somebody who knows somebody who does."""
        living = [one for one in self.agents if one.is_alive and not one.is_leaving and one.ended is None]
        if self.plan.external or len(living) < 2:
            return living
        known = {max(living, key=_newest)}
        addresses = {one: _addresses(one) for one in living}
        grown = True
        while grown:
            more = {one for one in living if one not in known and any(_meet(one, other, addresses) for other in known)}
            known |= more
            grown = bool(more)
        return [one for one in living if one in known]

    def must_settle(self):
        """Tell whether those who live have to become one world: a majority of the newest round that was announced,
        and of the newest that started; or nobody fell silent."""
        living = self.living()
        if len(living) < self.plan.min_nodes:
            return False
        newest = max(living, key=_newest).machine.standing
        if newest.round < 0:
            if self.plan.external:
                return not self.checks.order and not self.store.has_round()
            return any(one.settings.owned is not None for one in living)
        same = [one for one in living if one.machine.standing.round == newest.round]
        members = [one for one in same if one.machine.standing.slot is not None]
        started = self.checks.order[-1] if self.checks.order else None
        names = {one.name for one in living}
        survivors = sum(name in names for name in started.members.values()) if started else 0
        return self.plan.is_mild or (
            len(members) * 2 > newest.size and (started is None or survivors * 2 > started.place.size)
        )

    def has_gone(self, agent):
        """Let something happen to the host of an agent that has ended in good order."""

    def watch(self, agent, event, effects):
        """Show what happened to whoever looks on."""
        if self.watcher is not None:
            self.watcher(self.now, agent, event, effects)

    # Who is there.

    def host_of(self, address):
        """Return the host of an address."""
        return address.rpartition(":")[0]

    def start(self, spec):
        """Start an agent, if its port is free and its host is up."""
        if spec.host in self.net.down or spec.address in self.net.listeners:
            return
        plan = self.plan
        settings = Settings(
            node=spec.name,
            host=spec.host,
            address=spec.address,
            local_world_size=spec.workers,
            role=spec.role,
            slot=spec.wish,
            run_id="run",
            min_nodes=plan.min_nodes,
            max_nodes=plan.max_nodes,
            max_restarts=plan.max_restarts,
            endpoints=plan.endpoints,
            owned=plan.endpoints.index(spec.address) if spec.address in plan.endpoints else None,
            external=plan.external,
            ttl_s=plan.ttl_s,
            quiet_s=plan.quiet_s,
            join_timeout_s=plan.join_timeout_s,
            on_lost_majority=plan.on_lost_majority,
        )
        agent = Agent(self, spec, settings)
        self.agents.append(agent)
        agent.begin()

    def find(self, who):
        """Return the living agent of that name, or who leads."""
        for agent in self.agents:
            if agent.is_alive and (agent.machine.is_leading if who == "leader" else agent.name == who):
                return agent
        return None

    # Faults.

    def strike(self, fault):
        """Let a fault happen."""
        agent = self.find(fault.who)
        if fault.kind in ("split", "block", "outage", "forget", "empty", "ambush") or agent is not None:
            if self.watcher is not None:
                self.watcher(self.now, agent, fault, ())
            getattr(self, f"_{fault.kind}")(agent, fault)

    def _worker(self, agent, _fault):
        if agent.life is not None:
            agent.fail(agent.life)

    def _kill(self, agent, _fault):
        agent.die()

    def _block(self, _agent, fault):
        self.net.block(fault.more)
        self.after(fault.lasting, self.net.unblock, fault.more)

    def _leave(self, agent, _fault):
        agent.leave()

    def _quit(self, agent, fault):
        agent.quit(fault.more)

    def _go(self, agent, _fault):
        agent.drain()

    def _snap(self, agent, fault):
        ends = list(agent.ends.values())
        if ends:
            self.net.snap(self.jobs.rng.choice(ends), fault.lasting)

    def _pause(self, agent, fault):
        if not agent.is_paused:
            agent.pause()
            self.after(fault.lasting, agent.resume)

    def _doze(self, agent, fault):
        self.dozing.add(agent)
        self.after(fault.lasting, self.dozing.discard, agent)

    def lose_host(self, host):
        """Take a host away without a word to anybody."""
        self.net.down.add(host)
        for one in self.agents:
            if one.host == host and one.is_alive:
                one.vanish()

    def isolate(self, host, lasting):
        """Cut a host off, in the middle of what it says."""
        self._cut(self._around({host}), lasting)

    def _host(self, agent, fault):
        host = agent.host
        self.lose_host(host)
        if fault.lasting < FOR_EVER_S:
            self.after(fault.lasting, self._host_back, host)

    def _host_back(self, host):
        self.net.down.discard(host)
        self.net.flush()
        self.net.reset_to(host)

    def _freeze(self, agent, fault):
        if agent.is_paused or agent.is_frozen:
            return
        pairs = self._around({agent.host}) if fault.more else []
        self.thaws[agent] = []
        self.checks.froze(agent)
        agent.pause()
        self.net.block(pairs)
        self.after(fault.lasting, self._thaw, agent, pairs)

    def _thaw(self, agent, pairs):
        due = self.thaws.pop(agent)
        self.net.unblock(pairs)
        if agent.life is not None and agent.fence is not None and agent.clock() >= agent.fence:
            self.after(self.jobs.rng.random() * WAKE_S * 0.5, agent.end_life, agent.life)
        for call, *args in due:
            self.after(self.jobs.rng.random() * WAKE_S * 0.5, call, *args)
        self.after(WAKE_S, self.checks.awake, agent)
        agent.resume()

    def _around(self, inside):
        hosts = sorted({spec.host for spec in self.plan.specs} | {"store"})
        out = [(one, other) for one in hosts for other in hosts if (one in inside) and (other not in inside)]
        return out + [(other, one) for one, other in out]

    def _split(self, agent, fault):
        self._cut(self._around({agent.host} if fault.who == "leader" and agent else set(fault.more)), fault.lasting)

    def _oneway(self, agent, fault):
        out = [pair for pair in self._around({agent.host}) if pair[0] == agent.host]
        flip = self.jobs.rng.random() < 0.5
        self._cut([(b, a) if flip else (a, b) for a, b in out], fault.lasting)

    def _cut(self, pairs, lasting):
        self.net.block(pairs)
        self.after(lasting, self.net.unblock, pairs)
        ends = [
            end for ends in self.net.ends.values() for end in ends if end.peer and (end.host, end.peer.host) in pairs
        ]
        for end in ends:  # some kernels give up on a peer before the cut is over
            if self.jobs.rng.random() < 0.15:
                self.after(lasting * self.jobs.rng.random(), self.net.snap, end, lasting)

    def _lossy(self, agent, fault):
        pairs = set(self._around({agent.host}))
        self.net.lossy |= pairs
        self.after(fault.lasting, self.net.lossy.difference_update, pairs)

    def _outage(self, _agent, fault):
        self.store.outage(fault.lasting, leases_run_on=fault.more)

    def _forget(self, _agent, fault):
        self.store.lose_replies(fault.lasting)

    def _empty(self, _agent, fault):
        self.store.empty(anew=fault.more)

    def _ambush(self, _agent, fault):
        self.ambush = Ambush(self, *fault.more)


def _newest(agent):
    return agent.machine.standing.term, agent.machine.standing.round


def _addresses(agent):
    """Return where an agent can ask."""
    return {*agent.settings.endpoints, *(one.address for one in agent.machine.standing.deputies)}


def _meet(one, other, addresses):
    return one.settings.address in addresses[other] or other.settings.address in addresses[one]


class Ambush:
    """Strikes whoever does a certain thing for the nth time from now on, right after that effect and before the next."""

    def __init__(self, cluster, what, nth, action):
        self.cluster = cluster
        self.what = what
        self.left = nth
        self.action = action

    def notice(self, agent, effect):
        """Look at an effect that was performed."""
        kind = type(effect.message if isinstance(effect, Send) else effect).__name__
        if kind != self.what or self.left == 0:
            return
        self.left -= 1
        if self.left:
            return
        self.cluster.ambush = None
        getattr(self, f"_{self.action}")(agent, effect)

    def _kill(self, agent, _effect):
        agent.die()

    def _leave(self, agent, _effect):
        self.cluster.after(0.0, agent.leave)

    def _snap(self, agent, effect):
        if isinstance(effect, Send) and effect.conn in agent.ends:
            self.cluster.net.snap(agent.ends[effect.conn], 0.5)

    def _isolate(self, agent, _effect):
        self.cluster.isolate(agent.host, ISOLATED_S)

    def _vanish(self, agent, _effect):
        self.cluster.lose_host(agent.host)

    def _stumble(self, agent, _effect):
        pause_s = 0.5 + 4.0 * agent.rng.random()
        if not agent.is_paused:
            agent.pause()
            self.cluster.after(pause_s - 0.01, self.cluster.isolate, agent.host, ISOLATED_S)
            self.cluster.after(pause_s, agent.resume)
