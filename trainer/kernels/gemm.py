"""The gradient of a weight: a product of two tall matrices, in either of two orders. torch multiplies."""

from __future__ import annotations

import time

from torch import Tensor

#: The first product of a shape pays for the library's setup; the fastest of three excludes it.
_TRIALS = 3


def weight_gradient(features: Tensor, gradient: Tensor, *, transposed: bool) -> Tensor:
    """H^T dQ, or the same matrix as the transpose of dQ^T H (``transposed``).

    Args:
        features: (num_rows, input dim) H.
        gradient: (num_rows, output dim) dQ.

    Returns:
        (input dim, output dim), contiguous.
    """
    # Copied to row-major order, because a transport takes contiguous tensors only.
    return (gradient.T @ features).T.contiguous() if transposed else features.T @ gradient


def seconds_of_weight_gradients(features: Tensor, gradient: Tensor) -> tuple[float, float]:
    """Seconds that this process needs for H^T dQ and for (dQ^T H)^T. Communicates nothing.

    Args:
        features: (num_rows, input dim) H.
        gradient: (num_rows, output dim) dQ.

    Ranjan et al., "Plexus" (SC 2025), section 5: in some libraries one order takes several times as long as the other.
    """
    return _seconds(features, gradient, transposed=False), _seconds(features, gradient, transposed=True)


def _seconds(features: Tensor, gradient: Tensor, *, transposed: bool) -> float:
    found = []
    for _ in range(_TRIALS):
        started = time.perf_counter()
        weight_gradient(features, gradient, transposed=transposed)
        found.append(time.perf_counter() - started)
    return min(found)
