"""Row shards of a SciPy matrix and a part vector in plain NumPy: a reference for the stage, input for the trainer."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from gnnloom.storage import Dataset, RowShards
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import ArtifactWriter, TaskOutput
from gnnloom.storage.matrix.csr import cast_ids


def store_row_shards(
    dataset: Dataset,
    adjacency: Any,
    part: np.ndarray,
    num_parts: int,
    *,
    symmetric: bool,
    feature: np.ndarray | None = None,
    label: np.ndarray | None = None,
    split: np.ndarray | None = None,
    num_classes: int | None = None,
    weighted: bool = False,
    method: str = "given",
) -> RowShards:
    """Write the row shards of a matrix; vertex v goes to rank ``part[v]``."""
    adjacency = adjacency.tocsr()
    given = {"feature": feature, "label": label, "split": split}
    dtypes = {"feature": np.float32, "label": np.int32, "split": np.uint8}
    vertices = {name: array.astype(dtypes[name]) for name, array in given.items() if array is not None}
    inputs = {
        "graph": _stored(dataset, "graph") or _fingerprint(adjacency.indices, adjacency.indptr, adjacency.data),
        "partition": _fingerprint(part),
        "vertices": _stored(dataset, "vertices") or _fingerprint(*vertices.values()),
    }
    parameters = {"layout": "row", "parts": num_parts, "method": method}
    sizes = {"vertex": adjacency.shape[0], "part": num_parts}
    if feature is not None:
        sizes["feature"] = feature.shape[1]
    if num_classes is None:
        num_classes = int(label.max(initial=-1)) + 1 if label is not None else 0
    facts = {"symmetric": symmetric, "weighted": weighted, "num_classes": num_classes, "quality": {}}
    with ArtifactWriter.begin(dataset.path, "shards", parameters, inputs) as writer:
        for rank in range(num_parts):
            with writer.task(f"row/{rank:05d}") as output:
                _write_shard(output, adjacency, part, num_parts, rank, symmetric, weighted, vertices)
        return RowShards(writer.commit([f"row/{rank:05d}" for rank in range(num_parts)], sizes, facts))


def _stored(dataset: Dataset, kind: str) -> str | None:
    """Key of the only artifact of a kind."""
    keys = [info.key for info in dataset.artifacts(kind)]
    return keys[0] if len(keys) == 1 else None


def halo_of(adjacency: Any, part: np.ndarray, rank: int) -> np.ndarray:
    """Vertices of other ranks that the rows of ``rank`` refer to, sorted by owner, then by id."""
    columns = np.unique(np.asarray(adjacency[np.flatnonzero(part == rank)].indices))
    halo = columns[part[columns] != rank]
    return np.asarray(halo[np.lexsort((halo, part[halo]))])


def volume(adjacency: Any, part: np.ndarray, num_parts: int) -> int:
    """Number of rows that all ranks together send for one product with the matrix."""
    return sum(len(halo_of(adjacency, part, rank)) for rank in range(num_parts))


def _fingerprint(*arrays: np.ndarray) -> str:
    state = hashlib.sha256()
    for array in arrays:
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()[:16]


def _write_shard(
    output: TaskOutput,
    adjacency: Any,
    part: np.ndarray,
    num_parts: int,
    rank: int,
    symmetric: bool,
    weighted: bool,
    vertices: dict[str, np.ndarray],
) -> None:
    root, prefix = output.writer.path, f"row/{rank:05d}"
    own = np.flatnonzero(part == rank)
    output.add(write_array(root, f"{prefix}/vertex", own.astype(np.int64), ("row",)))
    for name, array in vertices.items():
        dims = ("row", "feature") if array.ndim == 2 else ("row",)
        output.add(write_array(root, f"{prefix}/{name}", array[own], dims))
    _write_matrix(output, f"{prefix}/", adjacency, part, num_parts, rank, weighted)
    if not symmetric:
        _write_matrix(output, f"{prefix}/transpose/", adjacency.T.tocsr(), part, num_parts, rank, weighted)


def _write_matrix(
    output: TaskOutput, prefix: str, adjacency: Any, part: np.ndarray, num_parts: int, rank: int, weighted: bool
) -> None:
    root = output.writer.path
    own, halo = np.flatnonzero(part == rank), halo_of(adjacency, part, rank)
    for name, columns in (("own", own), ("halo", halo)):
        block = adjacency[own][:, columns].tocsr()
        block.sort_indices()
        output.add(write_array(root, f"{prefix}{name}/indptr", block.indptr.astype(np.int64), ("row+1",)))
        indices = cast_ids(block.indices.astype(np.int64), len(columns))
        output.add(write_array(root, f"{prefix}{name}/indices", indices, ("nonzero",)))
        if weighted:
            output.add(write_array(root, f"{prefix}{name}/data", block.data.astype(np.float64), ("nonzero",)))
    sent = [_rows_for(adjacency, part, rank, receiver) for receiver in range(num_parts)]
    arrays = {
        "halo_vertex": (halo.astype(np.int64), "halo"),
        "halo_offset": (_offsets(np.bincount(part[halo], minlength=num_parts)), "part+1"),
        "send_row": (cast_ids(np.concatenate(sent).astype(np.int64), len(own)), "send"),
        "send_offset": (_offsets([len(rows) for rows in sent]), "part+1"),
    }
    for name, (array, dim) in arrays.items():
        output.add(write_array(root, f"{prefix}{name}", array, (dim,)))


def _rows_for(adjacency: Any, part: np.ndarray, rank: int, receiver: int) -> np.ndarray:
    """Local ids of the rows of ``rank`` that ``receiver`` needs."""
    if rank == receiver:
        return np.empty(0, np.int64)
    wanted = halo_of(adjacency, part, receiver)
    return np.asarray(np.searchsorted(np.flatnonzero(part == rank), wanted[part[wanted] == rank]))


def _offsets(counts: Any) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64))])
