"""Two bits for each net and part: one or more pins of the net lie in the part; two or more do.

The bits of a *window* of parts fill words of 64.  They are kept in a file of (num_nets, 2, num_words) uint64, which
is mapped by the tasks that fill it, each for its own nets, and by the refinement that reads and updates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.moves import WORD_BITS, bit_of
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, IncidenceBlock
from gnnloom.pipeline.partition.multilevel.pieces import PART_BYTES, RangeTask, net_tasks, phase_over
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.storage.disk.numpy_files import create_array_file, map_array
from gnnloom.storage.kernels import kernel


@dataclass(frozen=True)
class _Fill:
    nets: Incidence
    part_path: Path
    position_path: Path
    mask_path: Path
    first: int


def fill_phase(
    hypergraph: DiskHypergraph, part_path: Path, position_path: Path, first: int, mask_path: Path, num_words: int
) -> Phase:
    """Fill the masks of a window of parts, replacing what they held.

    Args:
        hypergraph: with the pins of every net.
        part_path: ``.npy`` file of the (num_vertices,) int32 parts.
        position_path: ``.npy`` file of the (num_parts,) int64 position of each part.
        first: the window holds the parts at positions from ``first`` on.
        mask_path: file that :func:`create_masks` made.
        num_words: of a net in each mask.
    """
    nets = hypergraph.nets
    work = _Fill(nets, part_path, position_path, mask_path, first)
    ranges = nets.ranges(net_tasks(nets.num_ids, hypergraph.steps))
    reads, writes = nets.num_bytes + PART_BYTES * nets.num_ids, mask_bytes(num_words) * nets.num_rows
    held = nets.block_bytes()
    return phase_over(ranges, "fill masks", _fill_blocks, work, reads=reads, writes=writes, files=4, buffers=held)


def mask_bytes(num_words: int) -> int:
    """Bytes of both masks of a net."""
    return 16 * num_words


def create_masks(path: Path, num_nets: int, num_words: int) -> NDArray[np.uint64]:
    """Create a file of masks, all zero, and map it writable as (num_nets, 2, num_words) uint64."""
    return create_array_file(path, np.uint64, (num_nets, 2, num_words))


def _fill_blocks(task: RangeTask[_Fill]) -> None:
    work = task.work
    # All tasks write to one shared map, each to the rows of its own nets, so no lock is needed.
    mask, part, position = map_array(work.mask_path, "r+"), map_array(work.part_path), map_array(work.position_path)
    for block in work.nets.blocks(task.rows):
        _fill_masks(block, part, position, work.first, mask)


@kernel
def _fill_masks(
    block: IncidenceBlock, part: NDArray[np.int32], position: NDArray[np.int64], first: int, mask: NDArray[np.uint64]
) -> None:
    """Fill the masks of a block of nets, of (num_nets, 2, num_words) uint64 of all nets."""
    num_words = mask.shape[2]
    for row in range(len(block.offset) - 1):
        net = block.first_row + row
        # Each task clears its own nets, which saves a pass over the file between two windows.
        mask[net] = 0
        for k in range(block.offset[row], block.offset[row + 1]):
            index = position[part[block.ids[k]]] - first
            # Pins in parts of other windows are not recorded; those parts have a pass of their own.
            if 0 <= index < num_words * WORD_BITS:
                word, bit = index // WORD_BITS, bit_of(index)
                # "Two or more" first: it is set if an earlier pin has set "one or more".
                mask[net, 1, word] |= mask[net, 0, word] & bit
                mask[net, 0, word] |= bit
