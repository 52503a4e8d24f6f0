"""Invariants within an artifact and between artifacts, in addition to the digests.

Digests show that the stored bytes are the bytes that were written. These checks show that the bytes are a graph, a
partition of it, and shards of that partition. They read everything once, in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.typed.reverses import reverses_of
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.typed.typed_names import check_type_name
from gnnloom.storage.artifacts.typed.union import is_union
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.checks.csr_invariants import MatrixPrint
from gnnloom.storage.checks.graph_invariants import (
    check_names,
    check_reverses,
    check_typed_graph,
    check_union,
    scan_matrix,
)
from gnnloom.storage.checks.link_invariants import check_links
from gnnloom.storage.checks.propagated_invariants import check_propagated
from gnnloom.storage.checks.sample_invariants import check_samples
from gnnloom.storage.checks.shard_invariants import check_grid_shards, check_row_shards
from gnnloom.storage.checks.typed_grid_invariants import check_typed_grid_shards
from gnnloom.storage.checks.typed_shard_invariants import check_typed_row_shards
from gnnloom.storage.disk.files import parsing
from gnnloom.storage.errors import CorruptError, GnnloomError
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.wording import counted


def check_artifact(dataset: Dataset, artifact: Artifact) -> None:
    """Check all invariants of an artifact, and those between it and its inputs if these still exist.

    Raises:
        CorruptError: an invariant is broken, or the manifest lacks entries of this kind of artifact.
    """
    with parsing(artifact.path / MANIFEST, f"the manifest of a {artifact.kind}"):
        _CHECKS[artifact.kind](dataset, artifact)


def _input_graph(dataset: Dataset, artifact: Artifact) -> Graph | TypedGraph | None:
    """The graph that an artifact was made from; None if it is gone, or damaged, which its own check reports."""
    try:
        found = Artifact(dataset.path / "graph" / Path(str(artifact.inputs["graph"])).name)
        return TypedGraph(found) if found.version == TYPED_VERSION else Graph(found)
    except (KeyError, GnnloomError):
        return None


def _check_graph(dataset: Dataset, artifact: Artifact) -> None:
    del dataset
    if artifact.version == TYPED_VERSION:
        check_typed_graph(TypedGraph(artifact))
        return
    graph = Graph(artifact)
    found = scan_matrix(graph, "time" if graph.has_times else "data")
    if graph.has_names:
        check_names(artifact, "")
    # Equal up to a probability of 2^-64, without holding the matrix or its transpose in memory.
    if graph.symmetric and found.forward != found.backward:
        raise CorruptError(f"{artifact.path}: recorded as symmetric, but differs from its transpose")


def _check_transpose(dataset: Dataset, artifact: Artifact) -> None:
    if artifact.version == TYPED_VERSION:
        check_reverses(reverses_of(artifact))
        return
    if is_union(artifact):
        check_union(artifact)
        return
    found = scan_matrix(Graph(artifact))
    origin = _scan_origin(dataset, artifact)
    if artifact.parameters:
        # It has the edges of the graph as well, once where an edge has its reverse.
        if found.forward != found.backward or (origin is not None and not origin.nnz <= found.nnz <= 2 * origin.nnz):
            raise CorruptError(
                f"{artifact.path}: is not graph/{artifact.inputs['graph']} with the reverses of its edges"
            )
        return
    # The graph's backward fingerprint is its transpose's fingerprint; comparing the two needs no sort.
    if origin is not None and origin.backward != found.forward:
        raise CorruptError(f"{artifact.path}: is not the transpose of graph/{artifact.inputs['graph']}")


def _scan_origin(dataset: Dataset, artifact: Artifact) -> MatrixPrint | None:
    """Fingerprints of the graph that an artifact was made from; None if it is gone or damaged."""
    graph = _input_graph(dataset, artifact)
    try:
        return scan_matrix(graph) if isinstance(graph, Graph) else None
    except GnnloomError:
        return None


def _check_vertices(dataset: Dataset, artifact: Artifact) -> None:
    if of_type := artifact.parameters.get("type"):
        _check_type(dataset, artifact, check_type_name(str(of_type), "type"))
    for name in Vertices(artifact).names:
        stored = np.dtype(artifact.record(name).dtype)
        _check_range(artifact, name, *VERTEX_ARRAYS[name].limits(artifact.facts, stored))


def _check_type(dataset: Dataset, artifact: Artifact, name: str) -> None:
    """Check that vertex data of a type have a row for each of its vertices, if their graph is there and whole.

    Raises:
        CorruptError: they have another number of rows.
    """
    try:
        graph = TypedGraph(Artifact(dataset.path / "graph" / Path(str(artifact.inputs["graph"])).name))
        count = graph.type(name).count
    except (KeyError, GnnloomError):
        return
    if artifact.sizes["vertex"] != count:
        raise CorruptError(
            f"{artifact.path}: rows of {counted(artifact.sizes['vertex'], 'vertex')}, type {name} has {count:,}"
        )


def _check_partition(dataset: Dataset, artifact: Artifact) -> None:
    partition = Partition(artifact)
    _check_range(artifact, "part", 0, partition.num_parts - 1)
    graph = _input_graph(dataset, artifact)
    if graph is not None and graph.num_vertices != partition.num_vertices:
        raise CorruptError(
            f"{artifact.path}: {counted(partition.num_vertices, 'vertex')}, graph/{graph.artifact.key} has another"
            " number"
        )


def _check_range(artifact: Artifact, name: str, lowest: float, highest: float) -> None:
    """Check that all values are in a range; NaN, which stands for unknown, passes."""
    reader = artifact.array(name)
    for start in range(0, len(reader), reader.chunk_rows):
        values = reader.read(start, min(start + reader.chunk_rows, len(reader)))
        # Reshaped to one row per vertex, because some arrays have two dimensions.
        wrong = np.flatnonzero(((values < lowest) | (values > highest)).reshape(len(values), -1).any(axis=1))
        if len(wrong):
            raise CorruptError(
                f"{artifact.path}/{name}: vertex {start + wrong[0]} has {values[wrong[0]]},"
                f" expected {lowest}..{highest}"
            )


def _check_shards(dataset: Dataset, artifact: Artifact) -> None:
    graph = _input_graph(dataset, artifact)
    if artifact.version == TYPED_VERSION:
        check_typed = check_typed_row_shards if artifact.parameters["layout"] == "row" else check_typed_grid_shards
        check_typed(artifact, graph if isinstance(graph, TypedGraph) else None)
        return
    check = check_row_shards if artifact.parameters["layout"] == "row" else check_grid_shards
    check(artifact, None if graph is None else graph.nnz)


def _check_samples(dataset: Dataset, artifact: Artifact) -> None:
    del dataset
    check_samples(artifact)


def _check_propagated(dataset: Dataset, artifact: Artifact) -> None:
    del dataset
    check_propagated(artifact)


_CHECKS: Mapping[str, Callable[[Dataset, Artifact], None]] = {
    "graph": _check_graph,
    "transpose": _check_transpose,
    "vertices": _check_vertices,
    "partition": _check_partition,
    "shards": _check_shards,
    "samples": _check_samples,
    "links": check_links,
    "propagated": _check_propagated,
}
