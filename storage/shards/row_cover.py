"""Covers of the blocks between two ranks, which say where a sum is sent in place of several rows.

A product with a matrix M needs, on rank p, the rows of rank q for the nonzeros of the block M[p, q]. Rank q may send a
row j of its own, which serves all nonzeros of column j, or the sum over the columns of a target row i of p, which
serves all nonzeros of row i. Rows and sums that together serve all nonzeros are a vertex cover of the block. A minimum
cover is never larger than the smaller side, and so never larger than the number of rows that are sent otherwise (for
training on many ranks: SuperGCN, arXiv 2411.16025). No shard holds the cover: it is computed when a rank reads its
shard. Rank p has the block in the halo of its rows of M, and q has the transposed block in the halo of its rows of the
transpose of M. Both find the same cover without a message, see :func:`~gnnloom.storage.matrix.cover.minimum_cover`.

Both halves of an exchange are products: q multiplies its own rows with a matrix that has a row of one entry for each
row that it sends, and a row of M for each sum; and p multiplies what arrives with its halo, where a column of one entry
stands for each sum. So one message goes from q to p, and rows and sums are packed and added alike. A sum has the dtype
of a row. A bfloat16 sum is rounded; the bound of this error is below the bound of the error of the rounded rows.

The product with the transpose is covered likewise, with the two matrices exchanged. Its blocks are the transposed
blocks, so rows and sums swap roles, and their number is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import count_at_most, kernel
from gnnloom.storage.matrix.cover import minimum_cover
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.shards.shard_matrix import ShardMatrix, listed_by_rank


@dataclass(frozen=True)
class CoveredMatrix:
    """One matrix of one rank, where ranks exchange rows and sums that cover the blocks between them.

    What a rank receives from another one, and likewise what it sends, are first rows, then sums, each by vertex.

    Attributes:
        own: (num_own, num_own); columns are the rank's own vertices.
        halo: (num_own, num_received); columns are the rows and sums that arrive.
        halo_vertex: (num_received,) int64 global id v of each row, and -1 - v for a sum whose target is v.
        halo_offset: (num_parts + 1,) int64; rank p sends the rows and sums halo_offset[p] to halo_offset[p+1].
        send: (num_sent, num_own) the rows and sums to send, as a matrix.
        send_vertex: (num_sent,) int64 likewise.
        send_offset: (num_parts + 1,) int64; rank p gets the rows and sums send_offset[p] to send_offset[p+1].
        column: (num_halo,) columns of ``halo`` by column of the whole halo; -1 for rows that are not received.
        row: (number of halo columns of the transpose,) rows of ``send`` with the sums for targets; -1 for others.
    """

    own: CSR
    halo: CSR
    halo_vertex: NDArray[np.int64]
    halo_offset: NDArray[np.int64]
    send: CSR
    send_vertex: NDArray[np.int64]
    send_offset: NDArray[np.int64]
    column: NDArray[Any]
    row: NDArray[Any]

    def exchanged(self, vertex: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # noqa: ARG002
        """See :meth:`gnnloom.storage.shards.shard_matrix.ShardMatrix.exchanged`."""
        return listed_by_rank(self.send_vertex, self.send_offset), listed_by_rank(self.halo_vertex, self.halo_offset)


def covered(matrix: ShardMatrix[CSR], transpose: ShardMatrix[CSR], vertex: NDArray[np.int64]) -> CoveredMatrix:
    """Cover the blocks of a rank's matrix with rows and sums.

    In addition to the result, it holds three numbers for each row that a rank sends or receives without a cover, the
    transpose of the largest block, and the memory of its cover.

    Args:
        matrix: the rank's rows of the matrix.
        transpose: its rows of the transpose; the same object for a symmetric matrix.
        vertex: (num_own,) int64 global ids of the rank's vertices.
    """
    received, sent = _Received.of(matrix, vertex), _Sent.of(transpose, vertex)
    return CoveredMatrix(
        matrix.own,
        received.halo(matrix.halo),
        np.concatenate(received.vertex),
        received.offset,
        sent.matrix(transpose.halo),
        np.concatenate(sent.vertex),
        sent.offset,
        received.column,
        sent.row,
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


@kernel
def _end_of_owner(indices: NDArray[Any], owners: NDArray[np.int64], entry: int, stop: int) -> tuple[int, int]:
    """The owner of an entry's column, and the position after the row's last entry that belongs to the same owner."""
    owner = count_at_most(owners, indices[entry]) - 1
    while entry < stop and indices[entry] < owners[owner + 1]:
        entry += 1
    return owner, entry


@kernel
def _count_rows(
    indptr: NDArray[np.int64], indices: NDArray[Any], owners: NDArray[np.int64], count: NDArray[np.int64]
) -> None:
    """Add up in ``count[p + 1]`` the rows with entries in the columns of rank p."""
    for row in range(len(indptr) - 1):
        entry = indptr[row]
        while entry < indptr[row + 1]:
            owner, entry = _end_of_owner(indices, owners, entry, indptr[row + 1])
            count[owner + 1] += 1


@kernel
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


@dataclass(frozen=True)
class _Received:
    """The rows and sums that arrive at a rank.

    Attributes:
        listed: rows of the halo by rank.
        vertex: for each rank, what it sends; see :class:`CoveredMatrix`, as of the others.
        slot: (num_listed,) column of the sum for each listed row, or -1.
    """

    listed: _RankRows
    vertex: list[NDArray[np.int64]]
    offset: NDArray[np.int64]
    column: NDArray[Any]
    slot: NDArray[np.int64]

    @classmethod
    def of(cls, matrix: ShardMatrix[CSR], vertex: NDArray[np.int64]) -> _Received:
        listed, end, offset, sent = _by_rank(matrix), 0, [0], []
        column = np.full(matrix.halo.num_columns, -1, index_dtype(matrix.halo.num_columns))
        slot = np.full(len(listed.row), -1, np.int64)
        for rank, span in enumerate(listed.spans()):
            first, stop = matrix.halo_offset[rank : rank + 2].tolist()
            # A cover lists the rows of the sender, which are columns here.
            indptr, numbers = _transposed_block(listed.begin[span], listed.end[span], matrix.halo.indices, first, stop)
            cover = minimum_cover(indptr[:-1], indptr[1:], numbers, (0, span.stop - span.start))
            rows, targets = first + np.flatnonzero(cover.row), span.start + np.flatnonzero(cover.column)
            targets = targets[np.argsort(vertex[listed.row[targets]])]
            column[rows] = end + np.arange(len(rows))
            slot[targets] = end + len(rows) + np.arange(len(targets))
            sent += [matrix.halo_vertex[rows], -1 - vertex[listed.row[targets]]]
            end += len(rows) + len(targets)
            offset.append(end)
        return cls(listed, sent, np.array(offset, np.int64), column, slot)

    def halo(self, halo: CSR) -> CSR:
        """The matrix of what arrives."""
        indptr = np.zeros(len(halo.indptr), np.int64)
        num_columns = int(self.offset[-1])
        _count_received(self.listed, halo.indices, self.column, self.slot, indptr)
        np.cumsum(indptr, out=indptr)
        indices, given, data = _entries(int(indptr[-1]), num_columns, halo)
        _fill_received(self.listed, halo.indices, given, self.column, self.slot, indptr[:-1].copy(), indices, data)
        return CSR(0, indptr, indices, None if halo.data is None else data, num_columns)


@dataclass(frozen=True)
class _Sent:
    """The rows and sums that a rank sends; attributes as of :class:`_Received`.

    Attributes:
        position: (num_listed,) row of the matrix for each listed row that is sent as it is, or -1.
        row: row of the matrix for each column of the halo that is the target of a sum, or -1.
    """

    listed: _RankRows
    vertex: list[NDArray[np.int64]]
    offset: NDArray[np.int64]
    position: NDArray[np.int64]
    row: NDArray[Any]

    @classmethod
    def of(cls, transpose: ShardMatrix[CSR], vertex: NDArray[np.int64]) -> _Sent:
        listed, end, offset, sent = _by_rank(transpose), 0, [0], []
        position = np.full(len(listed.row), -1, np.int64)
        row = np.full(transpose.halo.num_columns, -1, index_dtype(transpose.halo.num_columns + len(listed.row)))
        for rank, span in enumerate(listed.spans()):
            first, stop = transpose.halo_offset[rank : rank + 2].tolist()
            cover = minimum_cover(listed.begin[span], listed.end[span], transpose.halo.indices, (first, stop))
            rows, targets = span.start + np.flatnonzero(cover.row), first + np.flatnonzero(cover.column)
            rows = rows[np.argsort(vertex[listed.row[rows]])]
            position[rows] = end + np.arange(len(rows))
            row[targets] = end + len(rows) + np.arange(len(targets))
            sent += [vertex[listed.row[rows]], -1 - transpose.halo_vertex[targets]]
            end += len(rows) + len(targets)
            offset.append(end)
        return cls(listed, sent, np.array(offset, np.int64), position, row)

    def matrix(self, halo: CSR) -> CSR:
        """The matrix of what is sent, from the halo of the transpose."""
        indptr = np.zeros(int(self.offset[-1]) + 1, np.int64)
        _count_sent(self.listed, halo.indices, self.position, self.row, indptr)
        np.cumsum(indptr, out=indptr)
        indices, given, data = _entries(int(indptr[-1]), halo.num_rows, halo)
        _fill_sent(self.listed, halo.indices, given, self.position, self.row, indptr[:-1].copy(), indices, data)
        return CSR(0, indptr, indices, None if halo.data is None else data, halo.num_rows)


def _transposed_block(
    begin: NDArray[np.int64], end: NDArray[np.int64], indices: NDArray[Any], first: int, stop: int
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The transpose of a block: row pointers, and the numbers of the listed rows with an entry in each column."""
    indptr = np.zeros(stop - first + 1, np.int64)
    nnz = int((end - begin).sum())
    listed = np.empty(nnz, index_dtype(len(begin)))
    _transpose(begin, end, indices, first, indptr, listed)
    return indptr, listed


@kernel
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


def _entries(nnz: int, num_columns: int, source: CSR) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Columns to fill in, the values of a matrix, and values to fill in; values are empty for a pattern."""
    # One compiled version serves patterns and float32 weights.
    given = np.empty(0, np.float32) if source.data is None else source.data
    data = np.empty(0 if source.data is None else nnz, given.dtype)
    return np.empty(nnz, index_dtype(num_columns)), given, data


@kernel
def _count_received(
    listed: _RankRows,
    columns: NDArray[Any],
    column: NDArray[Any],
    slot: NDArray[np.int64],
    indptr: NDArray[np.int64],
) -> None:
    """Count in ``indptr[i + 1]`` the entries of row i in rows that are received, and one for each sum."""
    for number in range(len(listed.row)):
        count = 1 if slot[number] >= 0 else 0
        for entry in range(listed.begin[number], listed.end[number]):
            if column[columns[entry]] >= 0:
                count += 1
        indptr[listed.row[number] + 1] += count


@kernel
def _fill_received(
    listed: _RankRows,
    columns: NDArray[Any],
    given: NDArray[Any],
    column: NDArray[Any],
    slot: NDArray[np.int64],
    position: NDArray[np.int64],
    indices: NDArray[Any],
    data: NDArray[Any],
) -> None:
    """Fill in the entries; ``position`` is where the next entry of each row goes.

    The lists ascend by rank, and a rank's sums follow its rows, so the columns of each row ascend.
    """
    for number in range(len(listed.row)):
        place = position[listed.row[number]]
        for entry in range(listed.begin[number], listed.end[number]):
            if column[columns[entry]] >= 0:
                indices[place] = column[columns[entry]]
                if len(given):
                    data[place] = given[entry]
                place += 1
        if slot[number] >= 0:
            indices[place] = slot[number]
            if len(given):
                data[place] = 1
            place += 1
        position[listed.row[number]] = place


@kernel
def _count_sent(
    listed: _RankRows,
    columns: NDArray[Any],
    position: NDArray[np.int64],
    row: NDArray[Any],
    indptr: NDArray[np.int64],
) -> None:
    """Count in ``indptr[k + 1]`` the entries of row k of the matrix of what is sent."""
    for number in range(len(listed.row)):
        if position[number] >= 0:
            indptr[position[number] + 1] = 1
        else:
            for entry in range(listed.begin[number], listed.end[number]):
                indptr[row[columns[entry]] + 1] += 1


@kernel
def _fill_sent(
    listed: _RankRows,
    columns: NDArray[Any],
    given: NDArray[Any],
    position: NDArray[np.int64],
    row: NDArray[Any],
    places: NDArray[np.int64],
    indices: NDArray[Any],
    data: NDArray[Any],
) -> None:
    """Fill in the entries; ``places`` is where the next entry of each row of the matrix goes.

    A row that is sent serves all of its entries. All others belong to sums, as the two cover the block.
    """
    for number in range(len(listed.row)):
        if position[number] >= 0:
            place = places[position[number]]
            indices[place] = listed.row[number]
            if len(given):
                data[place] = 1
            continue
        for entry in range(listed.begin[number], listed.end[number]):
            target = row[columns[entry]]
            place = places[target]
            places[target] = place + 1
            indices[place] = listed.row[number]
            if len(given):
                data[place] = given[entry]
