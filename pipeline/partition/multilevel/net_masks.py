"""Two bits for each net and part: a pin of the net lies there; two or more do.

The bits of a *window* of parts fill words of 64; a file of (num_nets, 2, num_words) uint64 is mapped by the
tasks that make it, each for nets of its own, and by the refinement that reads and updates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.incidence import Incidence
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.format.memory_map import map_part_vector

#: Tasks that make the masks together.
_NUM_TASKS = 16
WORD_BITS = 64
_DE_BRUIJN: Final = np.uint64(0x03F79D71B4CB0A89)
_PLACE: Final = np.argsort([((int(_DE_BRUIJN) << place) & ((1 << 64) - 1)) >> 58 for place in range(64)])


@dataclass(frozen=True)
class _MaskTask:
    nets: Incidence
    blocks: range
    part_path: Path
    rank_path: Path
    mask_path: Path
    first: int


def make_masks(
    nets: Incidence, part_path: Path, rank_path: Path, first: int, mask_path: Path, cluster: Cluster
) -> None:
    """Fill the masks of a window of parts, whatever they held before.

    Args:
        part_path: ``.npy`` file with the (num_vertices,) int32 parts.
        rank_path: ``.npy`` file with the (num_parts,) int64 place of each part; the window has those from ``first`` on.
        mask_path: file that :func:`create_masks` made.
    """
    tasks = [_MaskTask(nets, blocks, part_path, rank_path, mask_path, first) for blocks in nets.ranges(_NUM_TASKS)]
    for _ in cluster.map(_make_masks, tasks):
        pass


def create_masks(path: Path, num_nets: int, num_words: int) -> NDArray[np.uint64]:
    """A writable map of a new file, all zero."""
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.uint64, shape=(num_nets, 2, num_words))


def _make_masks(task: _MaskTask) -> int:
    mask = np.load(task.mask_path, mmap_mode="r+", allow_pickle=False)
    part = map_part_vector(task.part_path)
    rank = np.load(task.rank_path, allow_pickle=False)
    for number in task.blocks:
        block = task.nets.block(number)
        _fill_masks(block.offset, block.ids, part, rank, task.first, mask[block.first_row :])
    return len(task.blocks)


@njit(cache=True, nogil=True)
def _fill_masks(
    offset: NDArray[np.int64],
    pin: NDArray[Any],
    part: NDArray[np.int32],
    rank: NDArray[np.int64],
    first: int,
    mask: NDArray[np.uint64],
) -> None:
    num_words = mask.shape[2]
    for net in range(len(offset) - 1):
        mask[net] = 0
        for position in range(offset[net], offset[net + 1]):
            place = rank[part[pin[position]]] - first
            if 0 <= place < num_words * WORD_BITS:
                word, bit = place // WORD_BITS, np.uint64(1) << np.uint64(place % WORD_BITS)
                mask[net, 1, word] |= mask[net, 0, word] & bit
                mask[net, 0, word] |= bit


@njit(cache=True, nogil=True, inline="always")
def bit_number(bit: np.uint64) -> int:
    """The place of the only bit set: the top six bits of its product with a de Bruijn sequence tell it.

    Leiserson, Prokop, Randall, Using de Bruijn sequences to index a 1 in a computer word (MIT, 1998).
    """
    return int(_PLACE[(bit * _DE_BRUIJN) >> np.uint64(58)])
