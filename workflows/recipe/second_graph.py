"""Says what a changed option of a recipe does: it makes a second graph, and the first one stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.storage.catalog import Catalog
from gnnloom.storage.differences import differences
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.workflows.recipe.recipe import Recipe


def other_graphs(recipe: Recipe, key: str) -> list[str]:
    """Return a sentence about every other graph of the recipe's dataset: how it differs, and how to choose one.

    Args:
        key: key of the graph that the recipe makes or finds.
    """
    try:
        dataset = Catalog(recipe.catalog)[recipe.dataset.name]
    except NotFoundError:
        return []
    wanted = recipe.dataset.options().parameters(recipe.source.open(undirected=recipe.dataset.undirected))
    found = []
    for info in dataset.artifacts("graph"):
        if info.key == key or info.state != "complete":
            continue
        differs = _differences(Artifact(dataset.path / "graph" / info.key).parameters, wanted)
        found.append(
            f"dataset {dataset.name} has another graph, {info.key}, made with {differs}; this recipe uses graph {key},"
            " and both are kept; choose one with `--graph KEY`"
        )
    return found


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe the parameters that differ, such as ``undirected=True (now False)``."""
    then, today = differences([before, now])
    return ", ".join(f"{name}={value} (now {today[name]})" for name, value in then.items())
