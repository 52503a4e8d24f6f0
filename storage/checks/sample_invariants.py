"""Invariants of samples: the rows of every batch lie within it, and every vertex has its features in one place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.samples import (
    ONLY_TYPE,
    PACKED,
    FeaturesByType,
    Samples,
    rank_path,
    segment_path,
)
from gnnloom.storage.artifacts.typed.typed_samples import HeteroBatch, TypedSamples
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.wording import counted


def check_samples(artifact: Artifact) -> None:
    """Check every batch of every rank; one segment is in memory at a time.

    Raises:
        CorruptError: an invariant is broken.
    """
    samples = TypedSamples(artifact) if artifact.version == TYPED_VERSION else Samples(artifact)
    if len(samples.num_batches) != samples.num_ranks:
        raise CorruptError(
            f"{artifact.path}: batches of {counted(len(samples.num_batches), 'rank')}, expected {samples.num_ranks}"
        )
    if isinstance(samples, Samples):
        for rank in range(samples.num_ranks):
            seeds, hot = artifact.array(f"{rank_path(rank)}/seed").read(), samples.hot_features(rank)
            for epoch in range(samples.num_epochs):
                found = _seeds_of(samples, rank, epoch, hot)
                _check_seeds(found, seeds, f"{artifact.path}: epoch {epoch} of rank {rank}")
        return
    hot = samples.hot_features(0)
    for epoch in range(samples.num_epochs):
        ranks = [_seeds_of(samples, rank, epoch, hot) for rank in range(samples.num_ranks)]
        _check_seeds(np.concatenate(ranks), samples.seeds(), f"{artifact.path}: epoch {epoch}")


def _check_seeds(found: NDArray[np.int64], seeds: NDArray[np.int64], where: str) -> None:
    if not np.array_equal(np.sort(found), seeds):
        raise CorruptError(f"{where} does not have every seed once")


def _seeds_of(samples: Samples | TypedSamples, rank: int, epoch: int, hot: FeaturesByType) -> NDArray[np.int64]:
    """(num_seeds,) int64 seeds of an epoch of a rank, whose batches are checked."""
    artifact, found = samples.artifact, [np.empty(0, np.int64)]
    for number in range(samples.num_segments(rank)):
        path = segment_path(rank, epoch, number)
        for name, rows in hot.items():
            _check_places(artifact, path if name == ONLY_TYPE else f"{path}/type/{name}", len(rows))
        for stored in samples.read_segment(rank, epoch, number, hot):
            where, batch = f"{artifact.path}/{path}", stored.batch
            if isinstance(batch, HeteroBatch):
                found.append(_checked_hetero(where, batch, samples))
            else:
                _check_batch(where, batch, samples)
                found.append(batch.seeds)
    return np.concatenate(found)


def _check_places(artifact: Artifact, prefix: str, num_hot: int) -> None:
    hot, num_packed = artifact.array(f"{prefix}/hot").read(), len(artifact.array(f"{prefix}/feature"))
    if len(hot) and not PACKED <= hot.min() <= hot.max() < num_hot:
        raise CorruptError(f"{artifact.path}/{prefix}/hot: a row outside the {num_hot} frequent ones")
    if np.count_nonzero(hot == PACKED) != num_packed:
        raise CorruptError(
            f"{artifact.path}/{prefix}/feature: {counted(num_packed, 'row')}, expected one for each packed vertex"
        )


def _check_batch(where: str, batch: LayeredBatch, samples: Any) -> None:
    _check_vertices(f"{where}/vertex", batch.vertices, samples.num_vertices)
    if len(batch.blocks) != samples.num_layers:
        raise CorruptError(f"{where}/layer_size: {counted(len(batch.blocks), 'layer')}, expected {samples.num_layers}")
    for block in batch.blocks:
        if block.num_rows > block.num_columns or not _within(block.indices, block.num_columns):
            raise CorruptError(f"{where}/indices: a column outside its block")


def _checked_hetero(where: str, batch: HeteroBatch, samples: Any) -> NDArray[np.int64]:
    """(num_seeds,) int64 the seeds of a batch of a graph with types, once its arrays are known to fit together."""
    for name, vertices in batch.vertices.items():
        _check_vertices(f"{where}/type/{name}/vertex", vertices, samples.types[name])
        if len(batch.num_vertices[name]) != samples.num_hops + 1:
            raise CorruptError(f"{where}/type/{name}/size: expected {counted(samples.num_hops, 'hop')} after the seeds")
    for relation in samples.relations:
        edges = batch.edges[relation.name]
        pointers = np.cumsum([0, *batch.num_vertices[relation.target][:-1]])
        if np.diff(edges.matrix.indptr[pointers]).tolist() != edges.num_entries:
            raise CorruptError(f"{where}/relation/{relation.name}/size: not the edges of the rows of each hop")
    found: NDArray[np.int64] = batch.vertices[samples.of_type][: batch.num_vertices[samples.of_type][0]]
    return found


def _check_vertices(where: str, vertices: NDArray[np.int64], count: int) -> None:
    if len(distinct(vertices)) != len(vertices) or not _within(vertices, count):
        raise CorruptError(f"{where}: a vertex twice in a batch, or outside the graph")


def _within(ids: NDArray[np.int32] | NDArray[np.int64], width: int) -> bool:
    return not len(ids) or bool(ids.min() >= 0 and ids.max() < width)
