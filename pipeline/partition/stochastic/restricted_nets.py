"""The nets that drawn batches have, of one row block, in files that grow with each group of batches.

A piece has these files, with the batches of all groups so far:

    size   (num_nets,) int64             pins of the nets of all batches, batch by batch
    hash   (num_nets,) uint64            hash of the pins of each
    pin    (num_kept,) int32 or int64    the pins, net by net

and for each group g these, which appear whole:

    figures-g.npy   (num_batches, num_figures) int64    the figures of every batch so far, see ``NETS`` and so on
    met-g           (num_bytes,) uint8                  a bit for each pin of the piece: whether any batch has it

The figures of a group come last.  What a killed task had appended before is written again, in the same place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.raw_files import write_at
from gnnloom.pipeline.partition.measure.kept_results import keep_results
from gnnloom.pipeline.partition.model.net_lists import pin_hash
from gnnloom.pipeline.partition.stochastic.batch_bits import DrawnBatches, is_drawn
from gnnloom.pipeline.partition.stochastic.net_pieces import NetPiece
from gnnloom.storage.format.files import written_aside
from gnnloom.storage.format.numpy_files import load_array

#: Columns of the figures of a batch: its nets and their pins; the pins of the piece that lie in this or an earlier
#: batch; and all pins of the piece.
NUM_FIGURES = 4
NETS, PINS, MET, ALL_PINS = range(NUM_FIGURES)
#: Files of the sizes, the pins and the hashes of a piece's nets.
SIZE, PIN, HASH = "size", "pin", "hash"


@dataclass(frozen=True)
class RestrictTask:
    """Restricts the nets of a piece to the batches of a group.

    Attributes:
        group: number of the group; the groups before it have been done.
        drawn: its batches.
    """

    piece: NetPiece
    group: int
    drawn: DrawnBatches

    @property
    def result_path(self) -> Path:
        return figures_path(self.piece.folder, self.group)


def restrict_nets(task: RestrictTask) -> None:
    """Append the nets of a group to the files of a piece; the figures come last."""
    piece, group, nets = task.piece, task.group, task.piece.nets()
    piece.folder.mkdir(parents=True, exist_ok=True)
    met, before = _met_before(piece, group, len(nets.pin)), _figures_before(piece, group)
    ends, figures = _ends(before, nets.pin.dtype), []
    with _appended(piece, group) as descriptors:
        # One batch at a time in memory, since a group may have several times the pins of the piece.
        for bits in task.drawn.bits():
            restricted = _restricted(nets.offset, nets.pin, nets.owner, bits, met)
            for file, end, values in zip(descriptors, ends, restricted, strict=True):
                write_at(file, end, values)
            ends = [end + values.nbytes for end, values in zip(ends, restricted, strict=True)]
            size, pin, _ = restricted
            figures.append((len(size), len(pin), np.count_nonzero(met), len(nets.pin)))
    with written_aside(piece.folder / f"met-{group}") as aside:
        aside.write_bytes(np.packbits(met).data)
    keep_results(task.result_path, [np.concatenate([before, np.array(figures, dtype=np.int64)])])


def figures_path(folder: Path, group: int) -> Path:
    """File of the (num_batches, num_figures) figures of a piece, for the batches up to the end of a group."""
    return folder / f"figures-{group}.npy"


@contextmanager
def _appended(piece: NetPiece, group: int) -> Iterator[list[int]]:
    """Open the files of sizes, pins and hashes to write; the first group creates them."""
    names = (SIZE, PIN, HASH)
    if not group:
        for name in names:
            # Not truncated: a task that was taken for dead writes the same bytes, and may do so at any time.
            (piece.folder / name).touch()
    with ExitStack() as stack:
        yield [stack.enter_context((piece.folder / name).open("r+b", buffering=0)).fileno() for name in names]


def _ends(before: NDArray[np.int64], dtype: np.dtype[Any]) -> list[int]:
    """Bytes of sizes, pins and hashes that the groups with these figures have written."""
    nets, pins = before[:, [NETS, PINS]].sum(axis=0).tolist()
    return [8 * nets, dtype.itemsize * pins, 8 * nets]


def _figures_before(piece: NetPiece, group: int) -> NDArray[np.int64]:
    """(num_batches, num_figures) figures of the batches of the groups before this one."""
    if not group:
        return np.empty((0, NUM_FIGURES), dtype=np.int64)
    return load_array(figures_path(piece.folder, group - 1))


def _met_before(piece: NetPiece, group: int, num_pins: int) -> NDArray[np.bool_]:
    """(num_pins,) whether a batch of the groups before this one has each pin."""
    if not group:
        return np.zeros(num_pins, dtype=np.bool_)
    packed = np.fromfile(piece.folder / f"met-{group - 1}", np.uint8)
    return np.unpackbits(packed, count=num_pins).view(np.bool_)


@njit(cache=True, nogil=True)
def _restricted(
    offset: NDArray[np.int64],
    pin: NDArray[Any],
    owner: NDArray[np.int64],
    bits: NDArray[np.uint8],
    met: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.uint64]]:
    """Return sizes, pins and hashes of the nets that a batch has, each with two or more pins.

    Args:
        bits: (num_bytes,) of the batch.
        met: (num_pins,) whether any batch so far contains each pin; changed.
    """
    size = np.empty(len(offset) - 1, np.int64)
    hashed = np.empty(len(offset) - 1, np.uint64)
    kept_pin = np.empty(len(pin), pin.dtype)
    nets, end = 0, 0
    # Pins are appended as they are found and taken back if the net turns out to have only one.
    for net in range(len(offset) - 1):
        if not is_drawn(bits, owner[net]):
            continue
        start, total = end, np.uint64(0)
        for position in range(offset[net], offset[net + 1]):
            if is_drawn(bits, pin[position]):
                # A pin counts even if its net is dropped below: this batch has shown that the net sends nothing.
                met[position] = True
                kept_pin[end] = pin[position]
                total += pin_hash(pin[position])
                end += 1
        # No other part can need the row within this batch.
        if end - start < 2:
            end = start
            continue
        size[nets], hashed[nets] = end - start, total
        nets += 1
    # Copies, so that the buffers for all nets and pins are released.
    return size[:nets].copy(), kept_pin[:end].copy(), hashed[:nets].copy()
