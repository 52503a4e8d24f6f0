"""Attention of a rank's rows over their own and halo columns, as one differentiable operation.

Velickovic et al., "Graph Attention Networks" (ICLR 2018), section 2.1, over row shards: the softmax runs over all
stored in-neighbours, a stored self loop among them, as in PyG's GATConv on the same edges without loops added.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnloom.storage.row_shards import ShardMatrix
from gnnloom.trainer.kernels.attention import EdgeSoftmax, SoftmaxGradient, SoftmaxState
from gnnloom.trainer.kernels.threads import Threads


class Attention:
    """The pattern of a rank's rows, prepared for attention."""

    def __init__(self, matrix: ShardMatrix, negative_slope: float, threads: Threads) -> None:
        self._own = EdgeSoftmax(matrix.own, negative_slope, threads)
        self._halo = EdgeSoftmax(matrix.halo, negative_slope, threads)

    def attend(self, own: Tensor, halo: Tensor, source: Tensor, halo_source: Tensor, target: Tensor) -> Tensor:
        """(num_own, heads, dim) sums of the columns' values, weighted by attention. Differentiable.

        Args:
            own: (num_own, heads, dim) values of the rank's vertices.
            halo: (num_halo, heads, dim) values of the halo's.
            source: (num_own, heads) scores as a source.
            halo_source: (num_halo, heads) the halo's.
            target: (num_own, heads) scores as a target.
        """
        result: Tensor = _Attend.apply(self, own, halo, source, halo_source, target)  # type: ignore[no-untyped-call]
        return result

    def forward(self, given: list[Any]) -> tuple[SoftmaxState, Tensor]:
        """The state of the softmax and the output."""
        own, halo, source, halo_source, target = given
        state = SoftmaxState.like(own)
        self._own.accumulate(own, source, target, state)
        self._halo.accumulate(halo, halo_source, target, state)
        # A row with columns has a sum of at least 1; one without has 0 and gets zeros.
        np.divide(state.weighted, np.maximum(state.total, 1)[:, :, None], out=state.weighted)
        return state, torch.from_numpy(state.weighted)

    def backward(self, given: list[Any], gradient: SoftmaxGradient) -> tuple[Tensor, ...]:
        """Gradients of the five inputs."""
        own, halo, source, halo_source, target = given
        by_target = np.zeros_like(target)
        self._own.add_target_gradient(own, source, target, gradient, by_target)
        self._halo.add_target_gradient(halo, halo_source, target, gradient, by_target)
        by_own, by_source = self._own.source_gradient(own, source, target, gradient)
        by_halo, by_halo_source = self._halo.source_gradient(halo, halo_source, target, gradient)
        return tuple(torch.from_numpy(array) for array in (by_own, by_halo, by_source, by_halo_source, by_target))


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, attention: Attention, *tensors: Tensor) -> Tensor:
        given = [tensor.detach().contiguous() for tensor in tensors]
        state, output = attention.forward([tensor.numpy() for tensor in given])
        ctx.attention = attention
        ctx.save_for_backward(*given, torch.from_numpy(state.maximum), torch.from_numpy(state.total), output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *given, maximum, total, output = ctx.saved_tensors
        along = (gradient * output).sum(2)
        arrays = [tensor.numpy() for tensor in (maximum, total, gradient.contiguous(), along)]
        return None, *ctx.attention.backward([tensor.numpy() for tensor in given], SoftmaxGradient(*arrays))
