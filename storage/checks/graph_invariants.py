"""Invariants of matrices in blocks, of the names of vertices, and of graphs with types."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.artifacts.typed.typed_graph import (
    EDGE_ARRAYS,
    KeptEdges,
    Relation,
    TypedGraph,
    positions,
    relation_folder,
    type_folder,
)
from gnnloom.storage.artifacts.typed.union import row_entries, union_of, union_rows
from gnnloom.storage.checks.csr_invariants import MatrixPrint, check_csr
from gnnloom.storage.errors import CorruptError, GnnloomError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.fingerprint import fingerprint_ids
from gnnloom.storage.wording import counted

#: Edges whose numbers are fingerprinted at a time: 8 MiB.
_CHUNK: Final = 1 << 20


def scan_matrix(matrix: BlockMatrix, values: str = "data") -> MatrixPrint:
    """Check all blocks of a matrix and its degrees; returns the fingerprints.

    Args:
        values: name of the array whose values count in the fingerprints, if there is one. Only graphs have times:
            their transposes, shards, and graphs without held-out edges do not.

    Raises:
        CorruptError: an invariant is broken.
    """
    artifact, rows = matrix.artifact, matrix.block_rows
    found = MatrixPrint()
    for number, (start, stop) in enumerate(itertools.pairwise(rows)):
        path = matrix.block_path(number)
        indptr, block = check_csr(artifact, path, start, matrix.num_columns, values, repeats=matrix.parallel > 0)
        if (len(indptr) - 1, block.nnz) != (stop - start, matrix.block_nnz[number]):
            raise CorruptError(
                f"{artifact.path}/{path}: {counted(len(indptr) - 1, 'row')} with {counted(block.nnz, 'nonzero')}, the"
                f" manifest says {stop - start} with {matrix.block_nnz[number]}"
            )
        differs = np.flatnonzero(matrix.degree(start, stop) != np.diff(indptr))
        if len(differs):
            raise CorruptError(
                f"{matrix.where}/degree: vertex {start + differs[0]} has another number of entries in its row"
            )
        found += block
    return found


def check_names(artifact: Artifact, prefix: str) -> None:
    """Check that every vertex has a name, and that the names fill their text.

    Args:
        prefix: beginning of the paths of the arrays.

    Raises:
        CorruptError: an invariant is broken.
    """
    path = f"{prefix}original_name_offset"
    offset, total = artifact.array(path), len(artifact.array(f"{prefix}original_name"))
    bounds = (int(offset.read(0, 1)[0]), int(offset.read(len(offset) - 1)[0]))
    if bounds != (0, total):
        raise CorruptError(f"{artifact.path}/{path}: from {bounds[0]} to {bounds[1]}, not 0..{total}")
    # Each step reads one offset more than a chunk, so that the difference across the chunk boundary is checked, too.
    for start in range(0, len(offset) - 1, offset.chunk_rows):
        wrong = np.flatnonzero(np.diff(offset.read(start, min(start + offset.chunk_rows + 1, len(offset)))) < 1)
        if len(wrong):
            raise CorruptError(f"{artifact.path}/{path}: vertex {start + wrong[0]} has no name")


def check_typed_graph(graph: TypedGraph) -> None:
    """Check the ids of all types, the matrices of all relations, and that there are no other arrays.

    Raises:
        CorruptError: an invariant is broken.
    """
    artifact = graph.artifact
    folders = [type_folder(each.name) for each in graph.types] + [
        relation_folder(each.name) for each in graph.relations
    ]
    for name in artifact.records:
        if not any(name.startswith(folder) for folder in folders):
            raise CorruptError(f"{artifact.path}/{name}: belongs to no type and no relation of the manifest")
    for each in graph.types if graph.origin is None else ():
        _check_ids(graph, each.name, each.count)
    for relation in graph.stored_relations:
        if (found := artifact.record(f"{relation.prefix}degree").shape[0]) != relation.num_rows:
            raise CorruptError(f"{relation.where}/degree: {counted(found, 'row')}, the type has {relation.num_rows}")
        has = [name for name in ("data", "time", "row") if f"{relation.block_path(0)}/{name}" in artifact]
        wanted = ["data"] if relation.weighted else ["time"] if relation.has_times else []
        if isinstance(relation, KeptEdges):
            # Columns next to the edges stay with the whole relation.
            wanted = [*([] if relation.edge_columns else wanted), *(["row"] if relation.nnz else [])]
            _check_kept(relation)
        elif relation.edge_columns:
            # The sort of no edges has found no numbers.
            wanted = ["row"] if relation.nnz else []
            _check_columns(relation)
        if relation.num_blocks and has != wanted:
            raise CorruptError(f"{relation.where}: has {has or 'no values'}, the manifest says {wanted or 'none'}")
        has_rows = relation.edge_columns and relation.whole is relation
        scan_matrix(relation, "row" if has_rows else "time" if relation.has_times else "data")


def check_reverses(reverses: Reverses) -> None:
    """Check that each reverse has the edges of its relation in the other direction, and the number of each edge once.

    Raises:
        CorruptError: an invariant is broken.
    """
    for each in reverses.relations:
        # Without values: a reverse has the numbers of the edges, and the relation has not.
        found, origin = scan_matrix(each, ""), scan_matrix(each.relation, "")
        if found.forward != origin.backward:
            raise CorruptError(f"{each.where}: is not relation {each.relation.name} in the other direction")
        numbers = wanted = 0
        for number in range(each.num_blocks):
            stored = each.positions(number)
            for chunk in () if stored is None else stored.chunks():
                numbers += int(fingerprint_ids(chunk, 0))
        for start in range(0, each.nnz, _CHUNK):
            stop, of = min(start + _CHUNK, each.nnz), each.relation
            edges = of.edge_positions(start, stop) if isinstance(of, KeptEdges) else np.arange(start, stop)
            wanted += int(fingerprint_ids(edges, 0))
        if (numbers - wanted) % (1 << 64):
            raise CorruptError(f"{each.where}: the numbers of its edges are not each edge once")


def check_union(artifact: Artifact) -> None:
    """Check a union of relations, and compare it with the relations, if these are there and whole.

    Raises:
        CorruptError: an invariant is broken.
    """
    union = Graph(artifact)
    found = scan_matrix(union)
    if union.symmetric and found.forward != found.backward:
        raise CorruptError(f"{artifact.path}: recorded as symmetric, but differs from its transpose")
    try:
        matrices, united = union_of(artifact).opened(), union_of(artifact).united()
    except (KeyError, GnnloomError):
        # The check of the graph reports its faults.
        return
    total = 0
    for start in range(0, union.num_vertices, _CHUNK):
        stop = min(start + _CHUNK, union.num_vertices)
        entries = artifact.array("entries").read(start, stop)
        total += int(entries.sum())
        if not np.array_equal(entries, row_entries(matrices, start, stop)):
            raise CorruptError(f"{artifact.path}/entries: is not the sum of the degrees of the relations")
    if total != union.entries:
        raise CorruptError(f"{artifact.path}/entries: {total:,} in all, the manifest says {union.entries:,}")
    for number, rows in enumerate(itertools.pairwise(union.block_rows)):
        pointers, columns = union.pointers(number), union.columns(number)
        for each in union_rows(united, rows, union.num_vertices):
            own = pointers[each.first - rows[0] : each.first - rows[0] + len(each.indptr)]
            same = np.array_equal(own - own[0], each.indptr)
            if not same or not np.array_equal(columns.read(int(own[0]), int(own[-1])), each.indices):
                where = f"{artifact.path}/{union.block_path(number)}"
                raise CorruptError(f"{where}: row {each.first} or a later row differs from the relations")


def _check_kept(kept: KeptEdges) -> None:
    """Check that each edge is the edge of the whole relation at its position, in the order of the whole relation.

    Raises:
        CorruptError: one is not.
    """
    whole, before = kept.whole, 0
    for number in range(kept.num_blocks):
        stored, last, nnz = positions(kept, number, whole.nnz), -1, kept.block_nnz[number]
        pointers, own_pointers = whole.pointers(number), kept.pointers(number)
        arrays = [(each.columns(number), each.weights(number), each.times(number)) for each in (whole, kept)]
        columns = arrays[0][0]
        for start in range(0, nnz, _CHUNK):
            if stored is None:
                break
            stop = min(start + _CHUNK, nnz)
            position = stored.read(start, stop) - before
            if position[0] <= last or position[-1] >= len(columns) or (np.diff(position) <= 0).any():
                raise CorruptError(f"{kept.where}: positions of block {number} are not in its order, or of another one")
            last = int(position[-1])
            is_same = np.searchsorted(pointers, position, "right") == np.searchsorted(
                own_pointers, np.arange(start, stop), "right"
            )
            for one, other in zip(*arrays, strict=True):
                if one is not None and other is not None:
                    values = one.read(int(position[0]), last + 1)[position - position[0]]
                    is_same &= values == other.read(start, stop)
            if not is_same.all():
                raise CorruptError(
                    f"{kept.where}: edges of block {number} are not at their positions in the whole graph"
                )
        before += whole.block_nnz[number]


def _check_columns(relation: Relation) -> None:
    """Check that each edge has a value in each column, and a row of the table, which no other edge has.

    Raises:
        CorruptError: an edge lacks a value or a row, or the manifest disagrees.
    """
    artifact = relation.artifact
    for name in EDGE_ARRAYS:
        path, names = f"{relation.prefix}{name}", relation.edge_columns.get(name)
        if (path in artifact) != (names is not None):
            raise CorruptError(f"{artifact.path}/{path}: the manifest says otherwise about the columns of edges")
        if names is not None:
            shape = artifact.record(path).shape
            wanted = (relation.nnz, len(names)) if name == "feature" else (relation.nnz,)
            if tuple(shape) != wanted:
                raise CorruptError(f"{artifact.path}/{path}: of shape {tuple(shape)}, expected {wanted}")
    for number in range(relation.num_blocks):
        rows = relation.rows(number)
        if len(distinct(rows)) < len(rows):
            raise CorruptError(f"{artifact.path}/{relation.block_path(number)}/row: two edges have one row")


def _check_ids(graph: TypedGraph, name: str, count: int) -> None:
    """Check that each vertex of a type has an id or a name of its own."""
    artifact, prefix = graph.artifact, type_folder(name)
    if graph.ids(name).has_names:
        stored = artifact.record(f"{prefix}original_name_offset").shape[0] - 1
        check_names(artifact, prefix)
    else:
        path = f"{prefix}original_id"
        ids = artifact.array(path)
        stored = len(ids)
        for start in range(0, stored, ids.chunk_rows):
            found = ids.read(start, min(start + ids.chunk_rows + 1, stored))
            wrong = np.flatnonzero(np.diff(found) < 1)
            if len(wrong) or found[0] < 0:
                at = start + (int(wrong[0]) if len(wrong) else 0)
                raise CorruptError(f"{artifact.path}/{path}: the id of vertex {at} is negative, or not below the next")
    if stored != count:
        raise CorruptError(f"{artifact.path}/{prefix}: ids of {counted(stored, 'vertex')}, the manifest says {count}")
