"""A place for the forecast of memory, whose tensors have shapes but no values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from gnnloom.trainer.place.mapped_rows import UnbackedRows
from gnnloom.trainer.place.place import Kernels, Place, Step
from gnnloom.trainer.place.workspace import SMALL, UNLIMITED, Workspace


class UnbackedPlace(Place):
    """Its large tensors are never written, and may be larger than this machine's memory."""

    def __init__(self, kernels: Kernels, feature_dtype: torch.dtype) -> None:
        """Begin without tensors.

        Args:
            kernels: compute nothing.
        """
        super().__init__(feature_dtype, 1, kernels, Workspace(UNLIMITED))

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor of zeros: computations use small tensors, and must not depend on old memory contents."""
        found = super().empty(shape, dtype)
        return found.zero_() if found.nbytes < SMALL else found

    def mapped(self, folder: Path, what: str, shape: Sequence[int], dtype: torch.dtype) -> UnbackedRows:  # noqa: ARG002
        """Rows that are not written to any file."""
        return UnbackedRows(shape, dtype)

    def steps(self, steps: Iterable[Step], alike: int = 1) -> Iterable[Step]:
        """The first steps of a loop, which take additional memory."""
        return islice(steps, alike)
