"""Join the lists of ids that tasks wrote, each for a range of rows, into lists of all rows."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnloom.pipeline.partition.multilevel.incidence import Incidence, create_incidence
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks


@dataclass(frozen=True)
class _PlaceTask:
    """Copies the lists of a piece to their place among all."""

    piece: Incidence
    first_row: int
    first_id: int
    result: Incidence


def join_lists(pieces: Sequence[Incidence], folder: Path, cluster: Cluster) -> Incidence:
    """Write the lists of all pieces, one after the other, and remove the pieces.

    Args:
        pieces: one or more, with ids of one dtype.
    """
    num_rows, num_ids = sum(piece.num_rows for piece in pieces), sum(piece.num_ids for piece in pieces)
    result = create_incidence(folder, num_rows, num_ids, np.dtype(pieces[0].dtype))
    tasks, first_row, first_id = [], 0, 0
    for piece in pieces:
        tasks.append(_PlaceTask(piece, first_row, first_id, result))
        first_row, first_id = first_row + piece.num_rows, first_id + piece.num_ids
    run_tasks(cluster, _place, tasks)
    for piece in pieces:
        shutil.rmtree(piece.folder)
    return result


def _place(task: _PlaceTask) -> None:
    offset = task.result.offset("r+")
    ids = task.result.ids("r+")
    first_id = task.first_id
    for block in task.piece.blocks():
        first = task.first_row + block.first_row
        # The offset of the first row of all is 0, as the file was created.
        offset[first + 1 : first + len(block.offset)] = first_id + block.offset[1:]
        ids[first_id : first_id + len(block.ids)] = block.ids
        first_id += len(block.ids)
