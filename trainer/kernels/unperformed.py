"""Measures the memory of an epoch with memory that is never written, and operations that return shapes without values.

The code of an epoch runs; only operations that would read or write a large tensor are left out. Arrays and tensors are
ordinary CPU objects whose pages are never touched, so the system allocates no pages, and they may be larger than the
memory of this machine. torch's own meta tensors would do for the shapes, but most of their kernels import torch's
compiler, which takes seconds and a hundred megabytes.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Final, Self, TypeVar
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _get_current_dispatch_mode

from gnnloom.trainer.place.arrays import as_array
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.workspace import SMALL, UNLIMITED

Made = TypeVar("Made")


class Unwritten:
    """Arrays without values, and the maximum memory of all arrays of a process and a workspace.

    Counts inside a ``with`` block. Arrays that NumPy allocates there count as well, and Python's objects do not.

    Attributes:
        place: place without values.
        peak: maximum number of bytes of arrays and workspace at one time.
        workspace_at_peak: bytes of the workspace at that time.
    """

    def __init__(self, place: Place) -> None:
        self.place: Final = place
        self.peak = self.workspace_at_peak = 0
        self._unwritten = self._before = 0
        # Addresses of the arrays of whole numbers with values.
        self._valued = set[int]()

    def __enter__(self) -> Self:
        self._stops = not tracemalloc.is_tracing()
        if self._stops:
            trace_arrays()
        self._before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        return self

    def __exit__(self, *_: object) -> None:
        if self._stops:
            tracemalloc.stop()

    @property
    def held(self) -> int:
        """Bytes of the arrays that exist now, without the workspace."""
        return self._unwritten + tracemalloc.get_traced_memory()[0] - self._before

    def observe(self) -> None:
        """Record allocations since the last call; runs automatically whenever an array is made."""
        # The maximum sum of NumPy's arrays since then, because short-lived arrays do not exist at the time of a call.
        total = self._unwritten + self.place.workspace.nbytes + tracemalloc.get_traced_memory()[1] - self._before
        if total > self.peak:
            self.peak, self.workspace_at_peak = total, self.place.workspace.nbytes
        tracemalloc.reset_peak()

    def momentary(self, make: Callable[[], Made]) -> tuple[Made, int]:
        """The result of a function, and the maximum bytes of arrays that the function had in addition to the result."""
        self.observe()
        made = make()
        now, most = tracemalloc.get_traced_memory()
        self.observe()
        return made, max(0, most - now)

    def array(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array of zeros; a large one must not be written to."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALL:
            return np.zeros(shape, dtype)
        array: NDArray[Any] = np.ndarray(shape, dtype, mmap.mmap(-1, nbytes, flags=UNLIMITED))
        self._unwritten += nbytes
        finalize(array, self._give_back, nbytes).atexit = False
        self.observe()
        return array

    def _give_back(self, nbytes: int) -> None:
        self.observe()
        self._unwritten -= nbytes

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor of zeros; a large one must not be written to."""
        count = math.prod(shape)
        if count * dtype.itemsize < SMALL:
            return torch.zeros(tuple(shape), dtype=dtype)
        return (
            torch.from_numpy(self.array((count * dtype.itemsize,), np.dtype(np.uint8))).view(dtype).view(tuple(shape))
        )

    def valued(self, numbers: Tensor) -> Tensor:
        """A copy of whole numbers whose values operations may read, until an unperformed operation writes to it."""
        array = as_array(numbers).copy()
        self._valued.add(array.ctypes.data)
        finalize(array, self._valued.discard, array.ctypes.data).atexit = False
        return torch.from_numpy(array)

    def is_valued(self, tensor: Tensor) -> bool:
        """Whether a tensor is from :meth:`valued`, or a view of such a tensor."""
        return bool(self._valued) and tensor.untyped_storage().data_ptr() in self._valued

    def overwrite(self, tensors: Sequence[Tensor]) -> None:
        """Record that an unperformed operation writes to tensors."""
        self._valued.difference_update(each.untyped_storage().data_ptr() for each in tensors)


class _Allocator(ctypes.Structure):
    """``PyMemAllocatorEx`` of Python's C API."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free"))


def trace_arrays() -> None:
    """Start to trace only the memory of NumPy's arrays: tracing all objects would take twice as long as a rehearsal."""
    python = ctypes.pythonapi
    # Python allocates raw memory, buffers and objects.
    allocators = [_Allocator() for _ in range(3)]
    for domain, allocator in enumerate(allocators):
        python.PyMem_GetAllocator(domain, ctypes.byref(allocator))
    tracemalloc.start()
    # Tracing has replaced the allocators by its own functions. NumPy calls other functions when it has allocated an
    # array.
    for domain, allocator in enumerate(allocators):
        python.PyMem_SetAllocator(domain, ctypes.byref(allocator))


def even_offsets(count: int, total: int) -> NDArray[np.int64]:
    """(count,) int64 offsets that begin at 0 and end at ``total``, of ranges of about equal lengths."""
    return np.linspace(0, total, count).astype(np.int64)


_ATEN = torch.ops.aten
#: Operations whose results have the shape of their operand.
_ALIKE = frozenset(
    {
        _ATEN.clone,
        _ATEN._to_copy,  # noqa: SLF001
        _ATEN.zeros_like,
        _ATEN.ones_like,
        _ATEN.empty_like,
        _ATEN.index_put,
        _ATEN.index_add,
        _ATEN.softplus_backward,
        _ATEN.leaky_relu_backward,
    }
)
#: Operations from sorted numbers to where each number begins; ``size`` is one number.
_OFFSETS = frozenset({_ATEN._convert_indices_from_coo_to_csr})  # noqa: SLF001
_PRODUCTS = frozenset({_ATEN.mm, _ATEN.addmm})
_REDUCTIONS = frozenset(
    {
        _ATEN.sum,
        _ATEN.mean,
        _ATEN.any,
        _ATEN.all,
        _ATEN.max,
        _ATEN.min,
        _ATEN.amax,
        _ATEN.amin,
        _ATEN.argmax,
        _ATEN.logsumexp,
    }
)


def tensors_in(values: Iterable[object]) -> list[Tensor]:
    """The tensors among some arguments."""
    # An epoch of a small training run calls this thousands of times: a generator would take three times as long.
    found = list[Tensor]()
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += tensors_in(value)
    return found


def mapped(change: Callable[[Tensor], Tensor], values: Any) -> Any:
    """The same values with every tensor changed."""
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, tuple | list):
        return type(values)(mapped(change, value) for value in values)
    return values


def result_shape(function: Any, given: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The shape of an operation's only result; None for an unknown operation.

    ``nonzero`` and masks find every entry, so results that depend on values have their largest possible size.

    Args:
        given: the arguments by name.
    """
    kind, operand = function.overloadpacket, given.get("self")
    if kind in _OFFSETS:
        return (given["size"] + 1,)
    # A view's gradient has the sizes of the whole tensor.
    for name in ("size", "input_sizes"):
        if name in given:
            return tuple(given[name])
    if kind is _ATEN.cat or kind is _ATEN.stack:
        return _joined(
            [tuple(each.shape) for each in given["tensors"]], given.get("dim", 0), stacks=kind is _ATEN.stack
        )
    if torch.Tag.pointwise in function.tags:
        return tuple(np.broadcast_shapes(*(each.shape for each in tensors_in(given.values()))))
    return None if operand is None else _shape_from(operand, kind, given)


def _shape_from(operand: Tensor, kind: Any, given: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The shape of the only result of an operation on an operand; None for an unknown operation."""
    shape: tuple[int, ...] = tuple(operand.shape)
    if kind in _ALIKE:
        return shape
    if kind in _PRODUCTS:
        left = given.get("mat1", operand)
        return left.shape[0], given["mat2"].shape[1]
    if kind is _ATEN.nonzero:
        return operand.numel(), operand.dim()
    if kind is _ATEN.bincount:
        # Bins beyond the least number are not many.
        return (given.get("minlength", 0),)
    if kind is _ATEN.gather:
        return tuple(given["index"].shape)
    if kind is _ATEN.index_select:
        dim = given["dim"] % operand.dim()
        return (*shape[:dim], len(given["index"]), *shape[dim + 1 :])
    if kind is _ATEN.index:
        return _indexed(shape, given["indices"])
    # Operations along one dimension also have a second result, the positions of the values.
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
    if function.overloadpacket in _OFFSETS:
        return torch.int32 if given.get("out_int32") else torch.int64
    if "size" in given:
        found = given["self"].dtype if "self" in given else torch.get_default_dtype()
        return found
    if "input_sizes" in given:
        found = given["grad_output"].dtype
        return found
    if function.overloadpacket in {_ATEN.index, _ATEN.index_select, _ATEN.index_put, _ATEN.gather}:
        found = given["self"].dtype
        return found
    tiny = {name: mapped(lambda each: each.new_zeros((1,) * each.dim()), value) for name, value in given.items()}
    found = function(**tiny).dtype
    return found


def _joined(shapes: Sequence[tuple[int, ...]], dim: int, *, stacks: bool) -> tuple[int, ...]:
    """The shape of tensors one after the other along a dimension, which is a new one if they are stacked."""
    dim %= len(shapes[0]) + stacks
    shapes = [(*shape[:dim], 1, *shape[dim:]) for shape in shapes] if stacks else shapes
    return (*shapes[0][:dim], sum(shape[dim] for shape in shapes), *shapes[0][dim + 1 :])


def _indexed(shape: tuple[int, ...], indices: list[Tensor | None]) -> tuple[int, ...] | None:
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) != 1:
        return None
    dim, index = given[0]
    if index.dtype is torch.bool:
        return (*shape[:dim], index.numel(), *shape[dim + index.dim() :])
    return (*shape[:dim], *index.shape, *shape[dim + 1 :])


def _reduced(shape: tuple[int, ...], dim: Any, *, keepdim: bool) -> tuple[int, ...]:
    dims = range(len(shape)) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    gone = {each % len(shape) for each in dims}
    return tuple(1 if each in gone else size for each, size in enumerate(shape) if keepdim or each not in gone)


def with_values(numbers: Tensor) -> Tensor:
    """Whole numbers that keep their values in a rehearsal, like results that are computed only from such numbers."""
    mode = _get_current_dispatch_mode()
    if not isinstance(mode, Unperformed):
        return numbers
    with performed():
        return mode.memory.valued(numbers)


def performed() -> AbstractContextManager[object]:
    """Perform operations inside the block, also in a rehearsal."""
    return _disable_current_modes()


class Unperformed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, torch's operations on large tensors return results of the right shapes at once.

    Small results are zeros, except the sum of all numbers, which is 1. Operations on whole numbers with values are
    performed, see :func:`with_values`.
    """

    def __init__(self, memory: Unwritten) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = memory

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Telling torch's compiler to leave this class alone would import the compiler, which takes seconds.
        return False

    def __torch_dispatch__(
        self,
        function: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function.is_view:
            return function(*args, **(kwargs or {}))
        names, changed = _arguments(function)
        operands = tensors_in((*args, *(kwargs or {}).values()))
        large = [each for each in operands if each.nbytes >= SMALL]
        if (not large or self._counts(operands, large)) and (
            changed or "size" not in names or function.overloadpacket in _OFFSETS
        ):
            try:
                found = function(*args, **(kwargs or {}))
            except (RuntimeError, IndexError):
                # An unconnected rank may expect one row more or less than other ranks would send.
                if not changed:
                    raise
            else:
                if changed:
                    return found
                known = any(map(self.memory.is_valued, operands))
                return mapped(lambda each: self._counted(each, known=known), found)
        given = dict(zip(names, args, strict=False)) | dict(kwargs or {})
        written = [given[name] for name in changed]
        if written:
            self.memory.overwrite(written)
            return written[0] if len(written) == 1 else tuple(written)
        if function.overloadpacket is _ATEN.index:
            given["indices"] = [self._positions(each) for each in given["indices"]]
        shape = result_shape(function, given)
        if shape is None:
            on_meta = {name: mapped(_on_meta, value) for name, value in given.items()}
            return mapped(self._like, function(**on_meta))
        dtype = result_dtype(function, given)
        if not large and math.prod(shape) * dtype.itemsize < SMALL:
            return function(*args, **(kwargs or {}))
        found = self.memory.tensor(shape, dtype)
        # The number of terms of a loss is such a sum, and a mode leaves out a step without terms.
        return found.fill_(1) if function.overloadpacket is _ATEN.sum and not shape else found

    def _counts(self, operands: Sequence[Tensor], large: Sequence[Tensor]) -> bool:
        """Whether all operands are whole numbers, and the large ones have values."""
        return all(map(self.memory.is_valued, large)) and not any(map(torch.is_floating_point, operands))

    def _like(self, tensor: Tensor) -> Tensor:
        return self.memory.tensor(tensor.shape, tensor.dtype)

    def _counted(self, result: Tensor, *, known: bool) -> Tensor:
        """Return the result of a performed operation, and count the result among the arrays if it is large.

        Args:
            known: the values of the operands are meaningful.
        """
        if result.is_floating_point():
            return result if result.nbytes < SMALL else self._like(result)
        return self.memory.valued(result) if known or result.nbytes >= SMALL else result

    def _positions(self, index: Tensor | None) -> Tensor | None:
        """The positions that a mask with values selects."""
        if index is None or index.dtype is not torch.bool or index.dim() != 1 or not self.memory.is_valued(index):
            return index
        return index.nonzero()[:, 0]


@cache
def _arguments(function: Any) -> tuple[list[str], list[str]]:
    """Names of an operation's arguments, and of the arguments that it writes to and returns."""
    declared = function._schema.arguments  # noqa: SLF001 - torch has no other way to ask
    return [each.name for each in declared], [
        each.name for each in declared if each.alias_info and each.alias_info.is_write
    ]


def _on_meta(tensor: Tensor) -> Tensor:
    """A tensor of the same shape without memory."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
