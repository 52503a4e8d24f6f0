"""``nn.BatchNorm1d`` of a user's model, over the rows of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from gnnloom.trainer.networks.norm import standardize
from gnnloom.trainer.operators.operator import Operator


class WholeBatchNorm(nn.BatchNorm1d):
    """Normalizes with the mean and variance of the rows of all ranks, as ``nn.BatchNorm1d`` does on one. Collective.

    Attributes:
        find_operator: the operator that the model multiplies with at present; its ranks hold the rows.
    """

    find_operator: Callable[[], Operator]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """(num_rows, dim) normalized rows.

        Args:
            input: (num_rows, dim) this rank's rows, possibly none.
        """
        if not self.training or input.dim() != 2:
            return super().forward(input)
        layout = self.find_operator().layout(0)
        place, shape = layout.place, (self.num_features,)
        scale = self.weight if self.affine else place.zeros(shape, input.dtype).fill_(1)
        shift = self.bias if self.affine else place.zeros(shape, input.dtype)
        group = layout.grid.group(layout.row_axes)
        found = standardize(input, scale, shift, 0, group, place, self.eps)
        if self.track_running_stats:
            self._update(found.mean[0], found.variance[0] * (found.count / max(found.count - 1, 1)))
        return found.values

    @torch.no_grad()
    def _update(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running averages, as torch does."""
        batches, running_mean, running_variance = self.num_batches_tracked, self.running_mean, self.running_var
        if batches is None or running_mean is None or running_variance is None:
            return
        batches += 1
        # Without a momentum, all batches count alike.
        momentum = 1 / int(batches) if self.momentum is None else self.momentum
        running_mean.lerp_(mean, momentum)
        running_variance.lerp_(variance, momentum)


def share_batch_norms(module: nn.Module, find_operator: Callable[[], Operator]) -> None:
    """Let every ``nn.BatchNorm1d`` below a module normalize over the rows of all ranks. Communicates nothing."""
    for child in module.modules():
        # A class of the user's that derives from it may compute something else.
        if type(child) is nn.BatchNorm1d:
            # Parameters, buffers and hooks stay.
            child.__class__ = WholeBatchNorm
            cast("WholeBatchNorm", child).find_operator = find_operator
