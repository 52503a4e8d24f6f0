"""Attention of a rank's rows over their own and halo columns, as one differentiable operation.

Velickovic et al., "Graph Attention Networks" (ICLR 2018), section 2.1, over row shards: the softmax runs over all
stored in-neighbors, a stored self loop among them, as in PyG's GATConv on the same edges without loops added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnloom.storage.artifacts.row_shards import ShardMatrix
from gnnloom.trainer.comm.communicator import SPMM, Traffic
from gnnloom.trainer.kernels.attention import EdgeSoftmax, SoftmaxGradient, SoftmaxState
from gnnloom.trainer.kernels.threads import Threads


class Attention:
    """The pattern of a rank's rows, prepared for attention."""

    def __init__(self, matrix: ShardMatrix, negative_slope: float, threads: Threads, traffic: Traffic) -> None:
        self.own = EdgeSoftmax(matrix.own, negative_slope, threads)
        self.halo = EdgeSoftmax(matrix.halo, negative_slope, threads)
        self.traffic = traffic


class Attending:
    """One application of attention, in two steps between which the halo may arrive; differentiable.

    Backward the halo's gradients are formed first, so that they can be sent while the others are.
    """

    def __init__(self, attention: Attention) -> None:
        self.attention = attention
        self.state: SoftmaxState | None = None
        self.gradient: SoftmaxGradient | None = None

    def begin(self, own: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """What the rank's own columns add; only to be given to :meth:`finish`.

        Args:
            own: (num_own, heads, dim) values of the rank's vertices.
            source: (num_own, heads) scores as a source.
            target: (num_own, heads) scores as a target.
        """
        result: Tensor = _Own.apply(self, own, source, target)  # type: ignore[no-untyped-call]
        return result

    def finish(self, begun: Tensor, halo: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """(num_own, heads, dim) sums of the columns' values, weighted by attention.

        Args:
            halo: (num_halo, heads, dim) values of the halo's vertices.
            source: (num_halo, heads) scores as a source.
            target: (num_own, heads) as in :meth:`begin`.
        """
        result: Tensor = _Halo.apply(self, begun, halo, source, target)  # type: ignore[no-untyped-call]
        return result


class _Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: Attending, *tensors: Tensor) -> Tensor:
        given = [tensor.detach().contiguous() for tensor in tensors]
        own, source, target = (tensor.numpy() for tensor in given)
        step.state = SoftmaxState.like(own)
        with step.attention.traffic.timing(SPMM):
            step.attention.own.accumulate(own, source, target, step.state)
        ctx.step = step
        ctx.save_for_backward(*given)
        return torch.from_numpy(step.state.weighted)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.step.attention.traffic.timing(SPMM):
            return None, *_gradients(ctx.step.attention.own, ctx.saved_tensors, ctx.step.gradient)


class _Halo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: Attending, _: Tensor, *tensors: Tensor) -> Tensor:
        given = [tensor.detach().contiguous() for tensor in tensors]
        halo, source, target = (tensor.numpy() for tensor in given)
        state, step.state = step.state, None
        if state is None:
            raise ValueError("attention is begun before it is finished, and finished once")
        with step.attention.traffic.timing(SPMM):
            step.attention.halo.accumulate(halo, source, target, state)
        # A row with columns has a sum of at least 1; one without has 0 and gets zeros.
        np.divide(state.weighted, np.maximum(state.total, 1)[:, :, None], out=state.weighted)
        output = torch.from_numpy(state.weighted)
        ctx.step = step
        ctx.save_for_backward(*given, torch.from_numpy(state.maximum), torch.from_numpy(state.total), output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *given, maximum, total, output = ctx.saved_tensors
        along = (gradient * output).sum(2)
        arrays = [tensor.numpy() for tensor in (maximum, total, gradient.contiguous(), along)]
        ctx.step.gradient = SoftmaxGradient(*arrays)
        with ctx.step.attention.traffic.timing(SPMM):
            return None, gradient, *_gradients(ctx.step.attention.halo, given, ctx.step.gradient)


def _gradients(softmax: EdgeSoftmax, given: Sequence[Tensor], gradient: SoftmaxGradient) -> tuple[Tensor, ...]:
    """Gradients of the values, the source scores and the target scores, by way of one part of the columns."""
    values, source, target = (tensor.numpy() for tensor in given)
    by_target = np.zeros_like(target)
    softmax.add_target_gradient(values, source, target, gradient, by_target)
    by_value, by_source = softmax.source_gradient(values, source, target, gradient)
    return tuple(torch.from_numpy(array) for array in (by_value, by_source, by_target))
