"""Arrays with one row per vertex, in the order of the vertices, written by all ranks: each writes its own chunks."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import ArrayRecord, create_array, default_chunk_rows, stored_files, write_rows
from gnnloom.storage.format.files import read_json, sync_paths, write_json
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.kernels.arrays import array_dtype, as_array
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.redistribute import VertexOrder, whole_rows


@dataclass(frozen=True)
class VertexArray:
    """This rank's piece of an array.

    Attributes:
        name: path of the array below its folder.
        piece: (num_rows, ...) of the layout; whole rows if ``dim`` is None.
        dims: names of the array's dimensions.
        dim: width of the whole array, of which the piece has the columns of the layout.
    """

    name: str
    piece: Tensor
    layout: Layout
    dims: tuple[str, ...]
    dim: int | None = None

    def shape(self, num_vertices: int) -> tuple[int, ...]:
        """Shape of the whole array."""
        return (num_vertices, *(self.piece.shape[1:] if self.dim is None else (self.dim,)))

    def rows(self, kind: Kind) -> Tensor:
        """(num_rows, ...) whole rows. Collective."""
        return self.piece if self.dim is None else whole_rows(self.piece, self.layout, self.dim, kind)


def write_vertex_arrays(
    comm: Communicator, folder: Path, arrays: Sequence[VertexArray], num_vertices: int, kind: Kind
) -> list[ArrayRecord]:
    """Write arrays below a folder that rank 0 has made. Collective.

    Returns:
        On rank 0 the arrays' records, with the chunks of all ranks; an empty list on the others.
    """
    if comm.rank == 0:
        for array in arrays:
            create_array(folder, array.name, array.shape(num_vertices), array_dtype(array.piece.dtype), array.dims)
    comm.barrier()  # nobody writes a chunk before the array's metadata is there
    records = [_write_chunks(folder, array, num_vertices, kind) for array in arrays]
    # By the ranks, all at the same time: rank 0 would sync one chunk after the other.
    sync_paths(path for record in records for path in stored_files(folder, record))
    # A communicator moves tensors only, so the records travel as files.
    work = folder / ".work"
    content = {record.path: record.to_json() for record in records}
    # Rank 0 reads and removes them, so they need not survive a crash.
    write_json(work / f"{comm.rank:05d}.json", content, durable=False)
    # A rank arrives here after it has written all of its chunks, so rank 0 reads complete records, and may publish.
    comm.barrier()
    if comm.rank > 0:
        return []
    merged = _merge_records([_read_records(work / f"{rank:05d}.json", rank) for rank in range(comm.size)])
    shutil.rmtree(work)
    return merged


def _read_records(path: Path, rank: int) -> dict[str, Any]:
    """What a rank wrote about its chunks."""
    try:
        return read_json(path)
    except FileNotFoundError as error:
        message = f"{path}: not there, although rank {rank} wrote it"
        raise CorruptError(f"{message}; the catalog must be on a file system that all machines share") from error


def _write_chunks(folder: Path, array: VertexArray, num_vertices: int, kind: Kind) -> ArrayRecord:
    """Write this rank's chunks of one array, and return their record. Collective."""
    rows, shape = array.rows(kind), array.shape(num_vertices)
    dtype = array_dtype(rows.dtype)
    order, chunk_rows = VertexOrder(array.layout, num_vertices, kind), default_chunk_rows(shape, dtype)
    written = [
        write_rows(folder, array.name, start, as_array(chunk)) for start, chunk in order.chunks(rows, chunk_rows)
    ]
    pieces = tuple(piece for record in written for piece in record.pieces)
    return ArrayRecord(array.name, shape, dtype.name, array.dims, pieces)


def _merge_records(contents: list[dict[str, Any]]) -> list[ArrayRecord]:
    """The records of the arrays, each with the chunks of all ranks in the order of the vertices."""
    merged = []
    for name in contents[0]:
        records = [ArrayRecord.from_json(name, content[name]) for content in contents]
        # Consecutive chunks belong to different ranks, so the ranks' lists interleave.
        pieces = sorted((piece for record in records for piece in record.pieces), key=lambda piece: piece.start)
        merged.append(replace(records[0], pieces=tuple(pieces)))
    return merged
