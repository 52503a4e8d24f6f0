"""Invariants of samples: the rows of every batch lie within it, and every vertex has its features in one place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.samples import PACKED, Samples, rank_path, segment_path
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.wording import counted


def check_samples(artifact: Artifact) -> None:
    """Check every batch of every rank; one segment is in memory at a time.

    Raises:
        CorruptError: an invariant is broken.
    """
    samples = Samples(artifact)
    if len(samples.num_batches) != samples.num_ranks:
        raise CorruptError(
            f"{artifact.path}: batches of {counted(len(samples.num_batches), 'rank')}, expected {samples.num_ranks}"
        )
    for rank in range(samples.num_ranks):
        seeds = artifact.array(f"{rank_path(rank)}/seed").read()
        hot = samples.hot_feature(rank)
        for epoch in range(samples.num_epochs):
            found = [np.empty(0, np.int64)]
            for number in range(samples.num_segments(rank)):
                _check_places(artifact, segment_path(rank, epoch, number), len(hot))
                for stored in samples.read_segment(rank, epoch, number, hot):
                    _check_batch(f"{artifact.path}/{segment_path(rank, epoch, number)}", stored.batch, samples)
                    found.append(stored.batch.seeds)
            if not np.array_equal(np.sort(np.concatenate(found)), seeds):
                raise CorruptError(f"{artifact.path}: epoch {epoch} of rank {rank} does not have every seed once")


def _check_places(artifact: Artifact, prefix: str, num_hot: int) -> None:
    hot, num_packed = artifact.array(f"{prefix}/hot").read(), len(artifact.array(f"{prefix}/feature"))
    if len(hot) and not PACKED <= hot.min() <= hot.max() < num_hot:
        raise CorruptError(f"{artifact.path}/{prefix}/hot: a row outside the {num_hot} frequent ones")
    if np.count_nonzero(hot == PACKED) != num_packed:
        raise CorruptError(
            f"{artifact.path}/{prefix}/feature: {counted(num_packed, 'row')}, expected one for each packed vertex"
        )


def _check_batch(where: str, batch: LayeredBatch, samples: Samples) -> None:
    vertices = batch.vertices
    if len(distinct(vertices)) != len(vertices) or not _within(vertices, samples.num_vertices):
        raise CorruptError(f"{where}/vertex: a vertex twice in a batch, or outside the graph")
    if len(batch.blocks) != samples.num_layers:
        raise CorruptError(f"{where}/layer_size: {counted(len(batch.blocks), 'layer')}, expected {samples.num_layers}")
    for block in batch.blocks:
        if block.num_rows > block.num_columns or not _within(block.indices, block.num_columns):
            raise CorruptError(f"{where}/indices: a column outside its block")


def _within(ids: NDArray[np.int32] | NDArray[np.int64], width: int) -> bool:
    return not len(ids) or bool(ids.min() >= 0 and ids.max() < width)
