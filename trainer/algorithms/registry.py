"""All algorithms: gnnloom's, and algorithms that installed packages announce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gnnloom.trainer.algorithms
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.option import Option
from gnnloom.trainer.algorithms.algorithm import Algorithm

#: Algorithms by name, in the order of choices.
ALGORITHMS: Mapping[str, Algorithm[Any]] = load_descriptors(
    gnnloom.trainer.algorithms, "ALGORITHM", "gnnloom.algorithms", Algorithm
)


def declared_options() -> dict[str, Option]:
    """The algorithms' own options by name; the first algorithm that has an option declares it."""
    found: dict[str, Option] = {}
    for algorithm in ALGORITHMS.values():
        found = {**algorithm.options, **found}
    return found
