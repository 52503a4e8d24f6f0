"""Tensors as NumPy arrays, for kernels and for storage. Elsewhere in the trainer tensors stay tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def as_array(tensor: Tensor) -> NDArray[Any]:
    """An array that shares the memory of a CPU tensor without a gradient."""
    return tensor.numpy()


def array_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """The NumPy dtype that matches a torch dtype."""
    # torch has no public table of matching NumPy dtypes, but its conversion of an empty tensor knows them.
    return torch.empty(0, dtype=dtype).numpy().dtype


def tensor_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """The torch dtype that matches a NumPy dtype."""
    return torch.from_numpy(np.empty(0, dtype)).dtype
