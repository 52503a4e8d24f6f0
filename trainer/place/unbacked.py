"""A place for the forecast of memory, whose tensors have shapes and no values."""

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
    """Nobody writes to its large tensors, which may be larger than this machine's memory."""

    def __init__(self, kernels: Kernels, feature_dtype: torch.dtype = torch.float32, num_threads: int = 1) -> None:
        """Begin without tensors.

        Args:
            kernels: compute nothing.
        """
        super().__init__(feature_dtype, num_threads, kernels, Workspace(UNLIMITED))

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor of zeros: small tensors are computed with, and what memory has had must not decide."""
        found = super().empty(shape, dtype)
        return found.zero_() if found.nbytes < SMALL else found

    def mapped(self, folder: Path, what: str, shape: Sequence[int], dtype: torch.dtype) -> UnbackedRows:  # noqa: ARG002
        """Rows that are not written to any file."""
        return UnbackedRows(shape, dtype)

    def steps(self, steps: Iterable[Step], alike: int = 1) -> Iterable[Step]:
        """The first steps of a loop, which take memory of their own."""
        return islice(steps, alike)
