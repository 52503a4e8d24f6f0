"""Invariants of grid shards of a graph with types: in each variant, the blocks of a relation are its edges."""

from __future__ import annotations

from typing import Final

from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.checks.shard_invariants import check_ascending, fingerprint_range
from gnnloom.storage.checks.typed_shard_invariants import check_block, fingerprint_relation
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.fingerprint import fingerprint_ids
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.shards.grid_variants import stored_variants
from gnnloom.storage.shards.typed_grid_shards import POSITION, TypedGridShards, relation_cell_path, type_order_path
from gnnloom.storage.shards.typed_row_shards import ShardedRelation
from gnnloom.storage.wording import counted

_MASK: Final = (1 << 64) - 1


def check_typed_grid_shards(artifact: Artifact, graph: TypedGraph | None) -> None:
    """Check grid shards: every block is a CSR matrix of the right size, and the blocks of a relation are its edges.

    Args:
        graph: the graph; None if it is gone.

    Raises:
        CorruptError: an invariant is broken.
    """
    shards = TypedGridShards(artifact)
    for order in ("rows", "columns") if shards.permutation == "double" else ("rows",):
        _check_order(shards, order)
    for variant in sorted(set(stored_variants(symmetric=False, double=shards.permutation == "double").values())):
        for relation in shards.relations:
            nnz = found = 0
            for row in range(shards.grid[0]):
                for column in range(shards.grid[1]):
                    if shards.has_entries(relation.name, variant, row, column):
                        of_block = _check_block(shards, relation, variant, (row, column))
                        nnz, found = nnz + of_block[0], found + of_block[1]
            where = f"{artifact.path}/grid/{variant}: relation {relation.name}"
            if nnz != relation.nnz:
                raise CorruptError(f"{where}: {counted(nnz, 'entry')}, the manifest says {relation.nnz:,}")
            if graph is None:
                continue
            stored = graph.relation(relation.name)
            if nnz != stored.nnz or (found - fingerprint_relation(stored, relation, shards.num_vertices)) & _MASK:
                raise CorruptError(f"{where}: the entries are not the edges of the graph")


def _check_order(shards: TypedGridShards, order: str) -> None:
    """Check that the vertices of each type with data are at their positions, each once, and have all arrays."""
    for each in shards.types:
        total = count = 0
        for row in range(shards.grid[0]):
            path = type_order_path(order, row, each.name)
            if f"{path}/{POSITION}" not in shards.artifact:
                continue
            first, last = split_range(shards.num_vertices, shards.grid[0], row)
            position = shards.artifact.array(f"{path}/{POSITION}", bounds=(first, last)).read()
            check_ascending(f"{shards.artifact.path}/{path}/{POSITION}", position, shards.num_vertices)
            vertex = shards.vertex_ids(order, (first, last))[position - first]
            total, count = total + int(fingerprint_ids(vertex, 0)), count + len(vertex)
            for name in (name for name in shards.artifact.records if name.startswith(f"{path}/")):
                if len(shards.artifact.array(name)) != len(position):
                    raise CorruptError(
                        f"{shards.artifact.path}/{name}: not a row for each of {len(position):,} vertices"
                    )
        wanted = fingerprint_range(each.first + each.count) - fingerprint_range(each.first)
        if count and (count != each.count or (total - wanted) & _MASK):
            raise CorruptError(f"{shards.artifact.path}/order/{order}: not all vertices of type {each.name}, each once")


def _check_block(
    shards: TypedGridShards, relation: ShardedRelation, variant: str, cell: tuple[int, int]
) -> tuple[int, int]:
    """Entries of a block, and the fingerprint of their vertices and of the numbers of their edges."""
    path = relation_cell_path(variant, *cell, relation.name)
    orders = ("rows", "columns") if variant in {"even", "odd_transposed"} else ("columns", "rows")
    spans = [split_range(shards.num_vertices, shards.grid[axis], cell[axis]) for axis in (0, 1)]
    rows, columns = (shards.vertex_ids(order, span) for order, span in zip(orders, spans, strict=True))
    source = next(each for each in shards.types if each.name == relation.source)
    is_transposed = variant.endswith("transposed")
    whole = shards.num_vertices
    return check_block(shards.artifact, path, relation, source, (rows, columns), whole, transposed=is_transposed)
