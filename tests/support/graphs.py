"""Writes graph and vertices artifacts from SciPy and NumPy objects, without the pipeline."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from gnnloom.storage import CSR, Dataset, Graph, Vertices
from gnnloom.storage.artifacts.block_matrix import BlockWriter
from gnnloom.storage.format.arrays import ArrayRecord, write_array
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.csr import cast_ids


def write_block(root: Path, number: int, block: CSR, *, has_times: bool = False) -> list[ArrayRecord]:
    """Write a row block that is in memory.

    Args:
        root: folder of the graph artifact.
        number: number of the block.
        block: its rows.
        has_times: its values are times, rather than weights.

    Returns:
        The records of the block's arrays.
    """
    dtype = None if block.data is None else block.data.dtype
    writer = BlockWriter(root, number, block.num_columns, dtype, has_times=has_times)
    writer.append(cast_ids(block.indices, block.num_columns), block.data)
    return writer.close(block.row_offset, block.indptr)


def random_adjacency(num_vertices: int, nnz: int, seed: int, *, symmetric: bool, loops: bool = True) -> Any:
    """A random pattern with ones, as csr_array; A[i, j] is the edge j -> i."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, max(1, num_vertices), (2, nnz if num_vertices else 0))
    matrix = scipy.sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(num_vertices, num_vertices)).tocsr()
    if symmetric:
        matrix = matrix + matrix.T
    if loops:
        matrix = matrix + scipy.sparse.eye_array(num_vertices)
    matrix = matrix.tocsr()
    matrix.data[:] = 1
    matrix.sort_indices()
    return matrix


def store_graph(
    dataset: Dataset,
    adjacency: Any,
    *,
    symmetric: bool,
    num_blocks: int = 3,
    weighted: bool = False,
    has_times: bool = False,
) -> Graph:
    """Write a graph artifact (and, if directed, its transpose) with the given number of row blocks.

    Args:
        weighted, has_times: the values of the matrix are weights, or times; of neither, it is a pattern.
    """
    inputs = {"source": _fingerprint(adjacency)} | ({"values": "times"} if has_times else {})
    values = {"weighted": weighted, "has_times": has_times}
    graph = _store(dataset, "graph", adjacency, inputs, symmetric=symmetric, num_blocks=num_blocks, **values)
    if not symmetric:
        inputs = {"graph": graph.artifact.key}
        _store(
            dataset,
            "transpose",
            adjacency.T.tocsr(),
            inputs,
            symmetric=symmetric,
            num_blocks=num_blocks,
            weighted=weighted,
        )
    return graph


def _fingerprint(adjacency: Any) -> str:
    return f"{adjacency.shape}-{hash(adjacency.indices.tobytes())}-{hash(adjacency.indptr.tobytes())}"


def _store(
    dataset: Dataset,
    kind: str,
    adjacency: Any,
    inputs: dict[str, str],
    *,
    symmetric: bool,
    num_blocks: int,
    weighted: bool,
    has_times: bool = False,
) -> Graph:
    n = adjacency.shape[0]
    adjacency.sort_indices()
    rows = [block * n // num_blocks for block in range(num_blocks + 1)]
    nnz = []
    with ArtifactWriter.begin(dataset.path, kind, {}, inputs) as writer:
        for number, (start, stop) in enumerate(itertools.pairwise(rows)):
            rows_of_block = adjacency[start:stop]
            nnz.append(int(rows_of_block.nnz))
            with writer.task(f"block/{number:05d}") as output:
                values = rows_of_block.data.astype(np.float64 if has_times else np.float32)
                data = values if weighted or has_times else None
                indptr, indices = rows_of_block.indptr.astype(np.int64), rows_of_block.indices.astype(np.int64)
                block = CSR(start, indptr, indices, data, n)
                for record in write_block(writer.path, number, block, has_times=has_times):
                    output.add(record)
        with writer.task("degree/0") as output:
            output.add(write_array(writer.path, "degree", np.diff(adjacency.indptr).astype(np.int64), ("vertex",)))
        facts = {
            "nnz": int(adjacency.nnz),
            "symmetric": symmetric,
            "weighted": weighted,
            **({"has_times": True} if has_times else {}),
            "block_rows": rows,
            "block_nnz": nnz,
        }
        tasks = [f"block/{number:05d}" for number in range(num_blocks)]
        return Graph(writer.commit([*tasks, "degree/0"], {"vertex": n}, facts))


def store_vertices(
    dataset: Dataset, feature: np.ndarray | None, label: np.ndarray | None, split: np.ndarray | None
) -> Vertices:
    """Write a vertices artifact; it belongs to the graph that the dataset has, if there is one."""
    given = {"feature": feature, "label": label, "split": split}
    dims = {"feature": ("vertex", "feature"), "label": ("vertex",), "split": ("vertex",)}
    dtypes = {"feature": np.float32, "label": np.int32, "split": np.uint8}
    arrays = {name: array.astype(dtypes[name]) for name, array in given.items() if array is not None}
    identity = {name: str(hash(array.tobytes())) for name, array in arrays.items()}
    sizes = {"vertex": len(next(iter(arrays.values())))}
    if feature is not None:
        sizes["feature"] = feature.shape[1]
    inputs = {info.kind: info.key for info in dataset.artifacts("graph")}
    with ArtifactWriter.begin(dataset.path, "vertices", {"source": identity}, inputs) as writer:
        with writer.task("all/0") as output:
            for name, array in arrays.items():
                output.add(write_array(writer.path, name, array, dims[name]))
        num_classes = int(label.max()) + 1 if label is not None else 0
        return Vertices(writer.commit(["all/0"], sizes, {"num_classes": num_classes}))
