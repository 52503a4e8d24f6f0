"""Dense products in the workspace, and the gradient of a weight in either of two orders, with torch's products.

Products of bfloat16 are summed in float32 and rounded once. The gradient of a weight is float32: products of a few
thousand rows are rounded to bfloat16, and their sum is formed in float32. In float32, products of more rows are added
in float64.
"""

from __future__ import annotations

import time
from functools import cache

import torch
from torch import Tensor

from gnnloom.trainer.kernels.elementwise import add_in_order, chunk_groups, converted, in_chunks, widened, widened_rows
from gnnloom.trainer.place.arrays import sum_dtype
from gnnloom.trainer.place.place import Place

#: The first product of a shape pays for the library's setup; the fastest of three excludes it.
_TRIALS = 3
#: Rows of the products whose sum is a weight's gradient, in bfloat16, and rows that are widened at a time: they stay in
#: the second-level cache.
_SUMMED_ROWS = 2048
#: See :func:`_product_rows`.
_NARROW, _NARROW_ROWS, _WIDE_ROWS = 8, 1 << 12, 1 << 18
#: Maximum number of products per call, and of numbers in them, so that unsummed products take few bytes.
_MOST_PRODUCTS, _PRODUCT_NUMBERS = 256, 1 << 18


def matmul(left: Tensor, right: Tensor, place: Place, out: Tensor | None = None) -> Tensor:
    """(num_rows, num_columns) product of two matrices, in the workspace; not differentiable.

    Args:
        left: (num_rows, inner) of the dtype of the result.
        right: (inner, num_columns), usually a weight; converted to this dtype.
        out: (num_rows, num_columns) of the dtype of the result, to overwrite; a new matrix by default.
    """
    out = place.empty((left.shape[0], right.shape[1]), left.dtype) if out is None else out
    right = converted(right, left.dtype, place)
    if left.dtype != torch.bfloat16 or _multiplies_bfloat16():
        return torch.mm(left, right, out=out)
    # Some rows at a time: in float32, the whole matrix would take twice its memory.
    wide = place.empty(tuple(right.shape), torch.float32).copy_(right)
    product = place.empty((min(widened_rows(left), len(left)), right.shape[1]), torch.float32)
    for rows, some in widened(left, torch.float32, place):
        out[rows] = torch.mm(some, wide, out=product[: len(some)])
    return out


def weight_gradient(features: Tensor, gradient: Tensor, place: Place, *, transposed: bool = False) -> Tensor:
    """H^T dQ, or the same matrix as the transpose of dQ^T H (``transposed``).

    Args:
        features: (num_rows, input dim) H.
        gradient: (num_rows, output dim) dQ.

    Returns:
        (input dim, output dim), contiguous; float32 for bfloat16.
    """
    # Copied to row-major order, because a transport takes contiguous tensors only.
    if transposed:
        return place.contiguous(_summed_product(gradient, features, place).T)
    return _summed_product(features, gradient, place)


def _summed_product(left: Tensor, right: Tensor, place: Place) -> Tensor:
    """left^T right, in the dtype of sums."""
    shape = left.shape[1], right.shape[1]
    if left.dtype == sum_dtype(left.dtype):
        step = _product_rows(shape)
        if left.dtype == torch.float64 or len(left) <= step:
            return matmul(left.T, right, place)
        whole, product = place.zeros(shape, torch.float64), place.empty(shape, left.dtype)
        for start in place.steps(range(0, len(left), step)):
            whole += torch.mm(left[start : start + step].T, right[start : start + step], out=product)
        return product.copy_(whole)
    total = place.zeros(shape, sum_dtype(left.dtype))
    # The threads share the products of a group: waking them takes longer than a single product of a few columns.
    most = min(_MOST_PRODUCTS, _PRODUCT_NUMBERS // max(1, total.numel())) if _multiplies_bfloat16() else 1
    for rows in chunk_groups(len(left), _SUMMED_ROWS, most, place):
        factors = in_chunks(left[rows], _SUMMED_ROWS).transpose(1, 2), in_chunks(right[rows], _SUMMED_ROWS)
        products = place.empty((len(factors[0]), *shape), left.dtype)
        if _multiplies_bfloat16():
            torch.bmm(*factors, out=products)
        else:
            wide = [place.empty(tuple(factor.shape), torch.float32).copy_(factor) for factor in factors]
            products.copy_(torch.bmm(*wide, out=place.empty(tuple(products.shape), torch.float32)))
        add_in_order(total, products, place)
    return total


def _product_rows(shape: tuple[int, int]) -> int:
    """Number of rows of the float32 products whose sum, in float64, is the gradient of a weight of a given shape.

    MKL adds some hundreds of rows at a time, and if there are few columns, one row after the other: over a million
    rows, relative errors would be up to 5e-5 and 2e-3. Products with up to 8 columns also take a quarter of the time.
    """
    is_narrow = shape[0] == 1 or shape[1] <= _NARROW
    return _NARROW_ROWS if is_narrow else _WIDE_ROWS


@cache
def _multiplies_bfloat16() -> bool:
    """Whether oneDNN has bfloat16 products for this processor's vectors; torch's own loops are far slower."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001


def seconds_of_weight_gradients(features: Tensor, gradient: Tensor, place: Place) -> tuple[float, float]:
    """Seconds that this process needs for H^T dQ and for (dQ^T H)^T. Communicates nothing.

    Args:
        features: (num_rows, input dim) H.
        gradient: (num_rows, output dim) dQ.

    Ranjan et al., "Plexus" (SC 2025), section 5: in some libraries one order takes several times as long as the other.
    """
    straight = _seconds(features, gradient, place, transposed=False)
    return straight, _seconds(features, gradient, place, transposed=True)


def _seconds(features: Tensor, gradient: Tensor, place: Place, *, transposed: bool) -> float:
    found = []
    for _ in range(_TRIALS):
        started = time.perf_counter()
        weight_gradient(features, gradient, place, transposed=transposed)
        found.append(time.perf_counter() - started)
    return min(found)
