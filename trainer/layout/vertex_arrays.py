"""Arrays with a row per vertex, in the order of the vertices, written by all ranks together: each its own chunks."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gnnloom.storage.format.arrays import ArrayRecord, create_array, default_chunk_rows, write_rows
from gnnloom.storage.format.files import read_json, write_json
from gnnloom.trainer.comm.communicator import Communicator, Kind
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.redistribute import VertexOrder, whole_rows


@dataclass(frozen=True)
class VertexArray:
    """This rank's part of an array.

    Attributes:
        part: (num_rows, ...) of the layout; whole rows if ``dim`` is None.
        dims: names of the array's dimensions.
        dim: columns of the whole array, of which the part has those that the layout gives it.
    """

    name: str
    part: Tensor
    layout: Layout
    dims: tuple[str, ...]
    dim: int | None = None

    def shape(self, num_vertices: int) -> tuple[int, ...]:
        return (num_vertices, *(self.part.shape[1:] if self.dim is None else (self.dim,)))

    def rows(self, kind: Kind) -> Tensor:
        """Whole rows. Collective."""
        return self.part if self.dim is None else whole_rows(self.part, self.layout, self.dim, kind)


def write_vertex_arrays(
    comm: Communicator, folder: Path, arrays: Sequence[VertexArray], num_vertices: int, kind: Kind
) -> list[ArrayRecord]:
    """Write arrays below a folder that rank 0 has made. Collective.

    Returns:
        On rank 0 the arrays' records, with the pieces of all ranks; nothing elsewhere.
    """
    if comm.rank == 0:
        for array in arrays:
            create_array(folder, array.name, array.shape(num_vertices), array.part.numpy().dtype, array.dims)
    comm.barrier()
    records = [_write_chunks(folder, array, num_vertices, kind) for array in arrays]
    work = folder / ".work"
    write_json(work / f"{comm.rank:05d}.json", {record.path: record.to_json() for record in records})
    comm.barrier()
    if comm.rank > 0:
        return []
    merged = _merge_records([read_json(path) for path in sorted(work.glob("*.json"))])
    shutil.rmtree(work)
    return merged


def _write_chunks(folder: Path, array: VertexArray, num_vertices: int, kind: Kind) -> ArrayRecord:
    """Write this rank's chunks of one array; the record has their pieces. Collective."""
    rows, shape = array.rows(kind), array.shape(num_vertices)
    dtype = rows.numpy().dtype
    written = [
        write_rows(folder, array.name, start, chunk.numpy())
        for start, chunk in VertexOrder(array.layout, num_vertices, kind).chunks(rows, default_chunk_rows(shape, dtype))
    ]
    pieces = tuple(piece for record in written for piece in record.pieces)
    return ArrayRecord(array.name, shape, dtype.name, array.dims, pieces)


def _merge_records(contents: list[dict[str, Any]]) -> list[ArrayRecord]:
    """The arrays with the pieces of all ranks."""
    merged = []
    for name in contents[0]:
        records = [ArrayRecord.from_json(name, content[name]) for content in contents]
        pieces = sorted((piece for record in records for piece in record.pieces), key=lambda piece: piece.start)
        merged.append(replace(records[0], pieces=tuple(pieces)))
    return merged
