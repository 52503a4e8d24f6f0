"""What is measured of every partition, whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.quality import MATRIX_PARTS, describe_quality, measure_load
from gnnloom.pipeline.partition.measure.volume import Exchange, count_exchange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import TaskOutput
from gnnloom.storage.format.groups import write_group


def record_quality(
    output: TaskOutput,
    graph: Graph,
    transpose: Graph,
    part_path: Path,
    parts: int,
    cluster: Cluster,
    *,
    method: str,
    imbalance: float,
    weights: str = "nonzeros",
) -> None:
    """Count what the parts exchange on the real matrix, and record it as facts and, for many parts, arrays.

    Args:
        part_path: file of (num_vertices,) int32 parts, which the tasks of the counter map.
        method: that made the partition.
        imbalance: that was allowed.
        weights: what the load of a part counts.
    """
    writer = output.writer
    # Row j of the transpose lists the vertices that gather from j, whose parts need the row of j in a forward pass.
    forward = count_exchange(transpose, part_path, parts, "forward", writer, cluster)
    # An undirected graph sends the same rows in both directions.
    backward = None if graph.symmetric else count_exchange(graph, part_path, parts, "backward", writer, cluster)
    load = measure_load(graph, part_path, parts, weights, writer, cluster)
    output.facts = describe_quality(method, imbalance, load, forward, backward)
    if parts > MATRIX_PARTS:
        for direction, exchange in (("forward", forward), ("backward", backward)):
            if exchange is not None:
                _store_exchange(output, direction, exchange)


def _store_exchange(output: TaskOutput, direction: str, exchange: Exchange) -> None:
    """Store the rows that each pair of parts exchanges as arrays, because they would make the manifest too large."""
    path = output.writer.path
    write_group(path / "exchange", {})
    write_group(path / "exchange" / direction, {})
    sender, receiver = np.divmod(exchange.pair, exchange.num_parts)
    columns: dict[str, NDArray[Any]] = {"sender": sender.astype(np.int32), "receiver": receiver.astype(np.int32)}
    for name, column in (columns | {"rows": exchange.rows}).items():
        output.add(write_array(path, f"exchange/{direction}/{name}", column, ("pair",)))
