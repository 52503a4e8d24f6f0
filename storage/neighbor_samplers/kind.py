"""The descriptor of a way to draw neighbors, apart from the code that draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gnnloom.storage.descriptors import LazyClass

#: The fan-out that takes all neighbors.
ALL: Final = -1


@dataclass(frozen=True, kw_only=True)
class NeighborSamplerKind(LazyClass):
    """The descriptor of a way to draw some entries of each row of a matrix.

    The forecast of memory takes a row for as long as its fan-out, so no row may be longer.

    Attributes:
        name: name on the command line.
        order: position among the choices; equal ones are sorted by name.
        help: how a vertex draws its neighbors, as the end of a sentence.
        source: paper and section.
        place: module and class, a :class:`gnnloom.storage.sampling.layers.graph_view.MatrixView` of the matrix.
        replaces: it can draw with replacement.
    """

    name: str
    order: int = 100
    help: str
    source: str
    replaces: bool = False
