"""Few cases that stand for many: `make test` has time for those, and `make test-long` runs all of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

Case = TypeVar("Case")

#: Parameters of a fixture or of a test: whether it runs every case that it has.
FEW_OR_EVERY = (pytest.param(False, id="few"), pytest.param(True, id="every", marks=pytest.mark.long))


def covering(
    cases: Sequence[Case], shows: Callable[[Case], Iterable[Hashable]], cost: Callable[[Case], float]
) -> list[Case]:
    """Cases that together show everything that all cases show, in the order of all cases.

    The next one is always the one that shows the most new things for its cost, the first of several equal ones.
    """
    shown = {case: set(shows(case)) for case in cases}
    missing = set[Hashable]().union(*shown.values())
    chosen = list[Case]()
    while missing:
        chosen.append(max(cases, key=lambda case: len(shown[case] & missing) / cost(case)))
        missing -= shown[chosen[-1]]
    return [case for case in cases if case in chosen]


def few_of(*values: Iterable[Hashable], together: int) -> list[ParameterSet]:
    """All combinations of values as the parameters of a test; a few of them run by default, the others are long.

    Args:
        values: of each parameter; a ``pytest.param`` has values of several parameters that always go together.
        together: any so many values of different parameters occur together in one of the few.
    """
    cases = list(itertools.product(*values))
    few = covering(cases, lambda case: itertools.combinations(enumerate(case), together), lambda _: 1.0)
    return [pytest.param(*_flat(case), marks=() if case in few else pytest.mark.long) for case in cases]


def _flat(case: Iterable[Hashable]) -> Iterator[Hashable]:
    for value in case:
        yield from value.values if isinstance(value, ParameterSet) else (value,)


def every_example() -> bool:
    """Whether the properties draw all their examples, as in `make test-long`."""
    return "EVERY_EXAMPLE" in os.environ


def examples(number: int) -> int:
    """How many examples of a property are drawn: all of them if ``EVERY_EXAMPLE`` is set, else a third of them."""
    return number if every_example() else -(-number // 3)
