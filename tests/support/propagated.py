"""Writes propagated values from NumPy arrays, without the trainer, and computes them with SciPy in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.propagated import (
    DIMS,
    Propagated,
    block_columns,
    facts_of,
    num_blocks,
    stored_chunk_rows,
    value_path,
)
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import ArtifactWriter


def store_propagated(
    dataset: Dataset,
    graph: str,
    steps: Sequence[np.ndarray],
    *,
    of: str = "feature",
    normalization: str = "symmetric",
    ppr: float | None = None,
    inputs: dict[str, str] | None = None,
) -> Propagated:
    """Write propagated values of a dataset.

    Args:
        graph: key of the graph.
        steps: (n, num_features) values of every step; only the last is stored of personalized PageRank.
        inputs: further inputs, kind to key.
    """
    parameters = {"of": of, "steps": len(steps), "normalization": normalization, "ppr": ppr}
    num_vertices, num_features = steps[0].shape
    stored = tuple(range(1, len(steps) + 1))[0 if ppr is None else -1 :]
    rows = stored_chunk_rows(num_vertices)
    with ArtifactWriter.begin(dataset.path, "propagated", parameters, {"graph": graph, **(inputs or {})}) as writer:
        names = [f"columns/{block:05d}" for block in range(num_blocks(num_features))]
        for block, name in enumerate(names):
            with writer.task(name) as output:
                for step in stored:
                    values = steps[step - 1][:, block_columns(block, num_features)].astype(np.float32)
                    output.add(write_array(writer.path, value_path(step, block), values, DIMS, rows))
        return Propagated(writer.commit(names, {"vertex": num_vertices}, facts_of(num_features, stored)))


def reference_steps(
    adjacency: Any, matrix: np.ndarray, steps: int, normalization: str, ppr: float | None = None
) -> list[np.ndarray]:
    """The values of every step, (n, num_features) float64.

    Args:
        adjacency: (n, n) with its self loops.
    """
    adjacency = scipy.sparse.csr_array(adjacency, dtype=np.float64)
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    inverse = np.divide(1, degree, out=np.zeros_like(degree), where=degree > 0)
    if normalization == "symmetric":
        side = scipy.sparse.diags_array(np.sqrt(inverse))
        adjacency = side @ adjacency @ side
    elif normalization == "mean":
        adjacency = scipy.sparse.diags_array(inverse) @ adjacency
    found, value = [], matrix.astype(np.float64)
    for _ in range(steps):
        value = adjacency @ value
        if ppr is not None:
            value = (1 - ppr) * value + ppr * matrix
        found.append(value)
    return found
