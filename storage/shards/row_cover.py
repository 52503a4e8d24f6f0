"""Covers of the blocks between two ranks, which say where a sum is sent in place of several rows.

A product with a matrix M needs, on rank p, the rows of rank q for the nonzeros of the block M[p, q]. Rank q may send
a row j of its own, which serves all nonzeros of column j, or the sum over the columns of a target row i of p, which
serves all nonzeros of row i. What serves all nonzeros is a vertex cover of the block; the least is never above the
smaller side, and so never above the rows that are sent otherwise (for training on many ranks: SuperGCN, arXiv
2411.16025). No shard holds the cover: it is computed when a rank reads its shard. Rank p has the block in the halo of
its rows of M, and q has the transposed block in the halo of its rows of the transpose of M. Both find the same cover
without a message, see :func:`~gnnloom.storage.matrix.cover.minimum_cover`.

The product with the transpose is covered likewise, with the two matrices exchanged. Its blocks are the transposed
blocks, whose rows and sums have swapped roles: if a row weighs as much as a sum, it sends as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.kernels import count_at_most
from gnnloom.storage.matrix.cover import minimum_cover
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.shards.row_shards import ShardMatrix, listed_by_rank


@dataclass(frozen=True)
class PartialSums:
    """The sums that a rank sends and receives for the products with one matrix.

    Attributes:
        matrix: (num_sent, num_own) the entries of other ranks' rows in this rank's columns; one row per sum that this
            rank sends, by receiver, then by the vertex of the target.
        sent_vertex: (num_sent,) int64 global ids of the targets.
        sent_offset: (num_parts + 1,) int64; receiver p gets the sums sent_offset[p] to sent_offset[p+1].
        target: (num_received,) int64 own local rows to which the received sums are added, by sender, then by vertex.
        target_offset: (num_parts + 1,) int64; sender p has the sums target_offset[p] to target_offset[p+1].
        is_fetched: (num_halo,) bool columns of the whole halo whose rows are still received.
        is_summed: (number of halo columns of the transpose,) bool columns there that are the targets of sums.
    """

    matrix: CSR
    sent_vertex: NDArray[np.int64]
    sent_offset: NDArray[np.int64]
    target: NDArray[np.int64]
    target_offset: NDArray[np.int64]
    is_fetched: NDArray[np.bool_]
    is_summed: NDArray[np.bool_]

    def exchanged(self, vertex: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Number of sums sent to and received from each rank, with a checksum of the vertices of their targets.

        Arguments and results as for :meth:`gnnloom.storage.shards.row_shards.ShardMatrix.exchanged`.
        """
        return (
            listed_by_rank(self.sent_vertex, self.sent_offset),
            listed_by_rank(vertex[self.target], self.target_offset),
        )


def covered(
    matrix: ShardMatrix[CSR], transpose: ShardMatrix[CSR], vertex: NDArray[np.int64], sum_weight: int
) -> tuple[ShardMatrix[CSR], PartialSums]:
    """Cover the blocks of a rank's matrix with rows and sums.

    Beside the results, it holds three numbers for each row that a rank sends without a cover, and what the cover of
    the largest block takes.

    Args:
        matrix: the rank's rows of the matrix.
        transpose: its rows of the transpose; the same object for a symmetric matrix.
        vertex: (num_own,) int64 global ids of the rank's vertices.
        sum_weight: bytes of a sum over the bytes of a row.

    Returns:
        The matrix with the rows that are still exchanged, and a halo of their columns; and the sums.
    """
    awaited, sent = _by_rank(matrix), _by_rank(transpose)
    is_fetched, target = _received(matrix, awaited, vertex, sum_weight)
    is_summed, is_sent = _sent(transpose, sent, sum_weight)
    fetched_offset = _offsets_within(is_fetched, matrix.halo_offset)
    # Own vertices of a range are sent in the order of their ids, in which the receiver has its halo.
    rows = [sent.row[span][is_sent[span]] for span in sent.spans()]
    row_offset = _offsets(rows)
    send_row = np.concatenate([each[np.argsort(vertex[each])] for each in rows]) if rows else sent.row[:0]
    covered_rows = replace(
        matrix,
        halo=_with_columns(matrix.halo, is_fetched),
        halo_vertex=matrix.halo_vertex[is_fetched],
        halo_offset=fetched_offset,
        send_row=send_row.astype(matrix.send_row.dtype),
        send_offset=row_offset,
    )
    return covered_rows, PartialSums(
        matrix=_sums(transpose, sent, is_summed, is_sent),
        sent_vertex=transpose.halo_vertex[is_summed],
        sent_offset=_offsets_within(is_summed, transpose.halo_offset),
        target=np.concatenate(target) if target else np.empty(0, np.int64),
        target_offset=_offsets(target),
        is_fetched=is_fetched,
        is_summed=is_summed,
    )


class _RankRows(NamedTuple):
    """The rows of a halo with entries in the columns of each rank, by rank, then by row.

    Attributes:
        offset: (num_parts + 1,) int64; the rows of rank p are at offset[p] to offset[p+1].
        row: (num_listed,) int64 the rows.
        begin, end: (num_listed,) int64 positions of each row's first entry in the rank's columns and after its last.
    """

    offset: NDArray[np.int64]
    row: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]

    def spans(self) -> Iterator[slice]:
        """Positions of every rank's rows."""
        for start, stop in zip(self.offset[:-1].tolist(), self.offset[1:].tolist(), strict=True):
            yield slice(start, stop)


def _by_rank(matrix: ShardMatrix[CSR]) -> _RankRows:
    halo, owners = matrix.halo, matrix.halo_offset
    count = np.zeros(len(owners), np.int64)
    _count_rows(halo.indptr, halo.indices, owners, count)
    offset = np.cumsum(count)
    lists = _RankRows(offset, *(np.empty(int(offset[-1]), np.int64) for _ in range(3)))
    _list_rows(halo.indptr, halo.indices, owners, offset[:-1].copy(), lists.row, lists.begin, lists.end)
    return lists


@njit(cache=True, nogil=True)
def _end_of_owner(indices: NDArray[Any], owners: NDArray[np.int64], entry: int, stop: int) -> tuple[int, int]:
    """The owner of an entry's column, and the position after the row's last entry that belongs to the same owner."""
    owner = count_at_most(owners, indices[entry]) - 1
    while entry < stop and indices[entry] < owners[owner + 1]:
        entry += 1
    return owner, entry


@njit(cache=True, nogil=True)
def _count_rows(
    indptr: NDArray[np.int64], indices: NDArray[Any], owners: NDArray[np.int64], count: NDArray[np.int64]
) -> None:
    """Add up in ``count[p + 1]`` the rows with entries in the columns of rank p."""
    for row in range(len(indptr) - 1):
        entry = indptr[row]
        while entry < indptr[row + 1]:
            owner, entry = _end_of_owner(indices, owners, entry, indptr[row + 1])
            count[owner + 1] += 1


@njit(cache=True, nogil=True)
def _list_rows(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    owners: NDArray[np.int64],
    position: NDArray[np.int64],
    listed: NDArray[np.int64],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
) -> None:
    """Fill in the lists; ``position`` is where the next row of each rank goes."""
    for row in range(len(indptr) - 1):
        entry = indptr[row]
        while entry < indptr[row + 1]:
            first = entry
            owner, entry = _end_of_owner(indices, owners, entry, indptr[row + 1])
            place = position[owner]
            position[owner] = place + 1
            listed[place], begin[place], end[place] = row, first, entry


def _received(
    matrix: ShardMatrix[CSR], awaited: _RankRows, vertex: NDArray[np.int64], sum_weight: int
) -> tuple[NDArray[np.bool_], list[NDArray[np.int64]]]:
    """The halo columns whose rows are received, and for every rank the own rows whose sums are received."""
    is_fetched, target = np.zeros(matrix.halo.num_columns, bool), []
    for rank, span in enumerate(awaited.spans()):
        first, stop = matrix.halo_offset[rank : rank + 2].tolist()
        # A cover lists the rows of the sender, which are columns here.
        indptr, listed = _transposed_block(awaited.begin[span], awaited.end[span], matrix.halo.indices, first, stop)
        found = minimum_cover(indptr[:-1], indptr[1:], listed, (0, span.stop - span.start), sum_weight)
        is_fetched[first:stop] = found.row
        rows = awaited.row[span][found.column]
        target.append(rows[np.argsort(vertex[rows])])
    return is_fetched, target


def _transposed_block(
    begin: NDArray[np.int64], end: NDArray[np.int64], indices: NDArray[Any], first: int, stop: int
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The transpose of a block: row pointers, and the numbers of the listed rows with an entry in each column."""
    indptr = np.zeros(stop - first + 1, np.int64)
    nnz = int((end - begin).sum())
    listed = np.empty(nnz, index_dtype(len(begin)))
    _transpose(begin, end, indices, first, indptr, listed)
    return indptr, listed


@njit(cache=True, nogil=True)
def _transpose(
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    indices: NDArray[Any],
    first: int,
    indptr: NDArray[np.int64],
    listed: NDArray[Any],
) -> None:
    for number in range(len(begin)):
        for entry in range(begin[number], end[number]):
            indptr[indices[entry] - first + 1] += 1
    for column in range(len(indptr) - 1):
        indptr[column + 1] += indptr[column]
    position = indptr[:-1].copy()
    for number in range(len(begin)):
        for entry in range(begin[number], end[number]):
            column = indices[entry] - first
            listed[position[column]] = number
            position[column] += 1


def _sent(transpose: ShardMatrix[CSR], sent: _RankRows, sum_weight: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The halo columns of the transpose whose sums are sent, and the listed rows that are sent to their ranks."""
    is_summed, is_sent = np.zeros(transpose.halo.num_columns, bool), np.zeros(len(sent.row), bool)
    for rank, span in enumerate(sent.spans()):
        first, stop = transpose.halo_offset[rank : rank + 2].tolist()
        found = minimum_cover(sent.begin[span], sent.end[span], transpose.halo.indices, (first, stop), sum_weight)
        is_sent[span], is_summed[first:stop] = found
    return is_summed, is_sent


def _sums(
    transpose: ShardMatrix[CSR], sent: _RankRows, is_summed: NDArray[np.bool_], is_sent: NDArray[np.bool_]
) -> CSR:
    """The matrix of the sums: all entries of the rows that are not sent, as a cover holds them."""
    halo = transpose.halo
    number = np.cumsum(is_summed) - 1
    indptr = np.zeros(np.count_nonzero(is_summed) + 1, np.int64)
    given = np.empty(0, np.float32) if halo.data is None else halo.data
    _count_sums(sent.begin, sent.end, halo.indices, is_sent, number, indptr)
    np.cumsum(indptr, out=indptr)
    indices = np.empty(int(indptr[-1]), index_dtype(halo.num_rows))
    data = np.empty(len(indices) if len(given) else 0, given.dtype)
    _fill_sums(sent, halo.indices, given, is_sent, number, indptr[:-1].copy(), indices, data)
    return CSR(0, indptr, indices, None if halo.data is None else data, halo.num_rows)


@njit(cache=True, nogil=True)
def _count_sums(
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    columns: NDArray[Any],
    is_sent: NDArray[np.bool_],
    number: NDArray[np.int64],
    indptr: NDArray[np.int64],
) -> None:
    """Add up in ``indptr[k + 1]`` the entries of sum k."""
    for listed in range(len(begin)):
        if not is_sent[listed]:
            for entry in range(begin[listed], end[listed]):
                indptr[number[columns[entry]] + 1] += 1


@njit(cache=True, nogil=True)
def _fill_sums(
    sent: _RankRows,
    columns: NDArray[Any],
    given: NDArray[Any],
    is_sent: NDArray[np.bool_],
    number: NDArray[np.int64],
    position: NDArray[np.int64],
    indices: NDArray[Any],
    data: NDArray[Any],
) -> None:
    """Fill in the entries; ``position`` is where the next entry of each sum goes.

    The rows of a rank ascend, and so do the columns of each sum.
    """
    for listed in range(len(sent.row)):
        if is_sent[listed]:
            continue
        for entry in range(sent.begin[listed], sent.end[listed]):
            place = position[number[columns[entry]]]
            position[number[columns[entry]]] = place + 1
            indices[place] = sent.row[listed]
            if len(given):
                data[place] = given[entry]


def _with_columns(halo: CSR, is_kept: NDArray[np.bool_]) -> CSR:
    """A halo with some of its columns only, which are renumbered."""
    number = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
    indptr = np.zeros(len(halo.indptr), np.int64)
    _count_kept(halo.indptr, halo.indices, number, indptr)
    np.cumsum(indptr, out=indptr)
    num_columns = int(np.count_nonzero(is_kept))
    indices = np.empty(int(indptr[-1]), index_dtype(num_columns))
    given = np.empty(0, np.float32) if halo.data is None else halo.data
    data = np.empty(len(indices) if len(given) else 0, given.dtype)
    _copy_kept(halo.indices, given, number, indices, data)
    return CSR(0, indptr, indices, None if halo.data is None else data, num_columns)


@njit(cache=True, nogil=True)
def _count_kept(
    indptr: NDArray[np.int64], indices: NDArray[Any], number: NDArray[np.int64], kept: NDArray[np.int64]
) -> None:
    """Count in ``kept[i + 1]`` the entries of row i whose columns have a number."""
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            if number[indices[entry]] >= 0:
                kept[row + 1] += 1


@njit(cache=True, nogil=True)
def _copy_kept(
    indices: NDArray[Any], given: NDArray[Any], number: NDArray[np.int64], columns: NDArray[Any], data: NDArray[Any]
) -> None:
    place = 0
    for entry in range(len(indices)):
        if number[indices[entry]] >= 0:
            columns[place] = number[indices[entry]]
            if len(given):
                data[place] = given[entry]
            place += 1


def _offsets(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)


def _offsets_within(chosen: NDArray[np.bool_], offset: NDArray[np.int64]) -> NDArray[np.int64]:
    """Begins of the ranges of an offset, counted in chosen elements."""
    return np.concatenate([[0], np.cumsum(chosen)])[offset].astype(np.int64)
