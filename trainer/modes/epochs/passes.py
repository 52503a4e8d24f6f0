"""Outputs of all vertices of a rank, pass by pass: in each, those of a layer, for some vertices at a time.

The output of a pass is in a temporary file, of which every rank has the rows of its own vertices; the next pass gets
rows of others from their owners. Every neighbor of every vertex is gathered, as in full-graph evaluation (Hamilton,
Ying, Leskovec, NeurIPS 2017, algorithm 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.data.row_exchange import Owners, RowExchange
from gnnloom.trainer.feed.feature_view import FeatureView, OwnFeatures
from gnnloom.trainer.place.mapped_rows import MappedRows, UnbackedRows


class Pass(Protocol):
    """What is computed of every vertex.

    Attributes:
        what: the outputs, for messages.
        width: their columns.
    """

    what: str
    width: int

    def next(self, start: int) -> tuple[int, NDArray[np.int64], Any]:
        """The next of this rank's vertices, in ascending order, as many as fit.

        Args:
            start: number of the first one; perhaps there are no more.

        Returns:
            The number after the last one, (num_vertices,) int64 the vertices whose rows the outputs are computed from,
            and what else :meth:`output` takes; None if it need not be called.
        """
        ...

    def output(self, rows: Tensor, given: Any) -> Tensor:
        """(number of the next vertices, width) their outputs.

        Args:
            rows: (num_vertices, width of the input) see :meth:`next`.
        """
        ...


def outputs(
    passes: Iterable[Pass],
    features: FeatureView,
    own: LocalNumbers,
    owner: Owners | None,
    grid: ProcessGrid,
    folder: Path,
) -> Tensor:
    """The outputs of the last pass for the vertices of this rank. Collective.

    Args:
        passes: one or more.
        features: what the first pass reads.
        own: finds the rows of this rank's vertices.
        owner: rank of every vertex; None if this rank owns all.
        folder: of temporary files.

    Returns:
        (num_own, width) in the order of the rank's vertices, of the dtype of sums; the memory of a temporary file,
        which the next check of the place's files compares with what was written.
    """
    comm, place, before = grid.comm, grid.place, list[MappedRows | UnbackedRows]()
    for each in passes:
        shape, what = (len(own.ascending), each.width), each.what
        out = together(comm, lambda what=what, shape=shape: place.mapped(folder, what, shape, place.sum_dtype))  # type: ignore[misc]
        start = 0
        # Ranks fetch rows from each other in every step, also those that have no vertices left.
        while comm.gather_numbers([start < len(own.ascending)]).any():
            stop, vertices, given = each.next(start)
            rows = features.rows(vertices)
            if given is not None:
                out.write(own(own.ascending[start:stop]), each.output(rows, given).to(place.sum_dtype))
            start = stop
        if before:
            together(comm, before.pop().check)
        before.append(out)
        features = OwnFeatures(RowExchange(comm, own, out.tensor, owner, place))
    place.files.once(before[0].check)
    return before[0].tensor
