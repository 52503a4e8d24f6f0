"""The exchange of halo rows with the ranks that own them, and its adjoint.

Demirci, Haldar, Ferhatosmanoglu, "Scalable Graph Convolutional Network Training on Distributed-Memory Systems"
(PVLDB 16(4), 2022), Algorithm 1, lines 3-9; the adjoint, section 4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import CorruptError
from gnnloom.storage.shards.row_cover import CoveredMatrix
from gnnloom.storage.shards.shard_matrix import ShardMatrix
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator, Request
from gnnloom.trainer.comm.exchange import exchange
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.kernels.dispatch import ColumnScale, scaled_rows, sparse_product
from gnnloom.trainer.operators.exclusion import ExcludedBlock
from gnnloom.trainer.place.place import Place

#: Writes the rows that a rank sends, from its (num_own, dim) rows, to a (number of rows sent, dim) tensor.
Pack = Callable[[Tensor, Tensor], None]


@dataclass(frozen=True)
class Arrival:
    """An exchange of rows in flight.

    Attributes:
        rows: the arriving rows; read them after the receives complete.
        receives: requests to wait for, by the rank that sends.
        sends: requests to wait for.
        packed: the rows being sent; they must stay alive and unchanged until the sends complete.
    """

    rows: Tensor
    receives: dict[int, list[Request]]
    sends: list[Request]
    packed: Tensor

    @property
    def requests(self) -> list[Request]:
        """All requests."""
        return [request for each in self.receives.values() for request in each] + self.sends


class HaloExchange:
    """Destinations and origins of rows for the products with one matrix. Methods are collective.

    It does not use :func:`~gnnloom.trainer.comm.exchange.exchange`, which waits for all messages: here, products
    overlap with the messages, and begin with the first rows that arrive.
    """

    def __init__(self, comm: Communicator, matrix: ShardMatrix[Any], place: Place) -> None:
        self.comm, self.place = comm, place
        self.num_own = matrix.own.num_rows
        self._halo_offset = matrix.halo_offset.tolist()
        self._send_offset = matrix.send_offset.tolist()
        self._send_row = place.from_numpy(matrix.send_row)

    def begin(self, own: Tensor, kind: Kind, pack: Pack | None = None) -> Arrival:
        """Begin to fetch the halo rows: (num_halo, dim), ordered by owner, then by the owner's local number.

        Args:
            own: (num_own, dim) this rank's rows.
            pack: from :meth:`packing`; None for rows without factors.
        """
        halo = self.place.empty((self._halo_offset[-1], own.shape[1]), own.dtype)
        # Receives are posted first, so that arriving rows go to their buffer without another copy.
        receives = self._receive(halo, self._halo_offset)
        packed = self.place.empty((self._send_offset[-1], own.shape[1]), own.dtype)
        (pack or self._gather)(own, packed)
        return Arrival(halo, receives, self._send(packed, self._send_offset, kind), packed)

    def _gather(self, own: Tensor, packed: Tensor) -> None:
        torch.index_select(own, 0, self._send_row, out=packed)

    def packing(self, factors: ColumnScale | None, excluded: ExcludedBlock | None = None) -> Pack:  # noqa: ARG002
        """The function that packs rows to send, scaled. Communicates nothing.

        Args:
            factors: (num_own,) factors of this rank's rows; None if all are 1.
            excluded: entries to leave out of sums that are sent; rows are sent whole.
        """
        if factors is None:
            return self._gather
        sent = factors.factors.index_select(0, self._send_row)

        def pack(own: Tensor, packed: Tensor) -> None:
            self._gather(own, packed)
            scaled_rows(packed, sent, self.place, packed)

        return pack

    def halo_of(self, rank: int) -> slice:
        """The halo rows that a rank owns."""
        return slice(self._halo_offset[rank], self._halo_offset[rank + 1])

    def owners(self) -> list[int]:
        """The ranks that own halo rows, in the order in which their rows are expected."""
        others = [(self.comm.rank - step) % self.comm.size for step in range(1, self.comm.size)]
        return [rank for rank in others if self._halo_offset[rank] < self._halo_offset[rank + 1]]

    def gather(self, own: Tensor, kind: Kind) -> Tensor:
        """Fetch the (num_halo, dim) halo rows."""
        arrival = self.begin(own, kind)
        self.comm.wait(arrival.requests)
        return arrival.rows

    def begin_return(self, halo: Tensor, kind: Kind) -> Arrival:
        """Begin the adjoint of :meth:`gather`: send the values of the halo rows back to their owners.

        Args:
            halo: (num_halo, dim), usually gradients.
        """
        # The adjoint swaps the roles of the offsets: halo rows are sent, and rows that were sent before arrive.
        packed = self.place.contiguous(halo)
        returned = self.place.empty((self._send_offset[-1], halo.shape[1]), halo.dtype)
        receives = self._receive(returned, self._send_offset)
        return Arrival(returned, receives, self._send(packed, self._halo_offset, kind), packed)

    def add_returned(self, arrival: Arrival) -> Tensor:
        """(num_own, dim) sums of the values that came back for every row, one value from each rank that fetched it."""
        self.comm.wait(arrival.requests)
        # A row comes back once from each rank that fetched it. The buffer is ordered by rank and not by arrival, so the
        # order of the sum and its last bits are the same in every run.
        returned = arrival.rows
        total = self.place.zeros((self.num_own, returned.shape[1]), returned.dtype)
        return total.index_add_(0, self._send_row, returned)

    def _send(self, rows: Tensor, offset: list[int], kind: Kind) -> list[Request]:
        requests: list[Request] = []
        for step in range(1, self.comm.size):
            # Each rank starts with the one after itself; starting with rank 0 would make all ranks send there first.
            other = (self.comm.rank + step) % self.comm.size
            # Ranks without common rows exchange nothing: an empty tensor has no segment to send or receive.
            requests += self.comm.send(rows[offset[other] : offset[other + 1]], other, kind)
        return requests

    def _receive(self, rows: Tensor, offset: list[int]) -> dict[int, list[Request]]:
        requests: dict[int, list[Request]] = {}
        for step in range(1, self.comm.size):
            # In the order in which the others' sends begin.
            other = (self.comm.rank - step) % self.comm.size
            if offset[other] < offset[other + 1]:
                requests[other] = self.comm.receive(rows[offset[other] : offset[other + 1]], other)
        return requests


class CoverExchange(HaloExchange):
    """An exchange of rows and of sums in place of other rows; see :mod:`gnnloom.storage.shards.row_cover`.

    A product needs no other rows, but attention does, and so do gradients that return to the rows that were fetched.
    """

    def __init__(self, comm: Communicator, matrix: CoveredMatrix, place: Place) -> None:
        self.comm, self.place = comm, place
        self.num_own = matrix.own.num_rows
        self._halo_offset, self._send_offset = matrix.halo_offset.tolist(), matrix.send_offset.tolist()
        self._product = sparse_product(matrix.send, place)
        self._ones = place.lasting((0,), place.sum_dtype)

    def packing(self, factors: ColumnScale | None, excluded: ExcludedBlock | None = None) -> Pack:
        def pack(own: Tensor, packed: Tensor) -> None:
            self._product.multiply(own, packed, self._ones, column_scale=factors)
            if excluded is not None:
                excluded.subtract(own, packed, self._ones, factors)

        return pack


class ExchangedRows:
    """Rows that a rank exchanges with each other rank, as a count and a checksum of the vertices.

    Every rank reads its own shard, and the checksums of a shard do not show that shards belong together.
    """

    def __init__(self, where: str, vertex: NDArray[np.int64], comm: Communicator, place: Place) -> None:
        """Begin without a matrix.

        Args:
            where: the rank's shard, for messages.
            vertex: (num_own,) int64 ids of the rank's vertices.
        """
        self._where, self._vertex, self._comm, self._place = where, vertex, comm, place
        #: (size, 2) int64 for each matrix: checksums of the rows for each rank, and of the rows from it.
        self._sent: list[NDArray[np.int64]] = []
        self._awaited: list[NDArray[np.int64]] = []

    def add(self, matrix: ShardMatrix[Any] | CoveredMatrix) -> None:
        """Add the rows of a matrix. Communicates nothing."""
        if self._comm.size == 1:
            return
        sent, awaited = matrix.exchanged(self._vertex)
        self._sent.append(sent)
        self._awaited.append(awaited)

    def agree(self) -> None:
        """Check that every rank sends the rows that the others wait for. Collective: one message between two ranks.

        Raises:
            CollectiveError: a rank sends other rows.
        """
        if not self._sent:
            return
        sent = self._place.from_numpy(np.stack(self._sent, 1))
        arrived = self._place.like(sent)
        exchange(self._comm, torch.split(sent, 1), torch.split(arrived, 1), Kind.SETUP)
        together(self._comm, lambda: self._compare(arrived))

    def _compare(self, arrived: Tensor) -> None:
        for number, awaited in enumerate(self._awaited):
            wrong = (arrived[:, number] != self._place.from_numpy(awaited)).any(1).nonzero()
            if len(wrong):
                rank = int(wrong[0])
                wanted, found = int(awaited[rank, 0]), int(arrived[rank, number, 0])
                raise CorruptError(
                    f"{self._where}: rank {self._comm.rank} needs {counted(wanted, 'row')} of rank {rank}, whose shard"
                    f" sends {'other ones' if wanted == found else found}: the shards of the ranks do not belong"
                    " together; remove them and make them again"
                )


class HaloFetch:
    """Fetches halo rows forward, and returns their gradients backward; differentiable.

    Work between :meth:`begin` and :meth:`finish` hides the exchange in both directions. Forward, ``finish`` waits for
    the rows. Backward, autograd visits operations in reverse order: it sends gradients in ``finish``, computes the
    gradients of the work in between, and waits in ``begin``.
    """

    def __init__(self, exchange: HaloExchange) -> None:
        self.exchange = exchange
        self.arriving: Arrival | None = None
        self.returning: Arrival | None = None

    def begin(self, own: Tensor) -> Tensor:
        """Begin to fetch; the returned tensor has no values yet. Collective, forward and backward.

        Args:
            own: (num_own, dim) this rank's rows.
        """
        result: Tensor = _Begin.apply(own, self)  # type: ignore[no-untyped-call]
        return result

    def finish(self, begun: Tensor) -> Tensor:
        """(num_halo, dim) the halo rows. Collective, forward and backward."""
        result: Tensor = _Finish.apply(begun, self)  # type: ignore[no-untyped-call]
        return result

    def progress(self) -> None:
        """Let transfers in flight, in either direction, advance."""
        for arrival in (self.arriving, self.returning):
            if arrival is not None:
                self.exchange.comm.progress(arrival.requests)


class _Begin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, fetch: HaloFetch) -> Tensor:
        ctx.fetch = fetch
        with fetch.exchange.comm.traffic.timing(Kind.HALO_FORWARD):
            fetch.arriving = fetch.exchange.begin(own.detach(), Kind.HALO_FORWARD)
        return fetch.arriving.rows

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        # The gradient that autograd passes is not used: the gradients of this rank's rows arrive in messages.
        comm = ctx.fetch.exchange.comm
        with comm.traffic.timing(Kind.HALO_BACKWARD, comm):
            return ctx.fetch.exchange.add_returned(ctx.fetch.returning), None


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, begun: Tensor, fetch: HaloFetch) -> Tensor:
        ctx.fetch, arrival, fetch.arriving = fetch, fetch.arriving, None
        if arrival is not None:
            comm = fetch.exchange.comm
            with comm.traffic.timing(Kind.HALO_FORWARD, comm):
                comm.wait(arrival.requests)
        # Nothing else holds the arrival, so its packed rows are freed on return.
        # The same memory in another tensor: autograd treats a returned input as an identity.
        return begun.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        with ctx.fetch.exchange.comm.traffic.timing(Kind.HALO_BACKWARD):
            ctx.fetch.returning = ctx.fetch.exchange.begin_return(gradient, Kind.HALO_BACKWARD)
        # This gradient is never read; it makes autograd visit the step that waits for the messages.
        return gradient, None
