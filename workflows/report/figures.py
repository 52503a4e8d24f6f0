"""Figures that several parts of a report show, computed in one place so that they agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.artifact import artifact_key
from gnnloom.trainer.tasks.task import Figure
from gnnloom.workflows.report.facts import RunFacts

#: Vertices whose degrees are in memory at once: 8 MiB.
_VERTICES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Best:
    """The epoch with the best validation score, counted from 1, with the scores that were measured then.

    Attributes:
        test: None if the test score was not measured in this epoch.
    """

    epoch: int
    validation: float
    test: float | None


def best_epoch(facts: RunFacts) -> Best | None:
    """Return the first epoch with the best validation score; None if it was never measured."""
    epochs, values = facts.curve(f"val_{facts.score.name}")
    if not len(values):
        return None
    position = int((np.argmin if facts.score.lower else np.argmax)(values))
    epoch = int(epochs[position])
    test = facts.metrics[epoch - 1].get(f"test_{facts.score.name}")
    return Best(epoch, float(values[position]), test)


def written(score: Figure, value: float, decimals: int = 2) -> str:
    """Format a score: a share as a percentage, an error as a number."""
    return f"{value:.{decimals}%}" if score.is_share else f"{value:.4g}"


def total_seconds(facts: RunFacts) -> float | None:
    """Return the time of all sessions of the run; None if one was killed or none was recorded."""
    taken = [session.get("seconds") for session in facts.sessions]
    known = [float(seconds) for seconds in taken if isinstance(seconds, int | float)]
    return sum(known) if taken and len(known) == len(taken) else None


def sent_bytes(facts: RunFacts) -> int:
    """Return the bytes that all ranks sent in the last epoch."""
    return sum(facts.metrics[-1].get("bytes", {}).values())


def random_rows(facts: RunFacts) -> float | None:
    """Return the average number of rows that random parts would exchange per product; None if unknown.

    Column j has k_j pins: the vertices that need row j, and j itself. They lie in P (1 - (1 - 1/P)^k_j) of P random
    parts on average, and all but one of the parts receive the row.
    """
    parts = facts.quality.get("parts")
    columns = _columns(facts)
    if not parts or columns is None:
        return None
    graph, missing = columns
    total = 0.0
    for start in range(0, graph.num_vertices, _VERTICES_AT_ONCE):
        pins = graph.degree(start, min(start + _VERTICES_AT_ONCE, graph.num_vertices)) + missing
        total += float((parts * -np.expm1(pins * np.log1p(-1 / parts)) - 1).sum()) if parts > 1 else 0.0
    return total


def _columns(facts: RunFacts) -> tuple[Graph, int] | None:
    """Return the graph whose rows are the columns of the adjacency, and the pins that its degrees do not count."""
    graphs = {each.key: each for each in facts.artifacts if each.kind == "graph"}
    source = None if facts.shards is None else graphs.get(facts.shards.inputs.get("graph", ""))
    # A graph without held-out links has the same loops as the graph from which it was made.
    ingested = source
    while ingested is not None and "graph" in ingested.inputs:
        ingested = graphs.get(ingested.inputs["graph"])
    # With the loops of the source, only some columns contain their own vertex.
    missing = {"add": 0, "remove": 1}.get(ingested.parameters.get("self_loops", "")) if ingested is not None else None
    if source is None or missing is None:
        return None
    try:
        graph = Graph(source)
        if not graph.symmetric:
            key = artifact_key("transpose", {}, {"graph": source.key})
            graph = Graph(facts.dataset.find("transpose", key))
    except GnnloomError:
        return None
    return graph, missing
