"""The invariants, and when a cluster has settled."""


class Violation(AssertionError):
    """An invariant did not hold. `kind` names it in a word or two."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class World:
    """One started round, as the first node that started it saw it, and who joined in."""

    __slots__ = ("done", "failed_at", "key", "members", "place", "ranks", "roots", "stopped_at")

    def __init__(self, key, place):
        self.key = key
        self.place = place
        self.members = {}
        self.ranks = {}
        self.done = set()
        self.roots = 0
        self.failed_at = self.stopped_at = float("inf")


AGREED = ("size", "world_size", "restart_count", "master_addr", "master_port", "deputies")


class Checks:
    """Sees every start, death, failure and end, and raises a Violation the moment something is wrong."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.worlds = {}
        self.order = []
        """Worlds by the time of their first worker."""
        self.alive = {}
        """Life: its agent, for all lives whose workers could do something at this moment."""
        self.gone = set()
        self.outcomes = {}
        """Epoch: how that run ended, and when."""
        self.last_round = {}
        self.is_quit = False
        """Whether an owner has asked for the end of the run."""
        self.must_end = False
        """Whether a leader heard of it that nothing can befall."""

    # What agents report.

    def started(self, agent, life):
        """Check a start against everything that runs, and against the rounds before.

        A run that begins anew when nobody of the old one is left may meet workers whose guardian is about to kill them:
        whoever starts it cannot know of them.
        """
        place, key = life.place, life.world
        if agent.life is not None and agent.life.is_alive:
            raise Violation("two lives", f"{agent.name} starts workers while its last ones are alive")
        for other, owner in self.alive.items():
            if other.world != key and (owner.is_alive or other.world[0] == key[0]):
                raise Violation(
                    "two worlds",
                    f"{agent.name} starts {told(key)} while workers of {told(other.world)} live on {owner.name}",
                )
        if agent.name in self.gone:
            raise Violation("goodbye", f"{agent.name} said goodbye and starts workers of {told(key)}")
        if place.round <= self.last_round.get((agent.name, place.epoch), -1):
            raise Violation(
                "backwards", f"{agent.name} goes to {told(key)} after round {self.last_round[agent.name, place.epoch]}"
            )
        self.last_round[agent.name, place.epoch] = place.round
        if key[0] in self.outcomes:
            raise Violation(
                "after the end", f"{agent.name} starts {told(key)} after the run ended: {self.outcomes[key[0]][0]}"
            )
        world = self.worlds.get(key)
        if world is None:
            world = self._new(key, place)
        self._member(world, agent, place)
        self.alive[life] = agent

    def _new(self, key, place):
        before = next((one for one in reversed(self.order) if one.key[0] == key[0]), None)
        world = self.worlds[key] = World(key, place)
        self.order.append(world)
        if not self.cluster.plan.min_nodes <= place.size <= self.cluster.plan.max_nodes:
            raise Violation("size", f"{told(key)} has {place.size} nodes")
        if place.restart_count > self.cluster.plan.max_restarts:
            raise Violation(
                "budget", f"{told(key)} is restart {place.restart_count} of {self.cluster.plan.max_restarts}"
            )
        if before is None:
            if place.restart_count:
                raise Violation("budget", f"{told(key)} is the first and has restart count {place.restart_count}")
        elif place.round <= before.place.round:
            raise Violation("backwards", f"{told(key)} starts after {told(before.key)}")
        else:
            self._charged(before, world)
        return world

    def _charged(self, before, world):
        grew = world.place.restart_count - before.place.restart_count
        if grew not in (0, 1):
            raise Violation(
                "budget", f"the restart count goes from {before.place.restart_count} to {world.place.restart_count}"
            )
        if grew and not before.roots:
            raise Violation(
                "budget", f"{told(world.key)} was charged, but no worker of {told(before.key)} failed by itself"
            )
        soon = before.failed_at + 10 * self.cluster.plan.delay_s + 0.1
        crossed = "failed" not in world.place.reason and before.stopped_at < soon  # it was being changed anyway
        if not grew and before.roots and self.cluster.plan.is_quiet and not crossed:
            raise Violation("budget", f"{told(world.key)} was not charged, but a worker of {told(before.key)} failed")

    def _member(self, world, agent, place):
        for field in AGREED:
            mine, theirs = getattr(place, field), getattr(world.place, field)
            if mine != theirs:
                raise Violation(
                    "agreement", f"{agent.name} has {field} {mine} in {told(world.key)}, others have {theirs}"
                )
        if place.slot is None or place.slot in world.members or not 0 <= place.slot < place.size:
            raise Violation("slots", f"{agent.name} has slot {place.slot} of {told(world.key)}, as {world.members}")
        world.members[place.slot] = agent.name
        for rank in range(place.first_rank, place.first_rank + agent.settings.local_world_size):
            if rank in world.ranks:
                raise Violation("ranks", f"{agent.name} and {world.ranks[rank]} have rank {rank} in {told(world.key)}")
            world.ranks[rank] = agent.name
        if len(world.members) == place.size and sorted(world.ranks) != list(range(place.world_size)):
            raise Violation("ranks", f"{told(world.key)} has ranks {sorted(world.ranks)} of {place.world_size}")
        self._complete(world)

    def _complete(self, world):
        """Compare with the round before, once everybody is in."""
        place = world.place
        if len(world.members) != place.size:
            return
        before = None
        for one in self.order:
            if one is world:
                break
            if one.key[0] == world.key[0]:
                before = one
        if before is None or place.round != before.place.round + 1:
            return  # a round in between was decided and never ran: what is compared here may have changed in it
        slots = {name: slot for slot, name in world.members.items()}
        for slot, name in before.members.items():
            if name in slots and slot < place.size and slots[name] != slot and not self.cluster.plan.wishes:
                raise Violation(
                    "slots",
                    f"{name} moves from slot {slot} of {told(before.key)} to {slots[name]} of {told(world.key)}",
                )
        if place.restart_count > before.place.restart_count:
            undone = {name for slot, name in before.members.items() if slot not in before.done}
            lost = undone - set(slots) - self.gone
            if lost:
                raise Violation("budget", f"{told(world.key)} was charged, but {told(before.key)} lost {sorted(lost)}")

    def died(self, life):
        """Take note that the workers of a life are dead."""
        self.alive.pop(life, None)

    def froze(self, agent):
        """Take note that a whole node stands still: its workers do nothing."""
        if agent.life is not None:
            self.alive.pop(agent.life, None)

    def awake(self, agent):
        """Count the workers of a node again that woke up a moment ago."""
        life = agent.life
        if life is None or not life.is_alive or agent.is_frozen:
            return
        for other, owner in self.alive.items():
            if other.world != life.world:
                raise Violation(
                    "two worlds",
                    f"{agent.name} woke up with {told(life.world)} while {told(other.world)} lives on {owner.name}",
                )
        self.alive[life] = agent

    def failed(self, life, *, is_root):
        """Take note of a failure; `is_root`: nobody else caused it, and it is none of the start."""
        world = self.worlds[life.world]
        world.roots += is_root
        if is_root:
            world.failed_at = min(world.failed_at, self.cluster.now)

    def stopping(self, life):
        """Take note that workers were asked to stop."""
        world = self.worlds[life.world]
        world.stopped_at = min(world.stopped_at, self.cluster.now)

    def finished(self, life):
        """Take note that the workers of a life ended well."""
        self.worlds[life.world].done.add(life.place.slot)

    def said_goodbye(self, agent):
        """Take note that a node left politely."""
        self.gone.add(agent.name)

    def owner_quit(self, *, must_end):
        """Take note that an owner wants the run to end."""
        self.is_quit = True
        self.must_end |= must_end

    def ended(self, agent, ended):
        """Check how the run ended for one agent."""
        if agent.name in self.gone or ended.kind in ("lost", "timeout", "refused"):
            if ended.kind == "timeout" and agent.lives:
                raise Violation("outcome", f"{agent.name} ran out of time after its first round had started")
            return
        if agent.life is not None and agent.life.is_alive and not agent.life.ending:
            raise Violation("after the end", f"the run ended for {agent.name} while its workers live")
        found = (ended.kind, ended.status, ended.failures, ended.restart_count)
        epoch = agent.machine.standing.epoch
        if not epoch:  # it never was in, but was there when the run ended
            if ended.kind == "stopped" and self.is_quit:
                return  # its owner, of a run that had not begun; another may have ended before
            if self.outcomes and found not in [known for known, _ in self.outcomes.values()]:
                raise Violation("outcome", f"{agent.name} was told {found}, and no run ended so")
            return
        known, _ = self.outcomes.setdefault(epoch, (found, self.cluster.now))
        if found != known:
            raise Violation("outcome", f"the run ended as {found} for {agent.name}, as {known} for others")
        self._earned(ended, epoch)

    def _earned(self, ended, epoch):
        if ended.kind == "stopped":
            if not self.is_quit:
                raise Violation("outcome", "stopped, and no owner said so")
            if left := [owner.name for life, owner in self.alive.items() if life.world[0] == epoch and owner.is_alive]:
                raise Violation("after the end", f"stopped while workers live on {left}")
            return
        last = next((world for world in reversed(self.order) if world.key[0] == epoch), None)
        if last is None:
            raise Violation("outcome", f"{ended.kind} without a round")
        if ended.kind == "done" and len(last.done) != last.place.size:
            raise Violation("outcome", f"done, but of {told(last.key)} only slots {sorted(last.done)} are")
        if ended.kind == "failed" and not (last.roots and last.place.restart_count == self.cluster.plan.max_restarts):
            raise Violation("outcome", f"failed with {last.roots} failures at restart {last.place.restart_count}")

    def has_finished(self, life):
        """Tell whether the workers of a life ended well."""
        return life.place.slot in self.worlds[life.world].done

    # Liveness.

    def restless(self):
        """Say what is not settled yet; an empty text when all is well."""
        agents = self.cluster.living()
        if not agents:
            return ""
        if left := [one.name for one in agents if one.machine.standing.epoch in self.outcomes]:
            return f"the run ended, and {left} do not know"
        if asked := [one.name for one in agents if one.has_quit]:
            return f"the owner of {asked} wants the run to end, and it does not"
        if self.must_end:
            return "an owner wants the run to end, whose node has left, and it does not"
        worlds = {one.life.world for one in agents if _takes_part(one)}
        if len(worlds) != 1:
            return f"{len(worlds)} worlds for {[one.name for one in agents]}"
        world = self.worlds[next(iter(worlds))]
        inside = {one.name for one in agents if _takes_part(one)}
        if len(inside) != world.place.size:
            return f"{sorted(inside)} are in {told(world.key)} of {world.place.size}"
        outside = [one.name for one in agents if one.name not in inside]
        if outside and world.place.size < self.cluster.plan.max_nodes:
            return f"{outside} are not in {told(world.key)} of {world.place.size}"
        return ""


def _takes_part(agent):
    life = agent.life
    return life is not None and (life.is_alive or agent.cluster.checks.has_finished(life))


def told(key):
    """Name a world."""
    return f"round {key[2]} (term {key[1]})"
