"""One agent's process: its clock, its machine, what it does in turn, and what befalls it."""

from collections import deque

from clustersim.checks import Violation
from clustersim.talking import Talking
from clustersim.working import GUARDIAN_S, Working
from planaria.rendezvous import model
from planaria.rendezvous.driver import PART_WITHIN_S
from planaria.rendezvous.machine import Rendezvous
from planaria.rendezvous.model import EndRequested, LeaveAnnounced, LeaveRequested, Ticked

RESTLESS = 3  # ticks one after the other that leave something undone


class Agent(Talking, Working):
    """A process that drives one machine. It is never started again: a restart is another agent."""

    def __init__(self, cluster, spec, settings):
        Talking.__init__(self)
        Working.__init__(self)
        self.cluster = cluster
        self.spec = spec
        self.host = spec.host
        self.name = spec.name
        self.settings = settings
        self.rng = cluster.rng_for(spec.name)
        self.skew_s = self.rng.random() * 1000
        self.rate = 1.0 + (self.rng.random() - 0.5) * 2 * cluster.plan.drift
        self.machine = Rendezvous(settings, self.clock())
        self.is_alive = True
        self.is_paused = False
        self.is_leaving = False
        self.is_polite = False
        self.has_quit = False
        self.has_left = False
        self.ended = None
        self.inbox = deque()
        self.is_busy = False
        self.ticks = 0
        self.missed_tick = False
        self.restless = 0
        self.records = cluster.store.records(self) if cluster.store else None

    # The clock.

    def clock(self):
        """Return the moment on this host's clock."""
        return self.skew_s + self.cluster.now * self.rate

    def true_time(self, local):
        """Return when this host's clock shows `local`."""
        return (local - self.skew_s) / self.rate

    # Events.

    def begin(self):
        """Start listening and let the machine begin."""
        self.cluster.net.listeners[self.settings.address] = self
        self.is_busy = True
        self._perform(None, self.machine.begin(self.clock()))
        self._turn()

    def post(self, event):
        """Let the machine see an event, once the process can run and has done what it is at."""
        if not self.is_alive:
            return
        self.inbox.append(event)
        if not (self.is_paused or self.is_busy):
            self._turn()

    soon = post
    """Calls of the store's client wait like events."""

    def _turn(self):
        self.is_busy = True
        while self.inbox and self.is_alive and not self.is_paused:
            event = self.inbox.popleft()
            if callable(event):
                event()
            else:
                self._perform(event, self._handle(event))
        self.is_busy = False

    def _handle(self, event):
        try:
            effects = self.machine.handle(event, self.clock())
        except Exception as problem:
            raise Violation("crash", f"{self.name} at {event!r:.200}: {problem!r}") from problem
        self._check_that_it_sleeps(event)
        return effects

    def _perform(self, event, effects):
        self.cluster.watch(self, event, effects)
        for effect in effects:
            if not self.is_alive:
                return
            EFFECTS[type(effect)](self, effect)
            if self.cluster.ambush is not None:
                self.cluster.ambush.notice(self, effect)
        if self.ended is not None and not self.machine.is_leading:
            self.die(polite=True)  # a leader stays until everybody knows

    # Effects of its own; for the others see `Talking` and `Working`.

    def _on_wake_at(self, effect):
        self.ticks += 1
        self.missed_tick = False
        if effect.when is not None:
            late = self.rng.random() * 0.003
            self.cluster.at(max(self.true_time(effect.when), self.cluster.now) + late, self._tick, self.ticks)

    def _check_that_it_sleeps(self, event):
        """See that what was due is done after a tick: with a real clock it would be woken for it again and again."""
        now = self.clock()
        self.restless = self.restless + 1 if isinstance(event, Ticked) and self.machine._wakes_at(now) <= now else 0
        if self.restless > RESTLESS:
            raise Violation("spinning", f"{self.name} has something to do that it does not do")

    def _tick(self, number):
        if number == self.ticks and self.is_alive:
            if self.is_paused:
                self.missed_tick = True
            else:
                self.post(Ticked())

    def _on_end_run(self, effect):
        self.ended = effect.ended
        self.cluster.checks.ended(self, effect.ended)

    def _on_say(self, _effect):
        pass

    def _on_read_key(self, effect):
        self.records.read(effect.key)

    def _on_write_key(self, effect):
        self.records.write(effect)

    # What befalls the process.

    def die(self, *, polite=False):
        """End the process; its kernel closes its connections, its guardian kills its workers."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.is_polite = polite
        self._unlisten()
        for end in list(self.ends.values()):
            self.cluster.net.close(end)
        self.ends.clear()
        if self.records is not None and polite:
            self.records.close()
        if polite:
            self.cluster.has_gone(self)
        if self.life is not None and self.life.is_alive:
            self.cluster.after(self.rng.random() * GUARDIAN_S, self.end_life, self.life)

    def vanish(self):
        """Go with the host: nobody hears anything."""
        self._unlisten()
        self.is_alive = False
        for end in list(self.ends.values()):
            self.cluster.net.vanish(end)
        self.ends.clear()
        if self.life is not None:
            self.end_life(self.life)

    def _unlisten(self):
        if self.cluster.net.listeners.get(self.settings.address) is self:
            del self.cluster.net.listeners[self.settings.address]

    def pause(self):
        """Stop the process; the guardian goes by the newest deadline it was told."""
        self.is_paused = True
        if self.fence is not None:
            self.cluster.at(max(self.true_time(self.fence), self.cluster.now), self._guard, self.fence)

    def resume(self):
        """Run again: what came meanwhile is handled, timers first or last."""
        if not (self.is_alive and self.is_paused):
            return
        self.is_paused = False
        if self.missed_tick:
            self.missed_tick = False
            if self.rng.random() < 0.5:
                self.inbox.appendleft(Ticked())
            else:
                self.inbox.append(Ticked())
        if not self.is_busy:
            self._turn()

    def leave(self):
        """Let the owner take this node out: with a word ahead, so that all stop in good order, or at once."""
        if self.is_leaving or not self.is_alive or self.ended:
            return
        if self.rng.random() < 0.5:
            self.post(LeaveAnnounced("its owner said so"))
            self._depart(self.cluster.now + 3.0)
        else:
            self._go()

    def quit(self, grace_s):
        """Let the owner end the whole run, from this node."""
        if self.has_left or not self.is_alive or self.ended:
            return
        if self.is_leaving and not self.machine.has_leader:
            return  # it is refused: nobody could be told
        self.has_quit = True
        self.cluster.checks.owner_quit(must_end=self.machine.has_leader and self.cluster.plan.is_peaceful)
        self.post(EndRequested("its owner said so", grace_s))

    def _depart(self, limit):
        if self.cluster.now > limit or self.life is None or not self.life.is_alive:
            self._go()
        else:
            self.cluster.after(0.02, self._depart, limit)

    def drain(self):
        """Let the owner take this node out, and take half a second for it."""
        self._go(0.5)

    def go_at_once(self):
        """Say goodbye in this moment, in which no worker takes time to end: the next round is just being made."""
        self.is_leaving = True
        if self.life is not None:
            self.end_life(self.life)
        self._goodbye()

    def _go(self, at_least_s=0.0):
        """End the workers, then say goodbye."""
        if self.is_leaving or not self.is_alive or self.ended:
            return
        self.is_leaving = True
        took = at_least_s + self.rng.random() * 0.5
        if self.life is not None:
            self.cluster.after(took, self.end_life, self.life)
        self.cluster.after(took + 0.001, self._goodbye)

    def _goodbye(self):
        if self.is_alive:
            self.has_left = True
            self.cluster.checks.said_goodbye(self)
            self.post(LeaveRequested("its owner said so"))
            self.soon(lambda: self._part(self.cluster.now + PART_WITHIN_S))

    def _part(self, limit):
        """Go, as the driver does, when the store has taken the last word, or there was no more time for it."""
        if self.is_alive and self.machine.is_parting and self.cluster.now < limit:
            self.cluster.after(0.005, self._part, limit)
        else:
            self.die(polite=True)


EFFECTS = {
    model.Connect: Agent._on_connect,
    model.Send: Agent._on_send,
    model.Close: Agent._on_close,
    model.AskAround: Agent._on_ask_around,
    model.WakeAt: Agent._on_wake_at,
    model.StartWorkers: Agent._on_start_workers,
    model.StopWorkers: Agent._on_stop_workers,
    model.KillWorkers: Agent._on_kill_workers,
    model.Fence: Agent._on_fence,
    model.EndRun: Agent._on_end_run,
    model.Say: Agent._on_say,
    model.ReadKey: Agent._on_read_key,
    model.WriteKey: Agent._on_write_key,
}
