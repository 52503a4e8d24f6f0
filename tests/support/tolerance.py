"""How far two results may differ that were computed in floating point, in different orders."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

#: Bits that a result may lose beyond the rounding of its sums: gradients and updates divide by small numbers.
_LOST_BITS = 10


def tolerance(steps: int = 1, terms: int = 1, dtype: Any = np.float64) -> float:
    """Relative difference allowed between two results of the same computation.

    Every sum of ``terms`` numbers rounds at most ``terms`` times, and every step adds its own rounding to what it
    was given, so the bound grows with both (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2).

    Args:
        steps: steps that follow each other, such as epochs times layers.
        terms: numbers in the longest sum, such as the highest degree.
    """
    return 2**_LOST_BITS * steps * terms * float(np.finfo(dtype).eps)


def assert_close(
    found: ArrayLike,
    expected: ArrayLike,
    *,
    steps: int = 1,
    terms: int = 1,
    dtype: Any = np.float64,
    message: str = "",
) -> None:
    """Check that two arrays differ by no more than :func:`tolerance`, relative to the largest number expected.

    Args:
        found, expected: of one shape; an element near 0 may differ by as much as a large one.
    """
    allowed = tolerance(steps, terms, dtype)
    scale = float(np.max(np.abs(np.asarray(expected, float)), initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=allowed, atol=allowed * scale, err_msg=message)
