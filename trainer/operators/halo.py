"""The exchange of halo rows with the ranks that own them, and its adjoint.

Demirci, Haldar, Ferhatosmanoglu, "Scalable Graph Convolutional Network Training on Distributed-Memory
Systems" (PVLDB 16(4), 2022), Algorithm 1, lines 3-9; the adjoint, section 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnnloom.storage.row_shards import ShardMatrix
from gnnloom.trainer.comm import Communicator, Kind, Request


@dataclass(frozen=True)
class Arrival:
    """Rows on their way.

    Attributes:
        rows: what arrives; to be read after the receives are waited for.
        receives, sends: requests to wait for.
        packed: what is sent, which must stay unchanged until then.
    """

    rows: Tensor
    receives: list[Request]
    sends: list[Request]
    packed: Tensor


class HaloExchange:
    """Which rows of a rank go where, for the products with one matrix. Methods are collective."""

    def __init__(self, comm: Communicator, matrix: ShardMatrix) -> None:
        self.comm = comm
        self.num_own = matrix.own.num_rows
        self._halo_offset = matrix.halo_offset.tolist()
        self._send_offset = matrix.send_offset.tolist()
        self._send_row = torch.from_numpy(matrix.send_row)

    def begin(self, own: Tensor, kind: Kind) -> Arrival:
        """Begin to fetch the (num_halo, dim) halo rows, ordered by owner, then by the owner's local number.

        Args:
            own: (num_own, dim) this rank's rows.
        """
        halo = own.new_empty(self._halo_offset[-1], own.shape[1])
        receives = self._receive(halo, self._halo_offset)
        packed = own.index_select(0, self._send_row)
        return Arrival(halo, receives, self._send(packed, self._send_offset, kind), packed)

    def gather(self, own: Tensor, kind: Kind) -> Tensor:
        """Fetch the (num_halo, dim) halo rows."""
        arrival = self.begin(own, kind)
        self.comm.wait(arrival.receives + arrival.sends)
        return arrival.rows

    def add_back(self, halo: Tensor, kind: Kind) -> Tensor:
        """The adjoint of :meth:`gather`: (num_own, dim) sums of what the other ranks have for this rank's rows.

        A row that several ranks fetched gets something back from each of them.

        Args:
            halo: (num_halo, dim), for the halo rows.
        """
        returned = halo.new_empty(self._send_offset[-1], halo.shape[1])
        receives = self._receive(returned, self._send_offset)
        sends = self._send(halo.contiguous(), self._halo_offset, kind)
        self.comm.wait(receives + sends)
        return halo.new_zeros(self.num_own, halo.shape[1]).index_add_(0, self._send_row, returned)

    def _send(self, rows: Tensor, offset: list[int], kind: Kind) -> list[Request]:
        requests: list[Request] = []
        for step in range(1, self.comm.size):
            # Starting behind oneself spreads the load: not every rank sends to rank 0 first.
            other = (self.comm.rank + step) % self.comm.size
            requests += self.comm.send(rows[offset[other] : offset[other + 1]], other, kind)
        return requests

    def _receive(self, rows: Tensor, offset: list[int]) -> list[Request]:
        requests: list[Request] = []
        for step in range(1, self.comm.size):
            other = (self.comm.rank - step) % self.comm.size
            requests += self.comm.receive(rows[offset[other] : offset[other + 1]], other)
        return requests


def gather_halo(own: Tensor, exchange: HaloExchange) -> Tensor:
    """The halo's rows of a matrix; differentiable. Collective, forward and backward.

    Args:
        own: (num_own, dim) this rank's rows.

    Returns:
        (num_halo, dim).
    """
    result: Tensor = _Gather.apply(own, exchange)  # type: ignore[no-untyped-call]
    return result


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, exchange: HaloExchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.gather(own.detach(), Kind.HALO_FORWARD)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.exchange.add_back(gradient, Kind.HALO_BACKWARD), None
