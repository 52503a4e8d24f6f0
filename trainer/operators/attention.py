"""Attention of a rank's rows over their own and halo columns, as one differentiable operation.

Velickovic et al., "Graph Attention Networks" (ICLR 2018), section 2.1, over row shards, and the dynamic attention of
Brody, Alon, Yahav, "How Attentive are Graph Attention Networks?" (ICLR 2022). The softmax runs over all stored
in-neighbors, including a stored self loop, like PyG's GATConv and GATv2Conv with ``add_self_loops=False``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gnnloom.storage.shards.shard_matrix import ShardMatrix
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import SPMM, Traffic
from gnnloom.trainer.data.target_edges import ExcludedEntries
from gnnloom.trainer.kernels.dispatch import (
    AttentionInputs,
    EdgeSoftmax,
    Progress,
    SoftmaxGradient,
    SoftmaxState,
    edge_softmax,
    head_sums,
    softmax_state,
)
from gnnloom.trainer.operators.halo import HaloExchange
from gnnloom.trainer.place.place import Place


class Attention:
    """The pattern of a rank's rows, prepared for attention; sums and gradients are in the workspace."""

    def __init__(
        self,
        matrix: ShardMatrix[Any],
        negative_slope: float,
        place: Place,
        traffic: Traffic,
        *,
        dynamic: bool = False,
    ) -> None:
        self.own, self.halo = (
            edge_softmax(pattern, negative_slope, place, dynamic=dynamic) for pattern in matrix.in_memory()
        )
        self.place, self.traffic = place, traffic


class NeighborRows:
    """The rows of in-neighbors in a layer, over which attention runs.

    Attributes:
        matrix: this rank's rows of the adjacency, without normalization. A sample's block may have more columns than
            rows; its rows are the leading columns.
        exchange: fetches the halo rows for the matrix's columns; None if no rank has a halo.
    """

    def __init__(self, matrix: ShardMatrix[Any], exchange: HaloExchange | None, grid: ProcessGrid) -> None:
        self.matrix, self.exchange, self._grid = matrix, exchange, grid
        self._prepared: dict[tuple[float, bool], Attention] = {}
        self._excluded: tuple[ExcludedEntries, ExcludedEntries] | None = None
        self._without: dict[tuple[float, bool], Attention] = {}

    def attention(self, negative_slope: float, *, dynamic: bool = False) -> Attention:
        """Attention over these rows, prepared once, or once for every step that excludes entries."""
        prepared, key = self._prepared if self._excluded is None else self._without, (negative_slope, dynamic)
        if key not in prepared:
            given = negative_slope, self._grid.place, self._grid.comm.traffic
            prepared[key] = Attention(self._present(), *given, dynamic=dynamic)
        return prepared[key]

    def exclude(self, excluded: tuple[ExcludedEntries, ExcludedEntries] | None) -> None:
        """Exclude some entries of the own and the halo columns from attention from now on; None excludes nothing."""
        self._excluded, self._without = excluded, {}

    def _present(self) -> ShardMatrix[Any]:
        """The matrix without excluded entries."""
        if self._excluded is None:
            return self.matrix
        own, halo = (
            entries.removed_from(block) for block, entries in zip(self.matrix.in_memory(), self._excluded, strict=True)
        )
        return replace(self.matrix, own=own, halo=halo)


class Attending:
    """One application of attention, in two steps; differentiable. Communicates nothing.

    The halo rows may arrive between the two steps. Backward, the halo's gradients are computed first, so that they
    can be sent while the own columns' gradients are computed.
    """

    def __init__(self, attention: Attention, progress: Progress = None) -> None:
        """Prepare the two steps.

        Args:
            progress: called from time to time during the work on the own columns, forward and backward.
        """
        self.attention, self.progress = attention, progress
        self.begun: tuple[SoftmaxState, Tensor | None] | None = None
        self.gradient: SoftmaxGradient | None = None

    def begin(self, own: AttentionInputs) -> Tensor:
        """Sum over the rank's own columns.

        Args:
            own: scores of the rank's vertices as columns, and scores of the vertices that the rows belong to.

        Returns:
            (1,) a token for :meth:`finish`, which tells autograd that :meth:`finish` comes later.
        """
        result: Tensor = _Own.apply(self, *own)  # type: ignore[no-untyped-call]
        return result

    def finish(self, begun: Tensor, halo: AttentionInputs) -> Tensor:
        """Add the halo's contribution, and normalize.

        Args:
            begun: the token that :meth:`begin` returned.
            halo: scores and values of the halo's vertices as columns; the rows' scores are the same as in
                :meth:`begin`.

        Returns:
            (num_rows, heads, dim) sums of the columns' values, weighted by attention.

        Raises:
            ValueError: called without :meth:`begin`, or twice.
        """
        result: Tensor = _Halo.apply(self, begun, *halo)  # type: ignore[no-untyped-call]
        return result


class _Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: Attending, *tensors: Tensor) -> Tensor:
        attention, place = step.attention, step.attention.place
        own = AttentionInputs(*(place.contiguous(tensor.detach()) for tensor in tensors))
        num_rows, (_, heads, dim) = len(own.target), own.values.shape
        # Without halo columns, the sums of a row are complete before they leave the registers.
        output = place.empty((num_rows, heads, dim), own.values.dtype) if attention.halo.nnz == 0 else None
        weighted = place.empty((num_rows if output is None else 0, heads, dim), own.source.dtype)
        state = softmax_state(weighted, num_rows, heads, place)
        with attention.traffic.timing(SPMM):
            attention.own.accumulate(own, state, output, progress=step.progress)
        step.begun = state, output
        ctx.step = step
        ctx.save_for_backward(*own)
        return place.empty((1,), own.values.dtype).zero_()

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        # Runs after the backward pass of the halo's step, which left the gradient of the normalized output.
        with ctx.step.attention.traffic.timing(SPMM):
            softmax, place, gradient = ctx.step.attention.own, ctx.step.attention.place, ctx.step.gradient
            ctx.step.gradient = None
            return None, *_gradients(softmax, AttentionInputs(*ctx.saved_tensors), gradient, place, ctx.step.progress)


class _Halo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: Attending, _: Tensor, *tensors: Tensor) -> Tensor:
        place = step.attention.place
        halo = AttentionInputs(*(place.contiguous(tensor.detach()) for tensor in tensors))
        begun, step.begun = step.begun, None
        if begun is None:
            raise ValueError("attention: call begin once, then finish once")
        state, output = begun
        if output is None:
            # The output takes the memory of the sums, unless the sums are wider.
            weighted, dtype = state.weighted, halo.values.dtype
            output = weighted if weighted.dtype == dtype else place.empty(weighted.shape, dtype)
            with step.attention.traffic.timing(SPMM):
                step.attention.halo.accumulate(halo, state, output, begins=False)
        ctx.step = step
        ctx.save_for_backward(*halo, state.maximum, state.total, output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *saved, maximum, total, output = ctx.saved_tensors
        halo, place = AttentionInputs(*saved), ctx.step.attention.place
        gradient, is_dynamic = place.contiguous(gradient), ctx.step.attention.halo.is_dynamic
        rows = place.empty((len(maximum), 3 if is_dynamic else 4, maximum.shape[1]), maximum.dtype)
        if not is_dynamic:
            rows[:, 0] = halo.target
        rows[:, -3] = maximum
        torch.reciprocal(total, out=rows[:, -2])
        # By linearity, the sum over a row's edges of weight times (z times gradient) is the output times the gradient:
        # no extra pass over the edges.
        rows[:, -1] = head_sums(gradient, output, place)
        ctx.step.gradient = SoftmaxGradient(rows, gradient)
        with ctx.step.attention.traffic.timing(SPMM):
            # The gradient of the token makes autograd visit the own columns next; they use `step.gradient`.
            given = _gradients(ctx.step.attention.halo, halo, ctx.step.gradient, place)
            return None, place.empty((1,), output.dtype).zero_(), *given


def _gradients(
    softmax: EdgeSoftmax, given: AttentionInputs, gradient: SoftmaxGradient, place: Place, progress: Progress = None
) -> AttentionInputs:
    """Gradients through the columns of one pattern."""
    result = AttentionInputs(*(place.like(tensor) for tensor in given))
    softmax.gradients(given, gradient, result, progress)
    return result
