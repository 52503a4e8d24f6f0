"""The steps of an epoch: the exact messages between ranks, and the products of a rank.

An algorithm's descriptor lists the steps of its epoch (:attr:`~gnnloom.trainer.algorithms.algorithm.Algorithm.steps`).
The steps give words and messages without running anything, and time together with the rates of a machine. Collectives
count as :mod:`gnnloom.trainer.comm.traffic` counts them: as rings, summed over all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gnnloom.storage.matrix.ranges import Span, split_range
from gnnloom.trainer.algorithms.workload import Exchange, Product, Workload, share
from gnnloom.trainer.comm.traffic import Kind

#: Bytes of a float64 and of an int64, the dtypes in which sums over vertices and counts are sent.
_WIDE = 8


class Operation(StrEnum):
    """Kind of communication between ranks."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    BROADCAST = "broadcast"
    EXCHANGE = "exchange"


@dataclass(frozen=True, kw_only=True)
class Communication:
    """Calls of one operation by all groups of ranks along some axes of the grid.

    Attributes:
        group: ranks of a group.
        stride: distance of neighbors of a group in the order of all ranks.
        groups: number of groups, which communicate at the same time.
        elements: numbers in the operands, summed over all calls of all groups; for an exchange, numbers sent.
        calls: calls of all groups; for an exchange, messages.
        element_size: bytes of a number.
        busiest: for an exchange, the busiest rank's share of the elements and of the calls.
        overlapped: share of the transfer that is under way during the preceding sparse product; the same share of this
            product can hide it.
    """

    kind: Kind
    operation: Operation
    group: int
    stride: int
    groups: int
    elements: float
    calls: float
    element_size: int
    busiest: tuple[float, float] = (1.0, 1.0)
    overlapped: float = 0.0

    @property
    def bytes(self) -> float:
        """Bytes sent by all ranks."""
        factor = {Operation.ALL_REDUCE: 2 * (self.group - 1), Operation.EXCHANGE: 1}
        return factor.get(self.operation, self.group - 1) * self.elements * self.element_size

    @property
    def messages(self) -> float:
        """Messages sent by all ranks."""
        factor = {
            Operation.ALL_REDUCE: 2 * self.group * (self.group - 1),
            Operation.BROADCAST: self.group - 1,
            Operation.EXCHANGE: 1,
        }
        return factor.get(self.operation, self.group * (self.group - 1)) * self.calls


@dataclass(frozen=True, kw_only=True)
class SparseWork:
    """Products of a rank's part of the adjacency.

    Attributes:
        nnz: nonzeros of the busiest rank, in all calls together; ``average`` is the average over all ranks.
        rows, columns: size of one call's block.
        width: number of columns of the dense operand that a rank holds.
        calls: kernel calls, one for each block.
    """

    nnz: float
    average: float
    rows: float
    columns: float
    width: float
    calls: float = 1.0


@dataclass(frozen=True, kw_only=True)
class DenseWork:
    """A (rows, inner) by (inner, columns) product on every rank, in ``calls`` pieces."""

    rows: float
    inner: float
    columns: float
    calls: float = 1.0


@dataclass(frozen=True, kw_only=True)
class ElementWork:
    """Passes over arrays in memory.

    Attributes:
        numbers: numbers that a rank reads or writes.
        calls: number of operations.
    """

    numbers: float
    calls: float = 1.0


Step = Communication | SparseWork | DenseWork | ElementWork


class Steps:
    """Collects the steps of an epoch on one process grid."""

    def __init__(self, work: Workload, axes: Mapping[str, int]) -> None:
        self.work = work
        self.axes = dict(axes)
        self.ranks = math.prod(self.axes.values())
        self.found: list[Step] = []

    def size(self, axes: Iterable[str]) -> int:
        """Number of ranks in a group along some axes."""
        return math.prod(self.axes[axis] for axis in axes)

    def communicate(
        self,
        kind: Kind,
        operation: Operation,
        axes: tuple[str, ...],
        elements: float,
        calls: float,
        element_size: int | None = None,
        *,
        overlapped: float = 0.0,
    ) -> None:
        """Add calls of a collective by the groups along ``axes``; groups of one rank communicate nothing."""
        group = self.size(axes)
        if group == 1 or calls == 0:
            return
        # The last axis of the grid varies fastest.
        names = list(self.axes)
        fastest = max((axis for axis in axes if self.axes[axis] > 1), key=names.index)
        # Features of 16 bits are summed in the dtype of the parameters.
        sums = operation in {Operation.ALL_REDUCE, Operation.REDUCE_SCATTER}
        size = self.work.parameter_size if sums else self.work.feature_size
        self.found.append(
            Communication(
                kind=kind,
                operation=operation,
                group=group,
                stride=self.size(names[names.index(fastest) + 1 :]),
                groups=self.ranks // group,
                elements=elements,
                calls=calls,
                element_size=size if element_size is None else element_size,
                overlapped=overlapped,
            )
        )

    def exchange(
        self,
        kind: Kind,
        exchange: Exchange,
        width: int,
        *,
        axes: tuple[str, ...] | None = None,
        overlapped: float = 0.0,
    ) -> None:
        """Add point-to-point exchanges of rows within all groups along ``axes``; by default, among all ranks."""
        group = self.ranks if axes is None else self.size(axes)
        if group == 1 or not exchange.messages:
            return
        self.found.append(
            Communication(
                kind=kind,
                operation=Operation.EXCHANGE,
                group=group,
                stride=1,
                groups=self.ranks // group,
                elements=exchange.rows * width,
                calls=exchange.messages,
                element_size=self.work.feature_size,
                busiest=(exchange.busiest_rows / exchange.rows, exchange.busiest_messages / exchange.messages),
                overlapped=overlapped,
            )
        )

    def multiply(self, *, part: float, rows: float, columns: float, width: float, calls: float = 1.0) -> None:
        """Add a product with the adjacency; a rank has the share ``part`` of the nonzeros."""
        average = self.work.nnz * part
        self.found.append(
            SparseWork(
                nnz=average * self.work.heaviest, average=average, rows=rows, columns=columns, width=width, calls=calls
            )
        )

    def transform(self, layer: int, *, rows: float, inner: float, columns: float, calls: float = 1.0) -> None:
        """Add a layer's products with its weights, forward and backward.

        Args:
            rows, inner: size of the features that a rank multiplies.
            columns: number of columns of the result that a rank holds.
            calls: number of pieces in which the product is formed.
        """
        for _ in range(self.work.weights):
            self.found.append(DenseWork(rows=rows, inner=inner, columns=columns, calls=calls))
            self.found.append(DenseWork(rows=inner, inner=rows, columns=columns, calls=calls))
            if self.work.has_input_gradient(layer):
                self.found.append(DenseWork(rows=rows, inner=columns, columns=inner, calls=calls))

    def scale(self, numbers: float, backward: bool) -> None:
        """Add the pass that scales a rank's rows before they are sent, unless all factors are 1.

        ``p2p`` scales while it multiplies instead.
        """
        if self.work.scaled_sides[backward]:
            self.touch(2 * numbers)

    def narrow(self, numbers: float) -> None:
        """Add the pass that rounds sums to the dtype of features, if that is narrower."""
        if self.work.feature_size < self.work.parameter_size:
            self.touch(2 * numbers)

    def touch(self, numbers: float, calls: float = 1.0) -> None:
        """Add passes over arrays."""
        self.found.append(ElementWork(numbers=numbers, calls=calls))


def pipelined(pieces: float) -> float:
    """The share of a transfer in ``pieces`` that overlaps with the product of the previous or the next piece."""
    return 1 - 1 / max(1.0, pieces)


@dataclass(frozen=True)
class Spread:
    """The axes that split the rows and the columns of a dense matrix; ranks along the other axes hold copies."""

    rows: tuple[str, ...]
    columns: tuple[str, ...] = ()
    order: int = 0


#: Passes over a hidden layer's output in an epoch: scaling before and after the products, bias and ReLU, and the
#: gradient through each. Over the scores: the softmax and its gradient, of the rows of the training split.
HIDDEN_PASSES, HIDDEN_CALLS = 8, 8
_SCORE_PASSES, _SCORE_CALLS = 4, 20


def add_common(steps: Steps, spreads: list[Spread], weight_axes: tuple[str, ...], summed: int) -> None:
    """Add what all algorithms share: normalization, residuals, the loss and the sum of the gradients.

    Args:
        spreads: spread of the input of every layer, and of the output.
        weight_axes: axes along which the gradients of a parameter that all ranks hold are summed.
        summed: number of these parameters.
    """
    work = steps.work
    for layer in range(work.num_layers - 1):
        _add_hidden(steps, spreads[layer + 1], work.dims[layer + 1])
        if work.adds_input(layer):
            add_alignment(steps, spreads[layer], spreads[layer + 1], work.dims[layer], backward=True)
    if work.unit_embedding and work.num_layers > 1:
        _add_rows(steps, Kind.NORM, spreads[-2], [work.num_vertices] * 2)
    _add_loss(steps, spreads[-1])
    if summed:
        groups = steps.ranks // steps.size(weight_axes)
        steps.communicate(
            Kind.GRADIENT, Operation.ALL_REDUCE, weight_axes, groups * summed, groups, work.parameter_size
        )
    if work.clips:
        steps.communicate(Kind.GRADIENT, Operation.ALL_REDUCE, tuple(steps.axes), 1, 1, _WIDE)


def _add_hidden(steps: Steps, spread: Spread, dim: int) -> None:
    """The passes over a hidden layer's output, and its normalization."""
    work, rows, columns = steps.work, steps.size(spread.rows), steps.size(spread.columns)
    entries = share(work.num_vertices, rows) * share(dim, columns)
    steps.touch(HIDDEN_PASSES * entries, HIDDEN_CALLS)
    if work.norm == "none":
        return
    steps.touch(HIDDEN_PASSES * entries, 2 * HIDDEN_CALLS)
    axes = spread.columns if work.norm == "layer" else spread.rows
    groups = steps.ranks // steps.size(axes)
    # The number of entries, an int64 each; then the sums for mean and variance, and backward two sums at once.
    steps.communicate(Kind.NORM, Operation.ALL_REDUCE, axes, groups, groups, _WIDE)
    if work.norm == "layer":
        _add_rows(steps, Kind.NORM, spread, [work.num_vertices, work.num_vertices, 2 * work.num_vertices])
        return
    held = dim * groups / columns
    for factor in (1, 1, 2):
        steps.communicate(Kind.NORM, Operation.ALL_REDUCE, axes, factor * held, groups)
    # Running averages of all columns, which are divided among the ranks of a column group.
    of_columns = steps.ranks // columns
    steps.communicate(Kind.NORM, Operation.ALL_REDUCE, spread.columns, 2 * dim * of_columns, of_columns)


def _add_rows(steps: Steps, kind: Kind, spread: Spread, numbers: list[int], element_size: int | None = None) -> None:
    """All-reduces of numbers per row over the ranks that hold the row's columns."""
    groups = steps.ranks // steps.size(spread.columns)
    copies = groups // steps.size(spread.rows)
    for count in numbers:
        steps.communicate(kind, Operation.ALL_REDUCE, spread.columns, copies * count, groups, element_size)


def _add_loss(steps: Steps, spread: Spread) -> None:
    work = steps.work
    if work.splits_classes:
        # The maximum of a row; then its sum of exponentials and the score of its label.
        _add_rows(steps, Kind.LOSS, spread, [work.num_training, 2 * work.num_training], work.score_size)
    entries = share(work.num_training, steps.size(spread.rows)) * share(work.dims[-1], steps.size(spread.columns))
    steps.touch(_SCORE_PASSES * entries, _SCORE_CALLS)
    # The loss, and whether a rank was asked to stop.
    steps.communicate(Kind.LOSS, Operation.ALL_REDUCE, tuple(steps.axes), 2, 1, _WIDE)


def add_alignment(steps: Steps, source: Spread, target: Spread, dim: int, *, backward: bool) -> None:
    """Add the moves of a (num_vertices, dim) matrix from one layout to another, and of its gradient back if wanted."""
    moves = [(Kind.ALIGN_FORWARD, source, target), (Kind.ALIGN_BACKWARD, target, source)]
    for kind, here, there in moves if backward else moves[:1]:
        rows, messages = _moved(steps, here, there, dim)
        if messages:
            exchange = Exchange(
                rows=rows, messages=messages, busiest_rows=rows / steps.ranks, busiest_messages=messages / steps.ranks
            )
            steps.exchange(kind, exchange, 1)


def _moved(steps: Steps, source: Spread, target: Spread, dim: int) -> tuple[float, float]:
    """Entries and messages that bring every rank its missing entries: one message from each block of the source.

    Exact if both layouts have the vertices in the same order. Between two random orders, the number of entries is an
    expected value, and any two blocks of rows are assumed to share a vertex.
    """
    n, names = steps.work.num_vertices, list(steps.axes)
    if _split(steps, source) == _split(steps, target):
        return 0.0, 0.0
    entries = messages = 0.0
    for rank in range(steps.ranks):
        place, rest = {}, rank
        for axis in reversed(names):
            rest, place[axis] = divmod(rest, steps.axes[axis])
        ends = (source.rows, n), (source.columns, dim), (target.rows, n), (target.columns, dim)
        spans = [_span(steps, axes, place, size) for axes, size in ends]
        rows, columns = _meeting(steps, source.rows, n, spans[2]), _meeting(steps, source.columns, dim, spans[3])
        kept: float = _shared(spans[0], spans[2])
        if source.order != target.order:
            rows = min(steps.size(source.rows), n)
            kept = (spans[0][1] - spans[0][0]) * (spans[2][1] - spans[2][0]) / max(1, n)
        own = kept * _shared(spans[1], spans[3])
        entries += (spans[2][1] - spans[2][0]) * (spans[3][1] - spans[3][0]) - own
        messages += rows * columns - (own > 0)
    return entries, messages


def _split(steps: Steps, spread: Spread) -> tuple[object, ...]:
    """Key of a layout, the same for equal layouts: an axis of one rank splits nothing."""
    rows, columns = (tuple(axis for axis in axes if steps.axes[axis] > 1) for axes in (spread.rows, spread.columns))
    return rows, columns, spread.order


def _span(steps: Steps, axes: tuple[str, ...], place: Mapping[str, int], size: int) -> Span:
    number = 0
    for axis in axes:
        number = number * steps.axes[axis] + place[axis]
    return split_range(size, steps.size(axes), number)


def _shared(first: Span, second: Span) -> int:
    return max(0, min(first[1], second[1]) - max(first[0], second[0]))


def _meeting(steps: Steps, axes: tuple[str, ...], size: int, span: Span) -> int:
    """Number of blocks along some axes that share an item with a range."""
    start, stop = span
    count = steps.size(axes)
    if start >= stop:
        return 0
    # With fewer items than blocks, every item is a separate block.
    if size < count:
        return stop - start
    first, last = ((item + 1) * count - 1 for item in (start, stop - 1))
    return last // size - first // size + 1


def products_by_layer(work: Workload) -> dict[int, list[Product]]:
    """The products of every layer."""
    return {layer: [each for each in work.products if each.layer == layer] for layer in range(work.num_layers)}


@dataclass(frozen=True)
class Volume:
    """Bytes and messages that all ranks send in an epoch, by kind; whole numbers unless estimated."""

    bytes: Mapping[str, float]
    messages: Mapping[str, float]

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Volume:
        """Count the communication among some steps."""
        num_bytes: dict[str, float] = {}
        messages: dict[str, float] = {}
        for step in steps:
            if isinstance(step, Communication):
                kind = step.kind.value
                num_bytes[kind] = num_bytes.get(kind, 0) + step.bytes
                messages[kind] = messages.get(kind, 0) + step.messages
        return cls(*({kind: count for kind, count in each.items() if count} for each in (num_bytes, messages)))

    def and_times(self, other: Volume, count: float) -> Volume:
        """This volume plus ``count`` times another volume."""
        sums = [
            {kind: here.get(kind, 0) + count * there.get(kind, 0) for kind in (*here, *there)}
            for here, there in ((self.bytes, other.bytes), (self.messages, other.messages))
        ]
        return Volume(*sums)
