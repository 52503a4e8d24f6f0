"""The buffers of a model, which are the same on every rank after each epoch, as parameters are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnloom.trainer.comm.agreement import tensor_digest
from gnnloom.trainer.comm.communicator import Communicator, Reduction
from gnnloom.trainer.comm.traffic import Kind


def stored_buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that are part of a model's state, by name: without buffers of ``persistent=False``, as in torch."""
    buffers = dict(model.named_buffers())
    # torch has no public list of persistent buffers, but only persistent buffers are in the state.
    return {name: buffers[name] for name in model.state_dict() if name in buffers} if buffers else {}


def average_buffers(model: nn.Module, comm: Communicator) -> None:
    """Make the buffers equal on all ranks by averaging, such as means over different batches. Collective.

    For integers, such as a count of batches, the largest value is kept.
    """
    buffers = list(stored_buffers(model).values()) if comm.size > 1 else []
    if not buffers:
        return
    digests = comm.gather_numbers([tensor_digest(buffer) for buffer in buffers])
    # An average of equal numbers may differ from them in the last bit, so equal buffers are left alone.
    for buffer, differs in zip(buffers, (digests != digests[0]).any(0), strict=True):
        if differs:
            _agree(buffer, comm)


def _agree(buffer: Tensor, comm: Communicator) -> None:
    """Average one buffer over the ranks, or take the largest integers. Collective."""
    if buffer.is_floating_point():
        total = buffer.to(torch.float64).reshape(-1)
        comm.all_reduce(total, Kind.NORM)
        total /= comm.size
    else:
        total = buffer.to(torch.int64).reshape(-1)
        comm.all_reduce(total, Kind.NORM, Reduction.MAX)
    buffer.copy_(total.view(buffer.shape))
