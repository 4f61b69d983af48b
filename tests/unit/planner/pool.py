"""A model of the operator's part: it makes actors and ends those that were let go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.planner.core.effects import ScalePool

if TYPE_CHECKING:
    from tests.unit.planner.world import World


class ModelOperator:
    """Does nothing before the first wish.

    `wishes`: all that came, in order. `loses`: so many of the next never come.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.wishes: list[ScalePool] = []
        self.loses = 0

    def told(self, wish: ScalePool) -> None:
        if self.loses:
            self.loses -= 1
        else:
            self.wishes.append(wish)

    def work(self) -> None:
        """One look at the pool."""
        if not self.wishes:
            return
        wish, actors = self.wishes[-1], self._world.actors
        for name in [n for n in sorted(actors) if actors[n].gone]:
            self._world.kill_actor(name)
            self._world.tell_gone(name)
        for name in wish.release:
            if name in actors:
                actors[name].drain()
        kept = [name for name in sorted(actors) if not actors[name].draining]
        for name in kept[wish.replicas :]:
            actors[name].drain()
        for _ in range(wish.replicas - len(kept)):
            self._world.start_actor()
