"""The operator of a range of a rank's rows: returns known products with the adjacency, and requests others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.kernels.dispatch import converted
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.operators.whole_rows import AXIS, WholeRows


class WantedProduct(Exception):  # noqa: N818 - it is a way out of a layer, not an error
    """A layer requests an unknown product.

    Attributes:
        features: (num_rows, dim) rows of the range, by which the adjacency must be multiplied.
        as_sums: the product is wanted in the dtype of sums.
    """

    def __init__(self, features: Tensor, *, as_sums: bool) -> None:
        super().__init__()
        self.features, self.as_sums = features, as_sums


class RangeOperator(WholeRows):
    """Runs layers on some rows at a time. A layer is run again for every product that it requests."""

    def __init__(self, grid: ProcessGrid) -> None:
        """Begin without rows. Communicates nothing; call :meth:`form_groups` before the first layer."""
        super().__init__(grid, np.empty(0, np.int64))
        self.load(np.empty(0, np.int64), ())

    def form_groups(self) -> None:
        """Form the groups of ranks that layers may use. Collective."""
        # Ranks have different numbers of ranges, but must form groups together.
        self.grid.group(())

    def load(self, vertex: NDArray[np.int64], products: Sequence[Tensor]) -> None:
        """Use these rows from now on.

        Args:
            vertex: (num_rows,) int64 ids of the rows.
            products: rows of the layer's known products with the adjacency, in the order in which the layer requests
                them.
        """
        self._layout = Layout(self.grid, vertex, row_axes=(AXIS,))
        self._products, self._next = products, 0

    def propagate(self, features: Tensor, layer: int, *, as_sums: bool = False) -> Tensor:  # noqa: ARG002
        """See :class:`gnnloom.trainer.operators.operator.Operator`. Communicates nothing.

        Raises:
            WantedProduct: the product is not known yet.
        """
        if self._next == len(self._products):
            raise WantedProduct(converted(features, self.place.feature_dtype, self.place), as_sums=as_sums)
        self._next += 1
        return self._products[self._next - 1]
