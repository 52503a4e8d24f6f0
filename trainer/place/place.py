"""Where a rank's tensors are, and which numbers they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.place.arrays import sum_dtype
from gnnloom.trainer.place.mapped_rows import FileChecks, MappedRows, UnbackedRows
from gnnloom.trainer.place.threads import Threads
from gnnloom.trainer.place.workspace import Workspace


class Place:
    """Makes every tensor of a rank, and has the threads and the memory of its kernels.

    :meth:`empty`, :meth:`zeros`, :meth:`like` and :meth:`contiguous` take large tensors from the workspace: only the
    thread that trains calls them. Any thread may call the other methods.

    Attributes:
        device: where the tensors are; only this room, ``kernels`` and ``comm`` look at it.
        feature_dtype: of features, activations and what is multiplied with the adjacency.
        sum_dtype: of sums, parameters, weights of edges and factors: float32 for features of bfloat16, else theirs.
        threads: run the kernels.
        workspace: memory of the tensors of an epoch.
        files: temporary files that are compared with what was written to them.
        rehearses: kernels compute nothing and nobody writes to the tensors, which may exceed this machine's memory.
    """

    device: Final = torch.device("cpu")

    def __init__(
        self, feature_dtype: torch.dtype = torch.float32, num_threads: int = 1, *, rehearses: bool = False
    ) -> None:
        self.feature_dtype, self.sum_dtype = feature_dtype, sum_dtype(feature_dtype)
        self.threads, self.workspace = Threads(num_threads), Workspace(is_rehearsed=rehearses)
        self.rehearses, self.files = rehearses, FileChecks()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor without values."""
        return self.workspace.empty(shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor of zeros."""
        return self.workspace.empty(shape, dtype).zero_()

    def mapped(self, folder: Path, what: str, shape: Sequence[int], dtype: torch.dtype) -> MappedRows | UnbackedRows:
        """Rows in a file without a name. Who reads them has them compared with what was written, see ``files``.

        Args:
            folder: of the file.
            what: the rows, for messages.

        Raises:
            OSError: the disk is full.
        """
        return UnbackedRows(shape, dtype) if self.rehearses else MappedRows(folder, what, shape, dtype)

    def like(self, tensor: Tensor) -> Tensor:
        """A contiguous tensor without values, of the shape and dtype of another."""
        return self.workspace.empty(tensor.shape, tensor.dtype)

    def contiguous(self, tensor: Tensor) -> Tensor:
        """The tensor itself if it is contiguous, or a copy."""
        return tensor if tensor.is_contiguous() else self.like(tensor).copy_(tensor)

    def lasting(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Zeros outside of the workspace, for what outlasts an epoch or is no part of one."""
        return torch.zeros(tuple(shape), dtype=dtype, device=self.device)

    def tensor(self, numbers: Sequence[float], dtype: torch.dtype) -> Tensor:
        """(len(numbers),) a tensor of a few numbers."""
        return torch.tensor(numbers, dtype=dtype, device=self.device)

    def from_numpy(self, array: NDArray[Any]) -> Tensor:
        """An array as a tensor, which shares its memory if that is where the tensors are."""
        return torch.from_numpy(array).to(self.device)

    def uniform(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Random float64 numbers in [0, 1), the same on every device."""
        return torch.rand(tuple(shape), generator=generator, dtype=torch.float64).to(self.device)

    def has(self, tensor: Tensor) -> bool:
        """Whether a tensor is where this rank's tensors are."""
        return tensor.device == self.device

    @contextmanager
    def creating_modules(self) -> Iterator[None]:
        """Inside the block, modules of torch create parameters here, in the dtype of sums, unless told otherwise."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.sum_dtype)
        try:
            with self.device:
                yield
        finally:
            torch.set_default_dtype(before)
