"""Arrays with one row per vertex, in the order of the vertices, written by all ranks: each writes its own chunks."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnloom.storage.disk.files import read_json, sync_paths, write_json
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import (
    ArrayReader,
    ArrayRecord,
    create_array,
    default_chunk_rows,
    stored_files,
    write_rows,
)
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.redistribute import VertexOrder, whole_rows
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True)
class VertexArrayPiece:
    """This rank's piece of an array.

    Attributes:
        name: path of the array below its folder.
        piece: (num_rows, ...) of the layout; whole rows if ``dim`` is None.
        dims: names of the array's dimensions.
        dim: width of the whole array; the piece has the columns of the layout.
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


@dataclass(frozen=True)
class OwnChunks:
    """The chunks of an array that this rank writes.

    Attributes:
        name: path of the array below its folder.
        shape: shape of the whole array.
        dims: names of its dimensions.
        chunks: first vertex and rows of each chunk.
        place: place of the rows.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str, ...]
    chunks: Iterable[tuple[int, Tensor]]
    place: Place

    @classmethod
    def of(cls, array: VertexArrayPiece, num_vertices: int, kind: Kind) -> OwnChunks:
        """Exchange rows so that every rank gets whole chunks. Collective, including iterating over the chunks."""
        rows, shape, dtype = array.rows(kind), array.shape(num_vertices), array_dtype(array.piece.dtype)
        chunks = VertexOrder(array.layout, num_vertices, kind).chunks(rows, default_chunk_rows(shape, dtype))
        return cls(array.name, shape, dtype, array.dims, chunks, array.layout.place)

    def create(self, folder: Path) -> None:
        """Make the array; called by rank 0, before any rank writes."""
        create_array(folder, self.name, self.shape, self.dtype, self.dims)

    def write(self, folder: Path) -> ArrayRecord:
        """Write this rank's chunks, and return their record."""
        written = [self.place.store(rows, partial(write_rows, folder, self.name, start)) for start, rows in self.chunks]
        pieces = tuple(piece for record in written for piece in record.pieces)
        return ArrayRecord(self.name, self.shape, self.dtype.name, self.dims, pieces)


def write_vertex_arrays(
    comm: Communicator, folder: Path, arrays: Sequence[VertexArrayPiece], num_vertices: int, kind: Kind
) -> list[ArrayRecord]:
    """Write arrays below a folder that rank 0 has made. Collective.

    Returns:
        On rank 0 the arrays' records, with the chunks of all ranks; an empty list on the others.
    """
    own = [OwnChunks.of(array, num_vertices, kind) for array in arrays]
    if comm.rank == 0:
        for chunks in own:
            chunks.create(folder)
    comm.barrier()  # no rank writes a chunk before the array's metadata exists
    records = [chunks.write(folder) for chunks in own]
    # By the ranks, all at the same time: rank 0 would sync one chunk after the other.
    sync_paths(path for record in records for path in stored_files(folder, record))
    announce(folder, comm.rank, records)
    # A rank arrives here after it has written all of its chunks, so rank 0 reads complete records, and may publish.
    comm.barrier()
    return collect(folder, comm.size) if comm.rank == 0 else []


def read_vertex_rows(
    stored: ArrayReader, rows: Tensor, target: Tensor, place: Place, columns: slice | None = None
) -> None:
    """Read the rows of some vertices, with only one chunk of the array in memory. Communicates nothing.

    Args:
        rows: (num_rows,) int64 vertices, in any order.
        target: (num_rows, ...) array to fill; its dtype may differ from the stored dtype.
        columns: columns to read; all by default.
    """
    # Sorted, the rows within a chunk are a slice.
    order = torch.argsort(rows)
    rows = rows[order]
    for start in range(0, len(stored), stored.chunk_rows):
        stop = min(start + stored.chunk_rows, len(stored))
        first, last = torch.searchsorted(rows, place.tensor([start, stop], torch.int64)).tolist()
        if first < last:
            chunk = place.from_numpy(stored.read(start, stop))[rows[first:last] - start]
            target[order[first:last]] = (chunk if columns is None else chunk[:, columns]).to(target.dtype)


def announced(folder: Path, rank: int) -> Path:
    """The file in which a rank lists its written chunks; it is written last."""
    # A communicator moves tensors only, so the records travel as files.
    return folder / ".work" / f"{rank:05d}.json"


def announce(folder: Path, rank: int, records: Iterable[ArrayRecord]) -> None:
    """Announce the chunks that this rank has written, which must already be on disk."""
    content = {record.path: record.to_json() for record in records}
    # Rank 0 reads and removes the records, so they need not survive a crash. It may do so as soon as the file has its
    # name: then the folder, which would have to be synced, is gone.
    write_json(announced(folder, rank), content, durable=False)


def collect(folder: Path, size: int) -> list[ArrayRecord]:
    """The records of the arrays, with the chunks of all ranks; called once, after the last announcement."""
    merged = _merge_records([_read_records(announced(folder, rank), rank) for rank in range(size)])
    shutil.rmtree(announced(folder, 0).parent)
    return merged


def _read_records(path: Path, rank: int) -> dict[str, Any]:
    """Records that a rank wrote about its chunks."""
    try:
        return read_json(path)
    except FileNotFoundError as error:
        message = f"{path}: not there, although rank {rank} wrote it"
        raise CorruptError(f"{message}; the catalog must be on a file system that all machines share") from error


def _merge_records(contents: list[dict[str, Any]]) -> list[ArrayRecord]:
    """The records of the arrays, each with the chunks of all ranks in the order of the vertices."""
    merged = []
    for name in contents[0]:
        records = [ArrayRecord.from_json(name, content[name]) for content in contents]
        # Consecutive chunks belong to different ranks, so the ranks' lists interleave.
        pieces = sorted((piece for record in records for piece in record.pieces), key=lambda piece: piece.start)
        merged.append(replace(records[0], pieces=tuple(pieces)))
    return merged
