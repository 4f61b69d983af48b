"""Plays one policy over all steps of one seed (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from services.planner.core.migrating import Rule as MoveRule
from services.planner.core.migrating import Scene, benefit
from services.planner.core.planning.idling import pays_to_let_go
from services.planner.core.planning.migration import Move, Working, Worth, global_cut, tau_rule
from services.planner.simulate.accounts import Figures, Ledger
from services.planner.simulate.answers import Batch, Order
from services.planner.simulate.believing import Believer
from services.planner.simulate.interruptions import Interruptions
from services.planner.simulate.lengths import Trace
from services.planner.simulate.policies import Policy
from services.planner.simulate.rollout import Cache, Layout, Lost, Mover, Rollout, Running, World
from services.planner.simulate.seating import Seating
from services.planner.simulate.site import BASE, Site
from services.planner.simulate.tailed import Takes, takes_of

_MARGIN = 1.0


@dataclass(frozen=True)
class Case:
    """What every policy of one seed meets."""

    site: Site
    trace: Trace
    order: Order
    seed: int
    blocks: Sequence[tuple[int, ...]] = ()


def play(case: Case, policy: Policy) -> list[Figures]:
    """One row per step."""
    return list(_steps(case, policy))


def _steps(case: Case, policy: Policy) -> Iterator[Figures]:
    site, limit = case.site, case.site.scenario.work.limit
    believer = Believer(policy.belief, case.trace, limit, case.seed)
    seating, ledger = Seating(site, policy), Ledger(site, policy)
    weather = Interruptions(site, policy, case.seed)
    takes = takes_of(policy, case.order, site.scenario.work)
    for step in range(case.order.steps):
        batch = takes.batch(step)
        if not len(batch):
            return  # who begins more than is needed may be done early
        layout = seating.lay_out(batch, believer.forecast(batch), weather.capacity(step))
        losses = weather.of(step, layout)
        rollout = _decoded(
            case, policy, believer, batch=batch, layout=layout, takes=takes, losses=losses
        )
        wasted = takes.ended(batch, rollout)
        believer.end(batch.number)
        yield ledger.settle(batch, rollout, wasted=wasted, predicted=layout.predicted)
        seating.warm = ledger.kept


def _decoded(
    case: Case,
    policy: Policy,
    believer: Believer,
    *,
    batch: Batch,
    layout: Layout,
    takes: Takes,
    losses: Sequence[Lost],
) -> Rollout:
    def world(hear: Callable[[Sequence[int]], None]) -> World:
        return World(
            batch,
            layout,
            case.site.tables,
            cache=_cache(case.site, policy, layout),
            service=case.site.service,
            tick=case.site.scenario.network.tick,
            pause=case.site.scenario.network.pause,
            hear=hear,
        )

    mover = _mover(case.site, policy, believer, batch, layout)
    leaves = policy.released in ("finish", "elastic")
    if not takes.stops:
        heard = world(lambda samples: believer.hear(batch, samples))
        return heard.run(mover=mover, leaves=leaves, losses=losses)
    first = world(lambda _: None).run(leaves=leaves)
    until = takes.stop(batch, first)
    return world(lambda samples: believer.hear(batch, samples)).run(leaves=leaves, until=until)


def _cache(site: Site, policy: Policy, layout: Layout) -> Cache:
    """The service is used where it is at least as fast as the actors themselves together."""
    if policy.cache == "service" and site.held_gpus < len(layout.seats):
        return "engine"
    return policy.cache


def _mover(
    site: Site, policy: Policy, believer: Believer, batch: Batch, layout: Layout
) -> Mover | None:
    """The planner's rule, shown what runs in simulated time."""
    if policy.moves == "none":
        return None
    rule = _rule(policy)
    of_time, of_actors = site.terms(policy).weights()
    expected = layout.predicted or 0.0

    def moves(now: float, actors: Sequence[Working], running: Running) -> Sequence[Move]:
        active = sum(bool(one.samples) for one in actors)
        until = max(expected - now, 0.0) + site.gap
        leaves = policy.released == "finish" or pays_to_let_go(
            until, site.scenario.actors.start.seconds
        )
        scene = Scene(
            actors=actors,
            profile=site.profiles[BASE],
            total=len(batch),
            spare=active - 1 if leaves else 0,
            worth=Worth(actor=of_actors, step=of_time, margin=_MARGIN),
            rest=lambda: believer.rest(batch, running.samples, running.done),
            far=lambda _a, _b: 0.0,
        )
        return rule(scene)

    return moves


def _rule(policy: Policy) -> MoveRule:
    match policy.moves:
        case "tau":
            return lambda scene: tau_rule(scene.actors, scene.profile, tau=policy.tau)
        case "global-cut":
            return lambda scene: global_cut(scene.actors, scene.profile, total=scene.total)
        case "level":
            return lambda scene: level(scene)
    return benefit


def level(scene: Scene) -> list[Move]:
    """Seer's divided rollout without its global pool: the fullest give to the emptiest."""
    loads = {actor.name: len(actor.samples) for actor in scene.actors}
    mine = {
        actor.name: list(zip(actor.samples, actor.tokens, strict=True)) for actor in scene.actors
    }
    found: list[Move] = []
    while max(loads.values()) - min(loads.values()) > 1:
        source = max(loads, key=lambda name: loads[name])
        target = min(loads, key=lambda name: loads[name])
        sample, tokens = mine[source].pop()
        loads[source] -= 1
        loads[target] += 1
        seconds = scene.profile.move_seconds(float(tokens))
        found.append(Move(sample, source, target, "kv", seconds))
    return found
