"""What workers do: they run for a while, end well, fail, take their time to stop, and drag each other down."""


class Jobs:
    """Draws the fate of every life from one generator."""

    def __init__(self, cluster, rng):
        self.cluster = cluster
        self.rng = rng
        self.running = {}
        """World: the lives in it that nobody has seen end, with their agents."""

    def begun(self, agent, life):
        """Draw what becomes of workers that start now."""
        plan, rng = self.cluster.plan, self.rng
        self.running.setdefault(life.world, {})[life] = agent
        if life.place.slot == 0 and rng.random() < plan.port_taken:
            self.cluster.after(0.05 + rng.random() * 0.2, agent.fail, life, False, True)
        if rng.random() < plan.failing:
            self.cluster.after(0.05 + rng.expovariate(0.2), agent.fail, life)
        if plan.work_s is not None:
            self.cluster.after(0.05 + plan.work_s * (0.9 + rng.random() * 0.2), agent.finish, life)

    def stop_s(self, agent, grace_s):
        """Draw how long workers take to stop; those that stand still have to be killed."""
        drawn = self.rng.random()
        if drawn < 0.1 or agent in self.cluster.dozing:
            return min(grace_s, 10.0) + 0.5 * self.rng.random()  # they use all of their grace, or have to be killed
        return 0.005 + 0.2 * drawn * drawn

    def over(self, life, *, well):
        """Let the other workers of a world notice that some are gone."""
        world = self.running.get(life.world, {})
        world.pop(life, None)
        if well or not self.cluster.plan.coupled:
            return
        for other, owner in list(world.items()):
            self.cluster.after(0.02 + self.rng.random() * 0.5, owner.fail, other, True)
