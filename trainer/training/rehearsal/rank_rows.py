"""The rows of a rank, by which modes state the sizes of their batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.matrix.ranges import Span
from gnnloom.storage.shards.row_shards import RowShards
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import shards_of
from gnnloom.trainer.data.typed_vertices import TypedVertices
from gnnloom.trainer.modes.kind import RankRows
from gnnloom.trainer.tasks.task import PREFIXES

#: Bytes per vertex of the table that numbers the vertices while a batch is drawn, and per nonzero of its positions.
NUMBERED, DRAWN = 24, 8
#: Number of ranges of rows whose lengths are read, and rows per range.
_RANGES, _RANGE_ROWS = 32, 1 << 11

if TYPE_CHECKING:
    # A job on row shards need not load it.
    from gnnloom.storage.shards.grid_shards import GridShards
    from gnnloom.trainer.data.open_shards import RunData


def rank_rows(config: TrainConfig, dataset: Dataset, data: RunData, rank: int, own: int) -> RankRows:
    """The rows of a rank. Reads manifests, and chunks of the degrees of the graph.

    Args:
        data: of a run on a graph without types.
        own: number of vertices that the rank owns.
    """
    shards = shards_of(data)
    if isinstance(shards, RowShards):
        # Only the rank's own records: of many ranks, each would otherwise read the records of all.
        halo, *nonzeros = (
            shards.artifact.record(f"row/{rank:05d}/{name}").shape[0]
            for name in ("halo_vertex", "own/indices", "halo/indices")
        )
        # The partition was measured on the whole graph.
        nnz = round(shards.quality.get("load_avg", sum(nonzeros)) * shards.num_parts)
    else:
        halo, nnz = 0, shards.nnz
    return RankRows(
        own=own,
        halo=halo,
        num_vertices=shards.num_vertices,
        nnz=nnz,
        row_bytes=0 if config.model.embed else shards.num_features * np.dtype(config.model.dtype).itemsize,
        training=min(own, _in_split(dataset, shards, PREFIXES["train"], own)),
        lengths=_row_lengths(dataset, shards),
        has_loops=_has_loops(dataset, shards),
    )


def _row_lengths(dataset: Dataset, shards: RowShards | GridShards) -> Mapping[int, int]:
    """Histogram of the lengths of some rows from all over the graph: number of rows by number of entries.

    Empty if they say nothing of the rows that entries refer to, or if the graph is gone. Reads chunks of the degrees.
    """
    key = shards.artifact.inputs.get("graph")
    if key is None or not shards.symmetric:
        return {}
    try:
        graph = dataset.graph(key)
    except NotFoundError:
        return {}
    found = Counter[int]()
    for start, stop in sampled_ranges(graph.num_vertices):
        found.update(graph.degree(start, stop).tolist())
    return found


def sampled_ranges(num_rows: int) -> Iterator[Span]:
    """Ranges of rows whose lengths are read: from all over a matrix, or all of a small one."""
    for start in range(0, num_rows, max(_RANGE_ROWS, -(-num_rows // _RANGES))):
        yield start, min(start + _RANGE_ROWS, num_rows)


def most_measured(dataset: Dataset, shards: RunData, own: int) -> int:
    """Maximum number of a rank's vertices in any split: all of the graph's, or all its own vertices."""
    return min(own, sum(_in_split(dataset, shards, split, own) for split in PREFIXES.values()))


def _has_loops(dataset: Dataset, shards: RowShards | GridShards) -> bool:
    """Whether every vertex of the graph is known to be a neighbor of itself. Reads manifests."""
    origin = dataset.origin(shards.artifact.inputs.get("graph", ""))
    graphs = {info.key: info for info in dataset.artifacts("graph")}
    return origin in graphs and graphs[origin].parameters.get("self_loops") == "add"


def _in_split(dataset: Dataset, shards: RunData, split: str, own: int) -> int:
    """Vertices of the whole graph that are in a split; a rank's own if that is not known."""
    key = shards.inputs["vertices"] if isinstance(shards, TypedVertices) else shards.artifact.inputs.get("vertices")
    if key is None:
        return own
    try:
        facts = dataset.vertices(key).artifact.facts
    except NotFoundError:
        # Shards go on without the vertex data that they were made from.
        return own
    return int(facts.get(split, own))
