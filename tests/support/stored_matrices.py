"""Matrices whose entries are on disk, in small chunks."""

from __future__ import annotations

from pathlib import Path

from gnnloom.storage import CSR
from gnnloom.storage.artifacts.stored_csr import StoredCSR
from gnnloom.storage.format.arrays import ArrayReader, ReadCounter, write_array


def store_matrix(
    folder: Path, matrix: CSR, *, chunk_rows: int, block_entries: int, counter: ReadCounter | None = None
) -> StoredCSR:
    """Write the entries of a matrix, and open it.

    Args:
        chunk_rows: entries of a chunk; chunks of the weights have one more.
    """
    readers = []
    for name, entries in (("indices", matrix.indices), ("data", matrix.data)):
        if entries is not None:
            rows = chunk_rows + (name == "data")
            readers.append(ArrayReader(folder, write_array(folder, name, entries, ("nonzero",), rows)))
    data = readers[1] if len(readers) > 1 else None
    return StoredCSR(matrix.indptr, readers[0], data, matrix.num_columns, counter, block_entries)
