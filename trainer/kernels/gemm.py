"""Dense products into the workspace, and the gradient of a weight in either of two orders. torch multiplies."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from gnnloom.trainer.kernels.workspace import Workspace

#: The first product of a shape pays for the library's setup; the fastest of three excludes it.
_TRIALS = 3


def matmul(left: Tensor, right: Tensor, workspace: Workspace) -> Tensor:
    """(num_rows, num_columns) product of two matrices, in the workspace; not differentiable."""
    out = workspace.empty((left.shape[0], right.shape[1]), left.dtype)
    return torch.mm(left, right, out=out)


def weight_gradient(features: Tensor, gradient: Tensor, workspace: Workspace, *, transposed: bool = False) -> Tensor:
    """H^T dQ, or the same matrix as the transpose of dQ^T H (``transposed``).

    Args:
        features: (num_rows, input dim) H.
        gradient: (num_rows, output dim) dQ.

    Returns:
        (input dim, output dim), contiguous.
    """
    # Copied to row-major order, because a transport takes contiguous tensors only.
    if transposed:
        return workspace.contiguous(matmul(gradient.T, features, workspace).T)
    return matmul(features.T, gradient, workspace)


def seconds_of_weight_gradients(features: Tensor, gradient: Tensor, workspace: Workspace) -> tuple[float, float]:
    """Seconds that this process needs for H^T dQ and for (dQ^T H)^T. Communicates nothing.

    Args:
        features: (num_rows, input dim) H.
        gradient: (num_rows, output dim) dQ.

    Ranjan et al., "Plexus" (SC 2025), section 5: in some libraries one order takes several times as long as the other.
    """
    straight = _seconds(features, gradient, workspace, transposed=False)
    return straight, _seconds(features, gradient, workspace, transposed=True)


def _seconds(features: Tensor, gradient: Tensor, workspace: Workspace, *, transposed: bool) -> float:
    found = []
    for _ in range(_TRIALS):
        started = time.perf_counter()
        weight_gradient(features, gradient, workspace, transposed=transposed)
        found.append(time.perf_counter() - started)
    return min(found)
