"""Operations that return shapes without values, to find out how much memory an epoch takes before data is read.

The code that runs is that of an epoch; only what would read or write a large tensor is left out. Tensors are ordinary
ones on the CPU, whose memory nobody touches, so the system gives them none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gnnloom.trainer.kernels.contract import SoftmaxGradient, SoftmaxState
from gnnloom.trainer.place.workspace import SMALL


class UnperformedProduct:
    """See :class:`gnnloom.trainer.kernels.contract.SparseProduct`; leaves every output as it is."""

    def __init__(self, num_rows: int, num_columns: int, nnz: int) -> None:
        self.num_rows, self.num_columns, self.nnz = num_rows, num_columns, nnz

    def multiply(
        self,
        dense: Tensor,
        out: Tensor,
        row_scale: Tensor,
        *,
        accumulate: bool = False,
        column_scale: Tensor | None = None,
        progress: Callable[[], None] | None = None,
    ) -> None:
        """Compute nothing."""

    def restricted(self, rows: NDArray[np.int64]) -> UnperformedProduct:  # noqa: ARG002
        return self


class UnperformedSoftmax:
    """See :class:`gnnloom.trainer.kernels.contract.EdgeSoftmax`; leaves every output as it is."""

    def accumulate(self, values: Tensor, source: Tensor, target: Tensor, state: SoftmaxState) -> None:
        """Compute nothing."""

    def add_target_gradient(
        self, values: Tensor, source: Tensor, target: Tensor, gradient: SoftmaxGradient, out: Tensor
    ) -> None:
        """Compute nothing."""

    def add_source_gradient(
        self,
        values: Tensor,
        source: Tensor,
        target: Tensor,
        gradient: SoftmaxGradient,
        of_values: Tensor,
        of_scores: Tensor,
    ) -> None:
        """Compute nothing."""


class Unperformed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, torch's operations on large tensors return results of the right shapes at once.

    Small results are zeros. ``nonzero`` finds every entry, so tensors that depend on it have their largest possible
    size.
    """

    def __torch_dispatch__(
        self,
        function: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if function.is_view or all(tensor.nbytes < SMALL for tensor in _tensors((*args, *given.values()))):
            return function(*args, **given)
        written = _written(function, args, given)
        if written:
            return written[0] if len(written) == 1 else tuple(written)
        if function is torch.ops.aten.nonzero.default:
            return torch.empty((args[0].numel(), args[0].dim()), dtype=torch.int64)
        if given.get("device") is not None:
            given["device"] = torch.device("meta")
        return _mapped(_unwritten, function(*_mapped(_shape, args), **_mapped(_shape, given)))


def _tensors(values: object) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)


def _written(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The operands that an operation would write to, and then return."""
    arguments = function._schema.arguments  # noqa: SLF001 - torch has no other way to ask
    given = {argument.name: value for argument, value in zip(arguments, args, strict=False)} | dict(kwargs)
    return [given[each.name] for each in arguments if each.alias_info and each.alias_info.is_write]


def _mapped(change: Callable[[Tensor], Tensor], values: Any) -> Any:
    """The same values with every tensor changed."""
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, dict):
        return {name: _mapped(change, value) for name, value in values.items()}
    if isinstance(values, tuple | list):
        return type(values)(_mapped(change, value) for value in values)
    return values


def _shape(tensor: Tensor) -> Tensor:
    """A tensor of the same shape without memory."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _unwritten(shape: Tensor) -> Tensor:
    result = torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype)
    return result.zero_() if result.nbytes < SMALL else result
