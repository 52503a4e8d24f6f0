"""Chooses a rank's place: the device of its tensors, their dtypes, and the kernels that compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.place.arrays import as_array, sum_dtype
from gnnloom.trainer.place.contract import EdgeSoftmax, HeadsPass, RowPass, RowsOnDisk, SparseProduct, SparseRows
from gnnloom.trainer.place.mapped_rows import FileChecks, MappedRows
from gnnloom.trainer.place.threads import Threads
from gnnloom.trainer.place.workspace import Workspace

Step = TypeVar("Step")
Written = TypeVar("Written")


class Kernels(Protocol):
    """The table of kernels, for work that is not left to torch. Callers use the functions of ``kernels.dispatch``."""

    def sparse_product(self, matrix: SparseRows | RowsOnDisk, place: Place, dtype: torch.dtype) -> SparseProduct:
        """Prepare a matrix for products with dense ones of a dtype; shares its memory, or reads it each time."""
        ...

    def products_by_columns(self, matrix: CSR, parts: Sequence[slice], place: Place) -> list[SparseProduct]:
        """For every range of columns, the product of the entries there with dense matrices of features."""
        ...

    def edge_softmax(self, pattern: CSR, negative_slope: float, place: Place, *, dynamic: bool) -> EdgeSoftmax:
        """Prepare a pattern for attention of its rows over its columns."""
        ...

    def find_runs(self, factors: Tensor, runs: Tensor) -> bool:
        """Fill in the factors that all columns of a run have; returns whether most runs have one."""
        ...

    def pass_rows(self, given: RowPass, place: Place) -> None:
        """Compute a pass over rows."""
        ...

    def pass_heads(self, given: HeadsPass, place: Place) -> None:
        """Compute a pass over heads."""
        ...

    def score_block(self, left: Tensor, right: Tensor, out: Tensor, place: Place) -> None:
        """Fill in the scalar products of all rows with all rows."""
        ...

    def score_pairs(self, left: Tensor, right: Tensor, out: Tensor, place: Place) -> None:
        """Fill in the scalar products of rows with rows."""
        ...

    def score_entries(
        self, left: Tensor, right: Tensor, entries: tuple[NDArray[Any], NDArray[Any]], out: Tensor, place: Place
    ) -> None:
        """Fill in the scalar products of some rows with some rows."""
        ...

    def normal_rows(self, key: np.uint64, rows: NDArray[np.int64], columns: slice, width: int, place: Place) -> Tensor:
        """(num_rows, number of columns) float32 random numbers, functions of the key, the row and the column."""
        ...


class Place:
    """Makes every tensor of a rank, and has the threads, the memory and the table of its kernels.

    :meth:`empty`, :meth:`zeros`, :meth:`like` and :meth:`contiguous` take large tensors from the workspace: only the
    thread that trains calls them. Any thread may call the other methods.

    Attributes:
        device: device of the tensors; only this room, ``kernels`` and ``comm`` use it.
        feature_dtype: dtype of features, activations and operands of products with the adjacency.
        sum_dtype: dtype of sums, parameters, weights of edges and factors: float32 for bfloat16 features, else the
            features' dtype.
        threads: threads that run the kernels.
        workspace: memory of the tensors of an epoch.
        kernels: table of kernels; None for the kernels of this processor.
        files: temporary files to compare with their checksums.
    """

    device: Final = torch.device("cpu")

    def __init__(
        self,
        feature_dtype: torch.dtype = torch.float32,
        num_threads: int = 1,
        kernels: Kernels | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        self.feature_dtype, self.sum_dtype = feature_dtype, sum_dtype(feature_dtype)
        self.threads, self.workspace = Threads(num_threads), workspace or Workspace()
        self.kernels, self.files = kernels, FileChecks()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor without values."""
        return self.workspace.empty(shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor of zeros."""
        return self.workspace.empty(shape, dtype).zero_()

    def mapped(self, folder: Path, what: str, shape: Sequence[int], dtype: torch.dtype) -> MappedRows:
        """Rows in a file without a name. Readers check the file against its checksums; see ``files``.

        Args:
            folder: folder of the file.
            what: the rows, for messages.

        Raises:
            OSError: the disk is full.
        """
        return MappedRows(folder, what, shape, dtype)

    def steps(self, steps: Iterable[Step], alike: int = 1) -> Iterable[Step]:  # noqa: ARG002 - for places without values
        """All steps of a loop.

        Args:
            alike: after ``alike`` steps, further steps take no more memory, so a place without values leaves them out.
        """
        return steps

    def like(self, tensor: Tensor) -> Tensor:
        """A contiguous tensor without values, of the shape and dtype of another."""
        return self.workspace.empty(tensor.shape, tensor.dtype)

    def contiguous(self, tensor: Tensor) -> Tensor:
        """The tensor itself if it is contiguous, or a copy."""
        return tensor if tensor.is_contiguous() else self.like(tensor).copy_(tensor)

    def lasting(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Zeros outside the workspace, for tensors that outlast an epoch or are not part of one."""
        return torch.zeros(tuple(shape), dtype=dtype, device=self.device)

    def tensor(self, numbers: Sequence[float], dtype: torch.dtype) -> Tensor:
        """(len(numbers),) tensor of a few numbers."""
        return torch.tensor(numbers, dtype=dtype, device=self.device)

    def from_numpy(self, array: NDArray[Any]) -> Tensor:
        """An array as a tensor, which shares the array's memory if the tensors are on the CPU."""
        return torch.from_numpy(array).to(self.device)

    def to_numpy(self, tensor: Tensor) -> NDArray[Any]:
        """The values of a tensor as an array for reading, which shares the tensor's memory if this is on the CPU.

        For computations from numbers of vertices; for storage, see :meth:`store`. For bfloat16 the bits, as uint16.
        """
        return as_array(tensor.detach())

    def fill(self, tensor: Tensor, read: Callable[[NDArray[Any]], object]) -> Tensor:
        """Let a reader of arrays fill in the values of a contiguous tensor; returns the tensor.

        Args:
            read: fills an array of the tensor's shape; see :meth:`to_numpy` for its dtype.
        """
        read(as_array(tensor))
        return tensor

    def store(self, tensor: Tensor, write: Callable[[NDArray[Any]], Written]) -> Written:
        """Let a writer of arrays store the values of a tensor; returns what the writer returns.

        Args:
            write: reads an array of the tensor's shape; see :meth:`to_numpy` for its dtype.
        """
        return write(self.to_numpy(tensor))

    def arange(self, start: int, stop: int) -> Tensor:
        """(stop - start,) int64 the whole numbers of a range."""
        return torch.arange(start, stop, device=self.device)

    def uniform(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Random float64 numbers in [0, 1), the same on every device."""
        return torch.rand(tuple(shape), generator=generator, dtype=torch.float64).to(self.device)

    def has(self, tensor: Tensor) -> bool:
        """Whether a tensor is on this rank's device."""
        return tensor.device == self.device

    @contextmanager
    def creating_modules(self) -> Iterator[None]:
        """Inside the block, torch modules create parameters here, by default in the dtype of sums."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.sum_dtype)
        try:
            with self.device:
                yield
        finally:
            torch.set_default_dtype(before)
