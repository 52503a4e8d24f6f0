"""The order of plans: what fits first, fastest first, and fewest bytes among those that are equally fast."""

from __future__ import annotations

from collections import Counter

import pytest

from gnnloom.trainer.algorithms.steps import Volume
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.candidates import Plan, fastest_first
from gnnloom.trainer.planner.cost import Cost


def _plan(seconds: float, num_bytes: int, *, fits: bool = True) -> Plan:
    config = TrainConfig.of(catalog="c", dataset="d")
    cost = Cost(spmm=seconds, gemm=0, passes=0, communication={}, hidden=0, waiting=0)
    return Plan(config, "", "", cost, Volume(Counter(halo=num_bytes), Counter()), 0, fits)


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ([_plan(3, 0), _plan(1, 5), _plan(2, 0)], [1, 2, 0]),
        # The last two are as fast as the first; only the one that sends the fewest bytes passes others.
        ([_plan(1, 9), _plan(1.06, 0), _plan(1.02, 8), _plan(1.04, 7)], [3, 0, 2, 1]),
        ([_plan(1, 9), _plan(1.02, 9)], [0, 1]),
        # What does not fit neither comes first nor keeps the others from it.
        ([_plan(0.99, 0, fits=False), _plan(1, 9), _plan(1.01, 1)], [2, 1, 0]),
        ([_plan(2, 3, fits=False), _plan(1.95, 4, fits=False)], [0, 1]),
    ],
)
def test_order_of_plans(given: list[Plan], order: list[int]) -> None:
    assert fastest_first(given) == [given[number] for number in order]
