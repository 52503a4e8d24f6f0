"""Shapes and dtypes of the results of torch's operations, which are not computed.

torch's own meta tensors would do, but most of their kernels import torch's compiler, which takes seconds and a hundred
megabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

_ATEN = torch.ops.aten
#: Operations whose results have the shape of their operand.
_ALIKE = frozenset({_ATEN.clone, _ATEN._to_copy, _ATEN.zeros_like, _ATEN.ones_like, _ATEN.empty_like})  # noqa: SLF001
_REDUCTIONS = frozenset({_ATEN.sum, _ATEN.mean, _ATEN.any, _ATEN.all, _ATEN.max, _ATEN.min, _ATEN.argmax})


def tensors_in(values: object) -> Iterator[Tensor]:
    """The tensors among some arguments."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from tensors_in(value)


def mapped(change: Callable[[Tensor], Tensor], values: Any) -> Any:
    """The same values with every tensor changed."""
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, tuple | list):
        return type(values)(mapped(change, value) for value in values)
    return values


def result_shape(function: Any, given: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The shape of an operation's only result; None if it is not among the known ones.

    ``nonzero`` and masks find every entry, so results that depend on values have their largest possible size.

    Args:
        given: the arguments by name.
    """
    kind, operand = function.overloadpacket, given.get("self")
    if "size" in given:
        return tuple(given["size"])
    if operand is None:
        return None
    shape: tuple[int, ...] = tuple(operand.shape)
    if kind in _ALIKE:
        return shape
    if torch.Tag.pointwise in function.tags:
        return tuple(np.broadcast_shapes(*(each.shape for each in tensors_in(tuple(given.values())))))
    if kind is _ATEN.nonzero:
        return operand.numel(), operand.dim()
    if kind is _ATEN.bincount:
        # Bins beyond the least number are not many.
        return (given.get("minlength", 0),)
    if kind is _ATEN.index_select:
        dim = given["dim"] % operand.dim()
        return (*shape[:dim], len(given["index"]), *shape[dim + 1 :])
    if kind is _ATEN.index:
        return _indexed(shape, given["indices"])
    # Those with one dimension also have a second result, where the values are.
    if kind in _REDUCTIONS and not (kind in {_ATEN.max, _ATEN.min} and "dim" in given):
        return _reduced(shape, given.get("dim"), keepdim=given.get("keepdim", False))
    return None


def result_dtype(function: Any, given: Mapping[str, Any]) -> torch.dtype:
    """The dtype of an operation's only result, as it is for a single number."""
    found: torch.dtype
    if given.get("dtype") is not None:
        found = given["dtype"]
        return found
    if function.overloadpacket is _ATEN.nonzero or function.overloadpacket is _ATEN.bincount:
        return torch.int64
    if "size" in given:
        found = given["self"].dtype if "self" in given else torch.get_default_dtype()
        return found
    if function.overloadpacket in {_ATEN.index, _ATEN.index_select}:
        found = given["self"].dtype
        return found
    tiny = {name: mapped(lambda each: each.new_zeros((1,) * each.dim()), value) for name, value in given.items()}
    found = function(**tiny).dtype
    return found


def _indexed(shape: tuple[int, ...], indices: list[Tensor | None]) -> tuple[int, ...] | None:
    index, *others = indices
    if index is None or others:
        return None
    if index.dtype is torch.bool:
        return (index.numel(), *shape[index.dim() :])
    return (*index.shape, *shape[1:])


def _reduced(shape: tuple[int, ...], dim: Any, *, keepdim: bool) -> tuple[int, ...]:
    dims = range(len(shape)) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    gone = {each % len(shape) for each in dims}
    return tuple(1 if each in gone else size for each, size in enumerate(shape) if keepdim or each not in gone)
