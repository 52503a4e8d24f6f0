"""The nets of one row block, which a task makes from the stored matrix, and the files of what it makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import block_nets
from gnnloom.pipeline.partition.stochastic.uniform_batches import rows_with_others
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact


@dataclass(frozen=True)
class Nets:
    """Some nets in memory.

    Attributes:
        offset: (num_nets + 1,) int64; net k has the pins pin[offset[k]:offset[k + 1]].
        pin: (num_pins,) int32 or int64.
        owner: (num_nets,) int64 the pin of each net that sends.
    """

    offset: NDArray[np.int64]
    pin: NDArray[Any]
    owner: NDArray[np.int64]


@dataclass(frozen=True)
class NetPiece:
    """The nets of a row block; small and picklable, so that tasks can hold it.

    Attributes:
        number: of the piece; pieces in ascending order have the nets of the whole hypergraph in their order.
        work: folder of all pieces.
    """

    matrix_path: Path
    block: int
    number: int
    work: Path

    @property
    def folder(self) -> Path:
        """Folder of the files that tasks make of this piece."""
        return piece_folder(self.work, self.number)

    def nets(self) -> Nets:
        """Make the nets with two or more pins."""
        block = Graph(Artifact(self.matrix_path)).block(self.block)
        owner = rows_with_others(block.row_offset, block.indptr, block.indices)
        return Nets(*block_nets(block), owner)


def net_pieces(matrices: Sequence[Graph], work: Path) -> list[NetPiece]:
    """Return the pieces of the hypergraph whose nets are the rows of these matrices."""
    blocks = [(matrix.artifact.path, block) for matrix in matrices for block in range(matrix.num_blocks)]
    return [NetPiece(path, block, number, work) for number, (path, block) in enumerate(blocks)]


def piece_folder(work: Path, number: int) -> Path:
    """Return the folder of the files of a piece."""
    return work / f"piece-{number:05d}"
