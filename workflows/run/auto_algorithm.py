"""Replaces ``algorithm = auto`` by what the planner chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.trainer.config.algorithm_config import AUTO


def with_algorithm(given: Mapping[str, Any], ranks: int | None = None) -> dict[str, Any]:
    """The fields of a training with an algorithm that exists; see ``settle_algorithm``.

    Args:
        ranks: number of ranks, if it is not among the fields.
    """
    if given.get("algorithm") != AUTO:
        return dict(given)
    # Importing torch takes seconds, which only this choice should spend.
    from gnnloom.trainer.planner.choose import settle_algorithm

    return settle_algorithm(given, ranks)
