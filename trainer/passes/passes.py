"""The loop of all evaluations on ranges of rows: for each range, read rows, compute, and write rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.data.owners import Owners
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.feed.feature_view import FeatureView, OwnFeatures
from gnnloom.trainer.place.mapped_rows import MappedRows
from gnnloom.trainer.place.place import Place

#: Writes some rows of an output, given the number of the first one.
Out = Callable[[int, Tensor], None]


class Pass(Protocol):
    """A computation of every row from other rows."""

    def next(self, start: int) -> tuple[int, Any]:
        """The range of rows that begins at ``start``: the number after its last row, and what the other methods take.

        Args:
            start: perhaps there are no more rows.
        """
        ...

    def read(self, given: Any) -> Any:
        """The rows that the outputs of a range are computed from.

        Args:
            given: see :meth:`next`.
        """
        ...

    def outputs(self, given: Any, rows: Any) -> Sequence[Tensor]:
        """The outputs of a range, each (number of its rows, width of the output); none if there is nothing to compute.

        Args:
            rows: see :meth:`read`.
        """
        ...


def run_pass(
    each: Pass, num_rows: int, outs: Sequence[Out | None], place: Place, comm: Communicator | None = None
) -> None:
    """Compute all rows, a range at a time. Collective if there is a communicator.

    Args:
        num_rows: of this rank.
        outs: where the outputs go; None for an output that nobody wants.
        comm: the ranks that read each other's rows.
    """

    def ranges() -> Iterator[tuple[int, Any]]:
        start = 0
        # Ranks fetch rows from each other in every step; a rank without further rows takes part.
        while start < num_rows if comm is None else comm.gather_numbers([start < num_rows]).any():
            stop, given = each.next(start)
            yield start, given
            start = stop

    # The rows of a range stay until the next range has its rows.
    for start, given in place.steps(ranges(), 2):
        rows = each.read(given)
        for out, computed in zip(outs, each.outputs(given, rows), strict=False):
            if out is not None:
                out(start, computed)


class Layer(Protocol):
    """A computation of every vertex from rows of vertices.

    Attributes:
        what: the outputs, for messages.
        width: their columns.
    """

    what: str
    width: int

    def next(self, start: int) -> tuple[int, NDArray[np.int64], Any]:
        """The next vertices of this rank, in ascending order, up to the memory limit.

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


class _LayerPass:
    """See :class:`Pass`: a layer on rows that a view has."""

    def __init__(self, layer: Layer, features: FeatureView) -> None:
        self._layer, self._features = layer, features

    def next(self, start: int) -> tuple[int, Any]:
        stop, *given = self._layer.next(start)
        return stop, given

    def read(self, given: Any) -> Tensor:
        return self._features.rows(given[0])

    def outputs(self, given: Any, rows: Tensor) -> Sequence[Tensor]:
        return [] if given[1] is None else [self._layer.output(rows, given[1])]


def run_passes(
    layers: Iterable[Layer],
    features: FeatureView,
    own: LocalNumbers,
    owner: Owners | None,
    grid: ProcessGrid,
    folder: Path,
) -> Tensor:
    """The outputs of the last layer for the vertices of this rank. Collective.

    The output of a layer is in temporary files, one on every rank for its own vertices; the next layer gets rows of
    other ranks from there. Every neighbor of every vertex is gathered, as in full-graph evaluation (Hamilton, Ying,
    Leskovec, NeurIPS 2017, algorithm 1).

    Args:
        layers: one or more.
        features: what the first layer reads.
        own: finds the rows of this rank's vertices.
        owner: rank of every vertex; None if this rank owns all.
        folder: of temporary files.

    Returns:
        (num_own, width) in the order of the rank's vertices, of the dtype of sums; mapped from a temporary file; the
        next check of the place's files compares the file with its checksums.
    """
    comm, place, count, before = grid.comm, grid.place, len(own.ascending), list[MappedRows]()
    for layer in layers:
        shape, what = (count, layer.width), layer.what
        out = together(comm, lambda what=what, shape=shape: place.mapped(folder, what, shape, place.sum_dtype))  # type: ignore[misc]

        def write(start: int, rows: Tensor, out: MappedRows = out) -> None:
            out.write(own(own.ascending[start : start + len(rows)]), rows.to(place.sum_dtype))

        run_pass(_LayerPass(layer, features), count, [write], place, comm)
        if before:
            together(comm, before.pop().check)
        before.append(out)
        features = OwnFeatures(RowExchange(comm, own, out.tensor, owner, place))
    place.files.once(before[0].check)
    return before[0].tensor
