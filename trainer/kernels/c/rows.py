"""The passes over rows of features, in C (rectify_kernel.h)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gnnloom.trainer.kernels.c.library import DTYPES, Library, Rows
from gnnloom.trainer.kernels.contract import RowPass


def c_rows(library: Library, given: RowPass) -> Callable[[int, int], None]:
    """The function that computes a range of the rows, whose tensors the caller keeps alive."""
    mask = given.mask
    return partial(
        library.rows,
        Rows(
            source=given.source.data_ptr(),
            result=given.result.data_ptr(),
            bias=None if given.bias is None else given.bias.data_ptr(),
            passed=None if given.passed is None else given.passed.data_ptr(),
            vertex=None if mask is None else mask.vertex.ctypes.data,
            dim=given.source.shape[1],
            first_column=0 if mask is None else mask.first_column,
            key=0 if mask is None else int(mask.key),
            threshold=0 if mask is None else int(mask.threshold),
            scale=given.scale,
            step=given.step,
            dtype=DTYPES[given.source.dtype],
        ),
    )
