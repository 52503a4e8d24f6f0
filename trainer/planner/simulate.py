"""Simulates scaling: the forecast of every algorithm for growing numbers of ranks, and changes of the fastest one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.candidates import Plan, Situation, fastest_first, make_plans
from gnnloom.trainer.planner.pair_steps import PairFacts
from gnnloom.trainer.planner.profile import MachineProfile

Key = TypeVar("Key")


@dataclass(frozen=True)
class Crossing:
    """A number of ranks at which the fastest algorithm changes.

    Attributes:
        ranks: the first number of ranks where ``now`` is the fastest.
        before: the fastest algorithm at the previous number of ranks.
    """

    ranks: int
    before: str
    now: str


def simulate(
    config: TrainConfig,
    situation: Situation,
    profile: MachineProfile,
    ranks: Sequence[int],
    memory: int = 0,
    *,
    weak: bool = False,
) -> list[Plan]:
    """The best process grid of every algorithm for each number of ranks.

    Args:
        ranks: ascending numbers of ranks.
        memory: bytes per rank; 0 for the profile's bytes.
        weak: the graph grows with the ranks, from its size at the first number of ranks; its partitions then matter
            only through their power law.

    Returns:
        Plans by number of ranks, and for each by algorithm in the order of choices.
    """
    found = []
    for number in ranks:
        there = _grown(config, situation, number / ranks[0]) if weak else situation
        plans = make_plans(config.with_options(ranks=number), there, profile, memory)
        by_algorithm = _grouped(plans, lambda plan: plan.config.algorithm.name)
        found += [fastest_first(by_algorithm[name])[0] for name in sorted(by_algorithm)]
    return found


def _grouped(plans: Iterable[Plan], key: Callable[[Plan], Key]) -> dict[Key, list[Plan]]:
    groups: dict[Key, list[Plan]] = {}
    for plan in plans:
        groups.setdefault(key(plan), []).append(plan)
    return groups


def _grown(config: TrainConfig, situation: Situation, factor: float) -> Situation:
    """A larger graph of the same kind."""
    graph, pairs = situation.graph, situation.graph.pairs
    sizes = {name: round(getattr(graph, name) * factor) for name in ("num_vertices", "nnz", "num_training")}
    if pairs is not None:
        pairs = PairFacts.of(config, round(pairs.num_pairs * factor))
        sizes["num_training"] = pairs.step_pairs
    law = replace(situation.law, num_vertices=sizes["num_vertices"])
    # The partitions belong to the smaller graph; only their law holds for a larger one.
    return replace(situation, graph=replace(graph, **sizes, pairs=pairs), partitions=(), given_law=law)


def fastest(plans: Sequence[Plan]) -> dict[int, Plan]:
    """The best plan for each number of ranks, ascending."""
    by_ranks = _grouped(plans, lambda plan: plan.config.algorithm.ranks)
    return {ranks: fastest_first(by_ranks[ranks])[0] for ranks in sorted(by_ranks)}


def crossings(plans: Sequence[Plan]) -> list[Crossing]:
    """Points where the fastest algorithm changes; plans that do not fit count only where no plan fits."""
    names = [(ranks, plan.config.algorithm.name) for ranks, plan in fastest(plans).items()]
    return [Crossing(ranks, before, now) for (_, before), (ranks, now) in pairwise(names) if before != now]
