"""Tensors as NumPy arrays, for kernels and for storage. Elsewhere in the trainer tensors stay tensors."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def as_array(tensor: Tensor) -> NDArray[Any]:
    """An array that shares the memory of a CPU tensor without a gradient; for bfloat16 the bits, as uint16."""
    # NumPy has no bfloat16.
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


@cache
def array_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """The NumPy dtype of :func:`as_array` for a torch dtype."""
    # torch has no public table of matching NumPy dtypes, but its conversion of an empty tensor knows them.
    return as_array(torch.empty(0, dtype=dtype)).dtype


def tensor_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """The torch dtype that matches a NumPy dtype."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums, parameters, weights of edges and factors that go with features of some dtype."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def tensor_over(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """A tensor that shares the memory of an array of the dtype :func:`array_dtype`; the inverse of :func:`as_array`."""
    tensor = torch.from_numpy(array)
    if tensor.dtype == dtype:
        return tensor
    # The array has the bits of bfloat16. Not a view, which autograd would track.
    bits: Tensor = torch.empty(0, dtype=dtype).set_(tensor.untyped_storage(), 0, tensor.shape, tensor.stride())
    return bits
