"""The input of models on rows before it is read; see :mod:`gnnloom.trainer.training.rehearsal.unread`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.data.stored_rows import StoredRows
from gnnloom.trainer.place.mapped_rows import UnbackedRows
from gnnloom.trainer.place.place import Place


class UnreadStoredRows(StoredRows):
    """Rows of the same shapes, of which nothing is read or packed."""

    def __init__(self, rows: StoredRows) -> None:
        """Open nothing."""
        vars(self).update(vars(rows))

    def settled_norm(self, norm: str, comm: Communicator, place: Place) -> str:  # noqa: ARG002
        return "none" if norm == "auto" else norm

    def packed(self, rows: NDArray[np.int64]) -> UnbackedRows:
        return UnbackedRows((len(rows), self.width), torch.float32)

    def ranges(self) -> Iterator[NDArray[np.int64]]:
        """The largest range that there may be; others take the memory that it has taken."""
        yield np.arange(min(len(self.vertex), self.stride))
