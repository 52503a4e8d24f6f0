"""Invariants of shards: together they are the graph, and what one rank sends is what another waits for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.checks.csr_invariants import check_csr
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.fingerprint import fingerprint_ids
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.shards.grid_shards import GridShards, cell_path
from gnnloom.storage.shards.grid_variants import stored_variants
from gnnloom.storage.shards.row_shards import RowShards
from gnnloom.storage.wording import counted

#: Python integers do not wrap; the mask makes their sums equal sums of uint64.
_MASK = (1 << 64) - 1
#: Ids that are fingerprinted at a time, 8 MiB: memory must not grow with the number of vertices.
_CHUNK = 1 << 20


@dataclass
class _Totals:
    """Sums over all ranks for one matrix: entries, and fingerprints of the rows sent and the rows awaited."""

    nnz: int = 0
    sent: int = 0
    awaited: int = 0


def check_row_shards(artifact: Artifact, nnz: int | None) -> None:
    """Check row shards: every vertex is on one rank, the entries add up, and halos match the send lists.

    Args:
        nnz: number of nonzeros of the graph; None if the graph is gone.

    Raises:
        CorruptError: an invariant is broken.
    """
    shards = RowShards(artifact)
    prefixes = [""] if shards.symmetric else ["", "transpose/"]
    totals = {prefix: _Totals() for prefix in prefixes}
    # One shard in memory at a time: sums of fingerprints show that the ranks' vertices are exactly 0..n-1, without a
    # table of all vertices.
    owned, num_owned = 0, 0
    for rank in range(shards.num_parts):
        vertex = shards.shard(rank).vertex()
        # The fingerprints below show that no vertex is there twice, whatever the order.
        check_ascending(f"{artifact.path}/row/{rank:05d}/vertex", _by_id(shards, vertex), shards.num_vertices)
        owned = (owned + int(fingerprint_ids(vertex, 0))) & _MASK
        num_owned += len(vertex)
        for prefix in prefixes:
            _check_matrix(shards, rank, prefix, vertex, totals[prefix])
    if num_owned != shards.num_vertices or owned != fingerprint_range(shards.num_vertices):
        raise CorruptError(
            f"{artifact.path}: {counted(num_owned, 'row')} on all ranks are not the {shards.num_vertices} vertices"
        )
    for prefix, total in totals.items():
        if total.sent != total.awaited:
            raise CorruptError(f"{artifact.path}: {prefix}send_row: ranks do not send the rows that others wait for")
        if nnz is not None and total.nnz != nnz:
            raise CorruptError(
                f"{artifact.path}: {prefix}own and halo have {counted(total.nnz, 'entry')}, the graph has {nnz}"
            )


def _by_id(shards: RowShards, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
    return vertex if shards.reorder == "none" else np.sort(vertex)


def _check_matrix(shards: RowShards, rank: int, prefix: str, vertex: NDArray[np.int64], total: _Totals) -> None:
    artifact, shard = shards.artifact, shards.shard(rank, on_disk=True)
    where = f"{artifact.path}/{shard.prefix}/{prefix}"
    # Reading it checks the offsets, and that both blocks have the rank's rows.
    matrix = shard.operand(prefix != "")
    halo, send_row = matrix.halo_vertex, matrix.send_row.astype(np.int64)
    halo_offset, send_offset = matrix.halo_offset, matrix.send_offset
    # The salt names the pair of ranks, so that rows sent to the wrong rank do not cancel out. Both sides name the
    # sender first. Summed over all ranks, the two are equal only if every list of rows sent is a list of rows awaited.
    for other in range(shards.num_parts):
        awaited = halo[halo_offset[other] : halo_offset[other + 1]]
        check_ascending(f"{where}halo_vertex of rank {other}", awaited, shards.num_vertices)
        sent = vertex[send_row[send_offset[other] : send_offset[other + 1]]]
        check_ascending(f"{where}send_row to rank {other}", sent, shards.num_vertices)
        total.awaited += int(fingerprint_ids(awaited, other * shards.num_parts + rank))
        total.sent += int(fingerprint_ids(sent, rank * shards.num_parts + other))
    total.awaited &= _MASK
    total.sent &= _MASK
    for name, width in (("own", len(vertex)), ("halo", len(halo))):
        total.nnz += check_csr(artifact, f"{shard.prefix}/{prefix}{name}", 0, width)[1].nnz


def check_grid_shards(artifact: Artifact, nnz: int | None) -> None:
    """Check grid shards: every cell is a CSR matrix of the right size, and each stored variant has all entries.

    Args:
        nnz: number of nonzeros of the graph; None if the graph is gone.

    Raises:
        CorruptError: an invariant is broken.
    """
    shards = GridShards(artifact)
    variants = stored_variants(symmetric=shards.symmetric, double=shards.permutation == "double")
    for variant in sorted(set(variants.values())):
        total = 0
        for row in range(shards.grid[0]):
            for column in range(shards.grid[1]):
                total += _check_cell(shards, variant, row, column)
        if nnz is not None and total != nnz:
            raise CorruptError(f"{artifact.path}/grid/{variant}: {counted(total, 'entry')}, the graph has {nnz}")


def _check_cell(shards: GridShards, variant: str, row: int, column: int) -> int:
    path = cell_path(variant, row, column)
    first, last = split_range(shards.num_vertices, shards.grid[0], row)
    left, right = split_range(shards.num_vertices, shards.grid[1], column)
    indptr, found = check_csr(shards.artifact, path, 0, right - left)
    if len(indptr) - 1 != last - first:
        raise CorruptError(f"{shards.artifact.path}/{path}: {counted(len(indptr) - 1, 'row')}, expected {last - first}")
    return found.nnz


def check_ascending(where: str, ids: NDArray[np.int64], num_vertices: int) -> None:
    """Raise CorruptError unless ids ascend and lie in 0..num_vertices-1."""
    # The ends are enough: if the ids ascend, which is checked next, all others lie between them.
    in_range = len(ids) == 0 or (ids[0] >= 0 and ids[-1] < num_vertices)
    if not in_range or (np.diff(ids) <= 0).any():
        raise CorruptError(f"{where}: expected ascending ids in 0..{num_vertices - 1}")


def fingerprint_range(size: int) -> int:
    """Fingerprint of 0..size-1."""
    total = 0
    for start in range(0, size, _CHUNK):
        total += int(fingerprint_ids(np.arange(start, min(start + _CHUNK, size), dtype=np.int64), 0))
    return total & _MASK
