"""Invariants of row shards of a graph with types: together they are the relations, and halos are what others send."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.typed.typed_graph import KeptEdges, Relation, TypedGraph, VertexType, relation_folder
from gnnloom.storage.checks.csr_invariants import check_csr
from gnnloom.storage.checks.shard_invariants import check_ascending, fingerprint_range
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.fingerprint import fingerprint_ids
from gnnloom.storage.shards.typed_row_shards import (
    BLOCKS,
    EDGE,
    OWNER,
    REPLICATED,
    ShardedRelation,
    TypedRowShard,
    TypedRowShards,
    replicated_folder,
)
from gnnloom.storage.wording import counted

_MASK: Final = (1 << 64) - 1
#: Entries per step of a fingerprint: 8 MiB of ids.
_CHUNK: Final = 1 << 20


def check_typed_row_shards(artifact: Artifact, graph: TypedGraph | None) -> None:
    """Check row shards: every vertex is on one rank, halos match the send lists, and the entries are the graph's edges.

    Args:
        graph: the graph; None if it is gone.

    Raises:
        CorruptError: an invariant is broken.
    """
    shards = TypedRowShards(artifact)
    owned = num_owned = sent = awaited = 0
    entries = {each.name: [0, 0] for each in shards.relations}
    for rank in range(shards.num_parts):
        shard = shards.shard(rank)
        vertex = shard.vertex()
        check_ascending(f"{artifact.path}/{shard.prefix}/vertex", vertex, shards.num_vertices)
        owned, num_owned = owned + int(fingerprint_ids(vertex, 0)), num_owned + len(vertex)
        of_rank = _check_exchange(shard, vertex)
        sent, awaited = sent + of_rank[0], awaited + of_rank[1]
        for name in shards.replicated:
            _check_replicated(shard, name, vertex)
        for relation in shards.relations:
            nnz, found = _check_relation(shard, relation, vertex)
            entries[relation.name][0] += nnz
            entries[relation.name][1] += found
    if num_owned != shards.num_vertices or (owned - fingerprint_range(shards.num_vertices)) & _MASK:
        raise CorruptError(
            f"{artifact.path}: {counted(num_owned, 'row')} on all ranks are not the {shards.num_vertices} vertices"
        )
    if (sent - awaited) & _MASK:
        raise CorruptError(f"{artifact.path}: send_row: ranks do not send the rows that others wait for")
    for relation in shards.relations:
        nnz, found = entries[relation.name]
        where = f"{artifact.path}: relation {relation.name}"
        if nnz != relation.nnz:
            raise CorruptError(f"{where}: {nnz:,} entries on all ranks, the manifest says {relation.nnz:,}")
        if graph is None:
            continue
        stored = graph.relation(relation.of)
        if nnz != stored.nnz or (found - fingerprint_relation(stored, relation, shards.num_vertices)) & _MASK:
            raise CorruptError(f"{where}: the entries on all ranks are not the edges of the graph")


def _check_exchange(shard: TypedRowShard, vertex: NDArray[np.int64]) -> tuple[int, int]:
    """Fingerprints of the rows that a rank sends, and of the rows that it waits for."""
    shards, rank = shard.shards, shard.rank
    halo, halo_offset = shard.halo_vertex(), shard.halo_offset()
    send_row, send_offset = shard.send_row().astype(np.int64), shard.send_offset()
    where, sent, awaited = f"{shards.artifact.path}/{shard.prefix}", 0, 0
    # The salt names the pair of ranks, so that rows sent to the wrong rank do not cancel out.
    for other in range(shards.num_parts):
        needed = halo[halo_offset[other] : halo_offset[other + 1]]
        check_ascending(f"{where}/halo_vertex of rank {other}", needed, shards.num_vertices)
        given = vertex[send_row[send_offset[other] : send_offset[other + 1]]]
        check_ascending(f"{where}/send_row to rank {other}", given, shards.num_vertices)
        awaited += int(fingerprint_ids(needed, other * shards.num_parts + rank))
        sent += int(fingerprint_ids(given, rank * shards.num_parts + other))
    return sent, awaited


def _check_relation(shard: TypedRowShard, relation: ShardedRelation, vertex: NDArray[np.int64]) -> tuple[int, int]:
    """Entries of a relation on one rank, and the fingerprint of their vertices and of the numbers of their edges."""
    artifact, shards = shard.shards.artifact, shard.shards
    types = [each.name for each in shards.types]
    first, last = shard.type_offset[types.index(relation.target) :][:2].tolist()
    source = shards.types[types.index(relation.source)]
    nnz = total = 0
    of_blocks = dict(zip(BLOCKS, (vertex, shard.halo_vertex()), strict=True))
    of_blocks[REPLICATED] = np.arange(source.first, source.first + source.count)
    for block in relation.blocks:
        columns = of_blocks[block]
        path = f"{shard.prefix}/{relation_folder(relation.name)}{block}"
        found = check_block(artifact, path, relation, source, (vertex[first:last], columns), shards.num_vertices)
        nnz, total = nnz + found[0], total + found[1]
    return nnz, total


def check_block(
    artifact: Artifact,
    path: str,
    relation: ShardedRelation,
    source: VertexType,
    ids: tuple[NDArray[np.int64], NDArray[np.int64]],
    num_vertices: int,
    *,
    transposed: bool = False,
) -> tuple[int, int]:
    """Check a block of a relation; returns its entries, and the fingerprint of their vertices and edges.

    Args:
        source: type of the sources.
        ids: (num_rows,) and (num_columns,) global ids of the rows and the columns.
        transposed: the rows are the sources of the edges.

    Raises:
        CorruptError: it is not a CSR matrix of this size between the types of the relation, with all columns of edges.
    """
    rows, columns = ids
    indptr, found = check_csr(artifact, path, 0, len(columns), "", repeats=True)
    if len(indptr) - 1 != len(rows):
        raise CorruptError(f"{artifact.path}/{path}: {counted(len(indptr) - 1, 'row')}, expected {len(rows)}")
    total, indices = 0, artifact.array(f"{path}/indices")
    for start in range(0, found.nnz, _CHUNK):
        stop = min(start + _CHUNK, found.nnz)
        row = rows[np.searchsorted(indptr, np.arange(start, stop), "right") - 1]
        column = columns[indices.read(start, stop)]
        target, given = (column, row) if transposed else (row, column)
        if ((given < source.first) | (given >= source.first + source.count)).any():
            raise CorruptError(f"{artifact.path}/{path}: the source of an entry is not of type {relation.source}")
        total += int(fingerprint_ids(target * num_vertices + given, 0))
        if EDGE in relation.columns:
            total += int(fingerprint_ids(artifact.array(f"{path}/{EDGE}").read(start, stop), 1))
    for name in relation.columns:
        if len(artifact.array(f"{path}/{name}")) != found.nnz:
            raise CorruptError(f"{artifact.path}/{path}/{name}: not a value for each of {found.nnz:,} entries")
    return found.nnz, total


def _check_replicated(shard: TypedRowShard, type_name: str, vertex: NDArray[np.int64]) -> None:
    """Check that a rank owns its vertices of a replicated type, has the same data, and waits for no row."""
    shards, each = shard.shards, shard.shards.type(type_name)
    where = f"{shards.artifact.path}/{replicated_folder(type_name)}"
    own = vertex[(vertex >= each.first) & (vertex < each.first + each.count)] - each.first
    if not np.array_equal(np.flatnonzero(shards.owner(type_name) == shard.rank), own):
        raise CorruptError(f"{where}{OWNER}: rank {shard.rank} does not have the vertices that it owns")
    halo = shard.halo_vertex()
    if ((halo >= each.first) & (halo < each.first + each.count)).any():
        raise CorruptError(f"{shards.artifact.path}/{shard.prefix}/halo_vertex: has vertices of replicated {type_name}")
    for name in shards.replicated_names(type_name):
        held, mine = shards.replicated_array(type_name, name), shard.vertex_array(type_name, name)
        step = held.chunk_rows
        for start in range(0, each.count, step):
            first, last = np.searchsorted(own, [start, start + step]).tolist()
            if first < last:
                rows = held.read(start, min(start + step, each.count))[own[first:last] - start]
                if not np.array_equal(rows, mine.read(first, last), equal_nan=rows.dtype.kind == "f"):
                    raise CorruptError(f"{where}{name}: differs from the rows of rank {shard.rank}")


def fingerprint_relation(relation: Relation, sharded: ShardedRelation, num_vertices: int) -> int:
    """The same fingerprint of all entries of a relation, or of its reverse, as the graph has them."""
    total = 0
    for number, (first, block_nnz) in enumerate(zip(relation.block_rows, relation.block_nnz, strict=False)):
        pointers, columns, before = relation.pointers(number), relation.columns(number), relation.first_edge(number)
        for start in range(0, block_nnz, _CHUNK):
            stop = min(start + _CHUNK, block_nnz)
            row = relation.target.first + first + np.searchsorted(pointers, np.arange(start, stop), "right") - 1
            column = relation.source.first + columns.read(start, stop).astype(np.int64)
            one, other = (row, column) if sharded.name == relation.name else (column, row)
            total += int(fingerprint_ids(one * num_vertices + other, 0))
            if EDGE in sharded.columns:
                edge = np.arange(before + start, before + stop, dtype=np.int64)
                if isinstance(relation, KeptEdges):
                    edge = relation.edge_positions(before + start, before + stop)
                total += int(fingerprint_ids(edge, 1))
    return total
