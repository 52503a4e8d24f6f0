"""Rows without an adjacency, for models whose layers multiply with weights alone."""

from __future__ import annotations

from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.trainer.operators.whole_rows import WholeRows


class RowsOnly(WholeRows):
    """Every rank holds some whole rows, the same ones in every layer; nothing else is read."""

    def propagate(self, features: Tensor, layer: int, *, as_sums: bool = False) -> Tensor:  # noqa: ARG002
        raise InputError(
            f"layer {layer}: the model says that it treats rows one by one (is_rowwise), but multiplies with the"
            " adjacency"
        )
