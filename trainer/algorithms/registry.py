"""Finds all algorithms: gnnloom's, and algorithms of other installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gnnloom.trainer.algorithms
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.trainer.algorithms.algorithm import Algorithm

#: Algorithms by name, in the order of choices.
ALGORITHMS: Mapping[str, Algorithm[Any]] = load_descriptors(
    gnnloom.trainer.algorithms, "ALGORITHM", "gnnloom.algorithms", Algorithm
)
