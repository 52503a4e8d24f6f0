"""Measures the profile of a machine on the ranks of a job.

All ranks measure the same thing at the same time, as in training, where they share memory bandwidth and network cards.
Every figure is a median over repetitions that alternate between the things measured, so that a disturbance of a second
does not affect only one measurement; the slowest rank's figure counts.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import torch

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.trainer.algorithms.algorithm import factorizations
from gnnloom.trainer.algorithms.steps import HIDDEN_CALLS, HIDDEN_PASSES, Operation
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator, Request
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.kernels.dispatch import (
    SparseProduct,
    backward_from,
    matmul,
    rectify,
    sparse_product,
    weight_gradient,
)
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.planner.profile import MEASURED_BYTES, CollectiveRate, Link, MachineProfile, Rates, RateTable
from gnnloom.trainer.training.alike import alike_command

#: Clocks that a profile may be measured with. Processor time is for machines that other programs use as well.
CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
#: Columns of the dense operand, nonzeros per row, and rows of the dense operand of the measured sparse products.
_WIDTHS, _DEGREES, _COLUMNS = (1, 8, 32, 128), (1, 8, 64), (1 << 12, 1 << 15, 1 << 18)
#: Nonzeros times columns of a measured product.
_SPARSE_WORK = 1 << 23
#: Short sides of the measured dense products, and numbers in the larger operand: large enough that leftovers of other
#: ranks in the caches do not matter.
_SIDES, _DENSE_NUMBERS = (1, 8, 32, 128), 1 << 21
#: Bytes of the arrays for the measurement of streaming bandwidth: larger than caches.
_STREAM_BYTES = 1 << 27
#: Rows and minimum rows, and columns, of a hidden layer whose passes are measured.
_PASS_ROWS, _LEAST_PASS_ROWS, _PASS_WIDTH = 1 << 15, 1 << 12, 128
#: Bytes of messages: one that shows the latency, and one that shows the bandwidth.
_SHORT_BYTES, _LONG_BYTES = 1 << 10, 1 << 22
#: Precisions of the figures that are measured in both.
_DTYPES = (torch.float32, torch.bfloat16)
#: Number of calls per measurement of an operation that takes microseconds.
_CALLS = 50
#: Median of the seconds by which ranks come late to a message during training.
_LATE = 3e-4
#: Repetitions; the first one, which loads kernels and opens connections, does not count.
_REPEATS = 7
#: With one rank there is nothing to measure: half is assumed, because ranks on CPUs communicate with the cores that
#: multiply.
_CPU_OVERLAP = 0.5
#: Columns and nonzeros per row of the product behind which a message is hidden, and bytes of the message.
_OVERLAP_WIDTH, _OVERLAP_DEGREE, _OVERLAP_BYTES = 32, 8, 3 * _LONG_BYTES


@dataclass
class _Bench:
    """Measures calls on all ranks.

    Attributes:
        place: place of float32 tensors.
        late: ranks come to short messages at different times, up to this many seconds. A rank that waits uses its
            processor, which processor time counts; a wall clock would count the wait for others twice.
    """

    comm: Communicator
    place: Place
    clock: Callable[[], float]
    repeats: int
    late: float = 0.0
    spread: dict[str, float] = field(default_factory=dict)

    def medians(self, what: str, calls: Mapping[str, Callable[[], None]]) -> dict[str, float]:
        """Median seconds of each call on the slowest rank. Collective.

        Args:
            what: name under which the largest spread is reported.
            calls: repeated in turn.
        """
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(self.repeats + 1):
            for name, call in calls.items():
                self.comm.barrier()
                taken[name].append(self.seconds(call))
        counted = [seconds[1:] for seconds in taken.values()]
        everyones = self.comm.gather_numbers([statistics.median(seconds) for seconds in counted]).max(0).tolist()
        self.spread[what] = max(self.spread.get(what, 0.0), *(_spread(seconds) for seconds in counted))
        return dict(zip(calls, everyones, strict=True))

    def seconds(self, call: Callable[[], None]) -> float:
        """Seconds of one call on this rank."""
        started = self.clock()
        call()
        return self.clock() - started

    def short(self, what: str, call: Callable[[], None]) -> float:
        """Median seconds of a call that takes only microseconds, on the slowest rank. Collective."""
        rng = np.random.default_rng(self.comm.rank)
        taken = []
        for _ in range(self.repeats * _CALLS // 2):
            until = time.perf_counter() + self.late * rng.random()
            while time.perf_counter() < until:
                pass
            taken.append(self.seconds(call))
        # The mean of a batch, because waits are seldom and long; the median of the batches.
        batches = [statistics.fmean(taken[start : start + _CALLS // 2]) for start in range(0, len(taken), _CALLS // 2)]
        self.spread[what] = max(self.spread.get(what, 0.0), _spread(batches))
        return float(self.comm.gather_numbers([statistics.median(batches)]).max())


def _spread(seconds: list[float]) -> float:
    """The distance between the quartiles, relative to the median."""
    low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75)).tolist()
    return round((high - low) / middle, 3) if middle else 0.0


def calibrate(
    comm: Communicator, name: str, clock: str = "wall", num_threads: int = 1, scale: float = 1.0
) -> MachineProfile:
    """Measure the profile of the machine on which these ranks run; the same on every rank. Collective.

    Args:
        num_threads: number of threads of every rank.
        scale: factor of the sizes of multiplied matrices; less than 1 is for tests.

    Raises:
        CollectiveError: the ranks were started differently.
    """
    asked = {"name": name, "clock": clock, "threads": num_threads, "scale": scale}
    together(comm, lambda: None, lambda _: alike_command("calibrate", asked))
    torch.set_num_threads(num_threads)
    repeats = max(2, int(_REPEATS * min(1.0, scale * 4)))
    wide, narrow = (Place(dtype, num_threads) for dtype in _DTYPES)
    bench = _Bench(comm, wide, CLOCKS[clock], repeats, _LATE if clock == "processor" else 0.0)
    here = comm.this_machine().ranks
    call, stream = _measure_call(bench), _measure_stream(bench, scale)
    # Between neighbors, and between the first ranks of two nodes; with one rank, both are a copy in memory.
    intra = inter = _measure_link(bench, "link within a node", 1)
    if comm.size > here:
        inter = _measure_link(bench, "link between nodes", here)
    rates, in_bf16 = (_measure_rates(bench, place, scale, call, stream) for place in (wide, narrow))
    return MachineProfile(
        name=name,
        clock=clock,
        ranks_per_node=here,
        memory_per_rank=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // here,
        intra=intra,
        inter=inter,
        spmm=rates.spmm,
        gemm=rates.gemm,
        gradient=rates.gradient,
        passes=rates.passes,
        bf16=in_bf16,
        stream=stream,
        call=call,
        overlap=_measure_overlap(bench, scale) if comm.size > 1 else _CPU_OVERLAP,
        collectives=_measure_collectives(bench),
        spread=bench.spread,
        sources={"measured": f"{comm.size} ranks of {num_threads} threads, {here} on a node"},
    )


def _measure_rates(bench: _Bench, place: Place, scale: float, call: float, stream: float) -> Rates:
    """The rates of work on features of a place. Collective."""

    def product(features: torch.Tensor, _: torch.Tensor, weight: torch.Tensor) -> None:
        matmul(features, weight, place)

    def gradient(features: torch.Tensor, output: torch.Tensor, _: torch.Tensor) -> None:
        weight_gradient(features, output, place)

    return Rates(
        spmm=_measure_sparse(bench, place, scale, call),
        gemm=_measure_dense(bench, place, scale, call, "gemm", product),
        passes=_measure_passes(bench, place, scale, call, stream),
        gradient=_measure_dense(bench, place, scale, call, "gradient", gradient),
    )


def _matrix(rows: int, degree: int, columns: int) -> CSR:
    """A pattern whose columns are uniformly random."""
    rng = np.random.default_rng(1)
    indices = np.sort(rng.integers(0, columns, (rows, degree), dtype=np.int32), axis=1).ravel()
    return CSR(0, np.arange(rows + 1, dtype=np.int64) * degree, indices, None, columns)


class _Nothing(torch.autograd.Function):
    """A differentiable operation with a product that has almost nothing to do, forward and backward."""

    @staticmethod
    def forward(ctx: Any, features: torch.Tensor, kernel: SparseProduct, place: Place) -> torch.Tensor:
        ctx.given = kernel, place
        return _multiplied(features, *ctx.given)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _multiplied(gradient, *ctx.given), None, None


def _multiplied(features: torch.Tensor, kernel: SparseProduct, place: Place) -> torch.Tensor:
    out = place.zeros(features.shape, features.dtype)
    kernel.multiply(features.detach().contiguous(), out, place.zeros((0,), place.sum_dtype), accumulate=True)
    return out


def _ones(place: Place, *shape: int) -> torch.Tensor:
    """Features whose memory has been written."""
    return place.lasting(shape, place.feature_dtype).fill_(1)


def _measure_call(bench: _Bench) -> float:
    """Overhead of one operation of a model on nearly empty tensors, forward and backward, in seconds."""
    kernel = sparse_product(_matrix(1, 1, 1), bench.place)

    def calls() -> None:
        value = _ones(bench.place, 1, 1).requires_grad_()
        for _ in range(_CALLS):
            value = _Nothing.apply(value, kernel, bench.place)  # type: ignore[no-untyped-call]
        value.sum().backward()  # type: ignore[no-untyped-call]

    return bench.medians("call", {"call": calls})["call"] / (2 * _CALLS)


def _measure_sparse(bench: _Bench, place: Place, scale: float, call: float) -> RateTable:
    what = _named("spmm", place)
    values = []
    for width, degree in product(_WIDTHS, _DEGREES):
        nnz = max(degree, int(_SPARSE_WORK * scale) // max(width, 8))
        rows = nnz // degree
        for columns in _COLUMNS:
            held = max(1, int(columns * min(1.0, scale * 4)))
            kernel = sparse_product(_matrix(rows, degree, held), place)
            features, out = _ones(place, held, width), _ones(place, rows, width)
            unscaled = place.zeros((0,), place.sum_dtype)

            seconds = bench.medians(what, {what: partial(kernel.multiply, features, out, unscaled)})[what]
            values.append(max(seconds - call, 0.1 * seconds) / (rows * degree * width))
    return RateTable((_WIDTHS, _DEGREES, _COLUMNS), tuple(values))


def _named(what: str, place: Place) -> str:
    """The name of a figure; figures of float32 have the plain name."""
    return what if place.feature_dtype == torch.float32 else f"{what} bf16"


def _measure_dense(
    bench: _Bench,
    place: Place,
    scale: float,
    call: float,
    what: str,
    multiply: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None],
) -> RateTable:
    """Seconds for a multiplication, by the two short sides of a product of many rows. Collective.

    Args:
        multiply: takes (rows, inner) features, (rows, columns) of the output, and the (inner, columns) weight.
    """
    calls, works = {}, {}
    for short, long in combinations_with_replacement(_SIDES, 2):
        rows = max(long, int(_DENSE_NUMBERS * min(1.0, scale * 4)) // max(8, long))
        sides = [_ones(place, rows, side) for side in (short, long)]
        works[short, long] = 2 * rows * short * long

        def both(given: list[torch.Tensor] = sides) -> None:
            # Either side may be the inner one.
            for features, output in (given, given[::-1]):
                multiply(features, output, _ones(place, features.shape[1], output.shape[1]))

        calls[f"{short} {long}"] = both
    seconds = bench.medians(_named(what, place), calls).values()
    rates = {sides: max(each - 2 * call, 0.1 * each) / works[sides] for sides, each in zip(works, seconds, strict=True)}
    lattice = product(_SIDES, _SIDES)
    return RateTable((_SIDES, _SIDES), tuple(rates[min(sides), max(sides)] for sides in lattice))


def _measure_passes(bench: _Bench, place: Place, scale: float, call: float, stream: float) -> float:
    """Seconds of the passes over a hidden layer, there and back, relative to the bandwidth's in float32. Collective."""
    rows = max(_LEAST_PASS_ROWS, int(_PASS_ROWS * scale))
    output, gradient = _ones(place, rows, _PASS_WIDTH).requires_grad_(), _ones(place, rows, _PASS_WIDTH)
    bias = place.lasting((_PASS_WIDTH,), place.sum_dtype).requires_grad_()

    def passes() -> None:
        backward_from(rectify(output, bias, None, place), gradient, place).backward()  # type: ignore[no-untyped-call]

    what = _named("passes", place)
    seconds = bench.medians(what, {what: passes})[what]
    expected = HIDDEN_PASSES * rows * _PASS_WIDTH * MEASURED_BYTES / stream
    return max(seconds - HIDDEN_CALLS * call, 0.1 * seconds) / expected


def _measure_stream(bench: _Bench, scale: float) -> float:
    """Bytes per second of a sum of two arrays (STREAM's add)."""
    length = max(1024, int(_STREAM_BYTES * scale) // 4)
    first, second, out = (_ones(bench.place, length) for _ in range(3))

    def add() -> None:
        torch.add(first, second, out=out)

    seconds = bench.medians("stream", {"add": add})["add"]
    return 3 * 4 * length / seconds


def _measure_link(bench: _Bench, what: str, distance: int) -> Link:
    """Exchanges between ranks at a distance, in pairs at the same time. Collective."""
    comm = bench.comm
    side, number = divmod(comm.rank, distance)
    peer = (side ^ 1) * distance + number
    peer = peer if peer < comm.size else comm.rank

    # In memory allocated beforehand, as in training.
    given, taken = (_ones(bench.place, _LONG_BYTES // 4) for _ in range(2))

    def exchange(num_bytes: int, count: int) -> None:
        numbers = slice(num_bytes // 4)
        for _ in range(count):
            comm.wait(comm.receive(taken[numbers], peer) + comm.send(given[numbers], peer, Kind.SETUP))

    latency = bench.short(what, partial(exchange, _SHORT_BYTES, 1))
    seconds = bench.medians(what, {"long": partial(exchange, _LONG_BYTES, 4)})["long"] / 4
    return Link(latency, _LONG_BYTES / max(seconds - latency, 0.5 * seconds))


def _measure_overlap(bench: _Bench, scale: float) -> float:
    """The share of an exchange between neighbors that a product hides, while it lets messages advance. Collective.

    Measures both alone, and the exchange during the product: the difference between the sum and the combined time was
        hidden.
    """
    comm, peer = bench.comm, bench.comm.rank ^ 1
    peer = peer if peer < comm.size else comm.rank
    rows = max(1, int(_SPARSE_WORK * scale) // (_OVERLAP_WIDTH * _OVERLAP_DEGREE))
    kernel = sparse_product(_matrix(rows, _OVERLAP_DEGREE, rows), bench.place)
    features, out = (_ones(bench.place, rows, _OVERLAP_WIDTH) for _ in range(2))
    unscaled = bench.place.zeros((0,), bench.place.sum_dtype)
    given, taken = (_ones(bench.place, _OVERLAP_BYTES // 4) for _ in range(2))

    def begin() -> list[Request]:
        return comm.receive(taken, peer) + comm.send(given, peer, Kind.SETUP)

    def multiply(requests: Sequence[Request] = ()) -> None:
        kernel.multiply(features, out, unscaled, progress=lambda: comm.progress(requests))

    def behind() -> None:
        requests = begin()
        multiply(requests)
        comm.wait(requests)

    calls = {"exchange": lambda: comm.wait(begin()), "product": multiply, "both": behind}
    exchange, product_alone, both = bench.medians("overlap", calls).values()
    hidden = (exchange + product_alone - both) / max(1e-12, min(exchange, product_alone))
    return min(1.0, max(0.0, hidden))


def _measure_collectives(bench: _Bench) -> tuple[CollectiveRate, ...]:
    """All collectives in groups of neighbors of every size that divides the ranks. Collective."""
    comm, found = bench.comm, []
    for size, _ in factorizations(comm.size, 2):
        if size == 1:
            continue
        group = comm.group(comm.rank // size, comm.rank)
        for operation, act in _operations(group, bench.place).items():
            latency = bench.short(operation.value, partial(act, _SHORT_BYTES // 4))
            seconds = bench.medians(operation.value, {"long": partial(_repeat, act, _LONG_BYTES // 4, 4)})["long"] / 4
            share = {Operation.ALL_REDUCE: 2 * (size - 1) / size, Operation.BROADCAST: 1.0}
            sent = share.get(operation, (size - 1) / size) * _LONG_BYTES
            content = max(seconds - latency, 0.5 * seconds)
            found.append(CollectiveRate(operation.value, size, latency, content / sent))
    return tuple(found)


def _repeat(act: Callable[[int], None], count: int, times: int) -> None:
    for _ in range(times):
        act(count)


def _operations(group: Communicator, place: Place) -> dict[Operation, Callable[[int], None]]:
    """Collectives of a number of elements in a group, in memory allocated beforehand, as in training."""
    given, taken = (_ones(place, _LONG_BYTES // 4) for _ in range(2))

    def sizes(count: int) -> list[int]:
        return [stop - start for start, stop in (split_range(count, group.size, rank) for rank in range(group.size))]

    def all_reduce(count: int) -> None:
        group.all_reduce(given[:count], Kind.SETUP)

    def all_gather(count: int) -> None:
        own = sizes(count)[group.rank]
        group.all_gather(given[:own], sizes(count), Kind.SETUP, taken[:count])

    def reduce_scatter(count: int) -> None:
        own = sizes(count)[group.rank]
        group.reduce_scatter(given[:count], sizes(count), Kind.SETUP, taken[:own])

    def broadcast(count: int) -> None:
        group.broadcast(given[:count], 0, Kind.SETUP)

    return {
        Operation.ALL_REDUCE: all_reduce,
        Operation.ALL_GATHER: all_gather,
        Operation.REDUCE_SCATTER: reduce_scatter,
        Operation.BROADCAST: broadcast,
    }
