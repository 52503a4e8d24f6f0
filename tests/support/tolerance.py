"""Computes how far two results in floating point may differ because of the order of operations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

#: Bits that one step of a training may lose: it divides by small numbers and subtracts close ones.
STEP_BITS = 10
#: Bits that parameters may lose with Adam, which divides gradients by their own size.
ADAM_BITS = 16


def tolerance(steps: int = 1, *, bits: int = STEP_BITS, dtype: Any = np.float64) -> float:
    """Relative difference allowed between two results of the same computation.

    Rounding errors grow with the number of operations that follow each other (Higham, "Accuracy and Stability of
    Numerical Algorithms", section 3.1), so the bound is a multiple of machine epsilon that grows with the steps.

    Args:
        steps: steps that follow each other, such as epochs times layers.
        bits: bits that a step may lose.
    """
    epsilon = float(np.finfo(dtype).eps)
    return float(2**bits * steps) * epsilon


def assert_close(
    found: ArrayLike,
    expected: ArrayLike,
    *,
    steps: int = 1,
    bits: int = STEP_BITS,
    dtype: Any = np.float64,
    message: str = "",
) -> None:
    """Check that two arrays differ by at most :func:`tolerance`, relative to the largest number expected, or to 1.

    Losses, weights and features are of the size of 1, so a result that is exactly 0 by the formula, such as the
    gradient of a softmax over one number, is rounding noise of that size.

    Args:
        found, expected: of one shape. An element near 0 may differ by as much as a large one.
    """
    allowed = tolerance(steps, bits=bits, dtype=dtype)
    scale = float(np.max(np.abs(np.asarray(expected, float)), initial=1.0))
    np.testing.assert_allclose(
        np.asarray(found), np.asarray(expected), rtol=allowed, atol=allowed * scale, err_msg=message
    )
