"""The bytes and messages that the descriptors predict equal an independent copy of the papers' formulas."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.storage.errors import InputError
from gnnloom.trainer.algorithms.algorithm import factorizations
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.algorithms.steps import (
    Communication,
    ElementWork,
    Operation,
    SparseWork,
    Spread,
    Steps,
    Volume,
    add_alignment,
)
from gnnloom.trainer.algorithms.workload import Exchange, Workload
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.adjacency_scaling import NORMALIZATIONS, scaling
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.planner.describe import SCALED_SIDES, epoch_steps
from support import traffic
from support.covering import examples, few_of

ON_GRIDS = ("broadcast", "replicated", "summa", "split3d", "tensor3d")
OPTIONS = {"summa_width": 0, "aggregation_blocks": 1, "gradient_product": "straight"}


def work(dims: tuple[int, ...] = (5, 17, 3), n: int = 60, **others: Any) -> Workload:
    orders = (True, *(2 * before <= 2 * after for before, after in pairwise(dims[1:])))
    fixed: dict[str, Any] = {
        "num_vertices": n,
        "nnz": 5 * n,
        "num_training": n // 3,
        "dims": dims,
        "inner": dims[1:],
        "propagates_first": orders,
        "input_is_kept": True,
        "matrices": sum(before * after for before, after in pairwise(dims)),
        "vectors": sum(dims[1:]),
        "feature_size": 8,
        "parameter_size": 8,
        "score_size": 8,
    }
    return Workload(**{**fixed, **others})


def volume(name: str, given: Workload, grid: tuple[int, ...], **options: int) -> Volume:
    algorithm = ALGORITHMS[name]
    assert algorithm.steps is not None
    return Volume.of(algorithm.steps(given, dict(zip(algorithm.axes, grid, strict=True)), {**OPTIONS, **options}))


def papers(name: str, given: Workload, grid: tuple[int, ...], **options: int) -> tuple[dict[str, int], dict[str, int]]:
    """The same by the tests' own copy of the formulas."""
    epoch = traffic.Epoch(
        given.num_vertices,
        given.nnz,
        given.num_training,
        given.dims,
        given.propagates_first,
        given.input_is_kept,
        given.input_needs_gradient,
    )
    if name in {"broadcast", "replicated"}:
        traffic.row_blocks(epoch, *grid)
    elif name == "tensor3d":
        traffic.tensor3d(epoch, grid[0], grid[1], grid[2], blocks=options.get("aggregation_blocks", 1))
    else:
        rows, columns, layers = (*grid, 1)[:3]
        traffic.summa(epoch, rows, columns, layers, options.get("summa_width", 0))
    return epoch.counted()


@st.composite
def shapes(draw: st.DrawFn) -> tuple[str, Workload, tuple[int, ...], dict[str, int]]:
    name = draw(st.sampled_from(ON_GRIDS))
    grid = draw(st.sampled_from(factorizations(draw(st.integers(1, 64)), len(ALGORITHMS[name].axes))))
    dims = tuple(draw(st.lists(st.integers(1, 300), min_size=2, max_size=6)))
    n = draw(st.integers(1, 10**7))
    kept, gradient = draw(st.sampled_from([(True, False), (False, False), (False, True)]))
    orders = tuple(draw(st.lists(st.booleans(), min_size=len(dims) - 1, max_size=len(dims) - 1)))
    given_work = work(
        dims,
        n,
        nnz=draw(st.integers(n, 10**9)),
        num_training=draw(st.integers(1, n)),
        propagates_first=(kept or orders[0], *orders[1:]),
        input_is_kept=kept,
        input_needs_gradient=gradient,
    )
    # The tests' copy lists all cuts, so that stages must not be too short.
    width = draw(st.sampled_from([0, max(1, n // draw(st.integers(1, 40)))]))
    return name, given_work, grid, {"summa_width": width, "aggregation_blocks": draw(st.integers(1, 5))}


@settings(max_examples=examples(150), deadline=None)
@given(shapes())
def test_every_algorithm_sends_what_the_papers_state(shape: Any) -> None:
    name, given_work, grid, options = shape
    found = volume(name, given_work, grid, **options)
    assert (found.bytes, found.messages) == papers(name, given_work, grid, **options)


def test_transfers_that_run_behind_products_are_stated() -> None:
    """The first block of a product is awaited; the others arrive while the block before is multiplied."""
    exchange = Exchange(rows=40, messages=12, busiest_rows=20, busiest_messages=3)
    grids = {"p2p": (4,), "broadcast": (4,), "replicated": (4, 2), "summa": (2, 2), "split3d": (2, 2, 2)}
    shares = {"p2p": 1.0, "broadcast": 3 / 4, "replicated": 1 / 2, "summa": 1 / 2, "split3d": 1 / 2}
    for name, grid in grids.items():
        algorithm = ALGORITHMS[name]
        assert algorithm.steps is not None
        axes = dict(zip(algorithm.axes, grid, strict=True))
        steps = algorithm.steps(work(n=64, exchange=exchange), axes, OPTIONS)
        kinds = {"halo forward", "propagate forward", "adjacency"}
        moved = [step for step in steps if isinstance(step, Communication) and step.kind.value in kinds]
        operation = Operation.EXCHANGE if name == "p2p" else Operation.BROADCAST
        hidden = {step.overlapped for step in moved if step.operation is operation}
        assert list(hidden) == pytest.approx([shares[name]]), name
        # What is collected before a product, or summed after it, waits for all of it.
        assert not any(step.overlapped for step in moved if step.operation is not operation)


def test_small_blocks_are_multiplied_together_within_16_mib() -> None:
    steps = ALGORITHMS["broadcast"].steps
    assert steps is not None
    # 2^18 vertices of 512 bytes are 128 MiB; those of the larger graph fill 8 GiB on each of 64 ranks.
    for n, ranks, calls in ((18, 4, 4), (18, 7, 7), (18, 8, 8), (18, 16, 8), (18, 1024, 8), (15, 64, 4), (30, 64, 64)):
        given_work = work((128, 128, 32), n=1 << n, feature_size=4)
        found = [step for step in steps(given_work, {"row": ranks}, {}) if isinstance(step, SparseWork)]
        assert {step.calls for step in found} == {calls}
        assert all(step.columns * 512 <= 16 << 20 or calls == ranks for step in found)


def test_blocks_with_few_entries_are_sent_by_entry() -> None:
    given_work = work(n=1000, nnz=4000)
    # On p x p ranks, p blocks have all rows.
    for side in (2, 4, 8):
        numbers = 4000 + min(4000, side * 1000)
        assert volume("summa", given_work, (side, side)).bytes["adjacency"] == 2 * (side - 1) * 4 * numbers
        assert volume("split3d", given_work, (side, side, 1)).bytes["adjacency"] == 2 * (side - 1) * 4 * numbers


def test_p2p_multiplies_once_for_each_neighbor() -> None:
    exchange = Exchange(rows=40, messages=9, busiest_rows=20, busiest_messages=3)
    algorithm = ALGORITHMS["p2p"]
    assert algorithm.steps is not None
    products = [
        step for step in algorithm.steps(work(exchange=exchange), {"row": 3}, {}) if isinstance(step, SparseWork)
    ]
    # Of its own 20 rows, and of the 40 / 3 rows that others receive.
    sizes = [(step.calls, round(step.calls * step.rows, 9)) for step in products]
    assert sizes == [(1.0, 20.0), (3.0, round(40 / 3, 9))] * 2
    # Together, each pair has a third of the nonzeros.
    assert sum(step.average for step in products[:2]) == pytest.approx(work().nnz / 3)


def test_an_exchange_of_p2p_hides_behind_the_own_columns_only() -> None:
    exchange = Exchange(rows=40, messages=6, busiest_rows=20, busiest_messages=2)
    algorithm = ALGORITHMS["p2p"]
    assert algorithm.steps is not None
    steps = algorithm.steps(work(exchange=exchange), {"row": 3}, {})
    kinds = [type(step).__name__ for step in steps if isinstance(step, SparseWork | Communication)][:3]
    # The halo columns' product needs the rows that the exchange brings, so it comes after it.
    assert kinds == ["SparseWork", "Communication", "SparseWork"]
    own, sent, halo = (step for step in steps[:4] if isinstance(step, SparseWork | Communication))
    assert isinstance(sent, Communication)
    assert sent.overlapped == 1.0
    assert isinstance(own, SparseWork)
    assert isinstance(halo, SparseWork)
    assert own.average / halo.average == pytest.approx(20 / (40 / 3))


@pytest.mark.parametrize("name", ON_GRIDS)
def test_only_factors_other_than_1_take_a_pass(name: str) -> None:
    algorithm = ALGORITHMS[name]
    assert algorithm.steps is not None
    axes = dict.fromkeys(algorithm.axes, 2)
    given_work = work((5, 17, 3), input_is_kept=False)
    passes = {}
    for normalization in NORMALIZATIONS:
        found = scaling("", normalization, np.full(4, 2.0), Place())
        sides = tuple(len(side) > 0 for side in (found.right, found.left))
        assert sides == SCALED_SIDES[normalization]
        steps = algorithm.steps(replace(given_work, scaled_sides=sides), axes, OPTIONS)
        passes[normalization] = sum(isinstance(step, ElementWork) for step in steps)
    products = given_work.products
    backward = sum(product.backward for product in products)
    assert passes["symmetric"] - passes["none"] == len(products)
    assert passes["mean"] - passes["none"] == backward


def test_sizes_of_numbers_are_parameters() -> None:
    half = work(feature_size=2, parameter_size=4, score_size=2)
    found, whole = volume("summa", half, (2, 3)), volume("summa", work(), (2, 3))
    for kind, factor in (("propagate forward", 4), ("transform backward", 4), ("gradient", 2)):
        assert found.bytes[kind] * factor == whole.bytes[kind]
    assert found.messages == whole.messages
    # Weights of edges travel with the column ids.
    weighted = volume("summa", work(value_size=8), (2, 3))
    assert weighted.bytes["adjacency"] - whole.bytes["adjacency"] == 2 * 2 * 8 * work().nnz
    assert weighted.messages["adjacency"] * 2 == whole.messages["adjacency"] * 3


@pytest.mark.parametrize(
    ("name", "grid", "expected"),
    [
        # One product of width 3 there and back, from one block of 60 rows, or from three of 20.
        ("broadcast", (1,), 0),
        ("broadcast", (3,), 2 * 2 * 20 * 3),
        ("p2p", (3,), 2 * 2 * 20 * 3),
        # Dense products are widened too: the output of the first layer, and its gradient.
        ("tensor3d", (1, 2, 1), 2 * 4 * 60 * 17),
        # A sparse product is written as it is summed, and narrowed once.
        ("tensor3d", (1, 1, 2), 2 * 60 * 3),
    ],
)
def test_sums_of_bfloat16_are_widened_and_narrowed(name: str, grid: tuple[int, ...], expected: int) -> None:
    exchange = Exchange(rows=40, messages=6, busiest_rows=20, busiest_messages=2)
    passes = []
    for precision in ("float32", "bf16"):
        config = TrainConfig.of(
            catalog="c", dataset="d", ranks=math.prod(grid), algorithm=name, grid=grid, precision=precision
        )
        given_work = work(feature_size=config.model.feature_bytes, parameter_size=4, exchange=exchange)
        steps = epoch_steps(config.algorithm, given_work)
        passes.append(sum(step.numbers for step in steps if isinstance(step, ElementWork)))
    assert passes[1] - passes[0] == pytest.approx(expected)


def test_p2p_sends_what_its_partition_says() -> None:
    forward = Exchange(rows=40, messages=5, busiest_rows=20, busiest_messages=2)
    back = Exchange(rows=30, messages=4, busiest_rows=15, busiest_messages=2)
    given_work = work((5, 17, 3), exchange=forward, exchange_back=back)
    found = volume("p2p", given_work, (3,))
    # The first layer's product is kept; the second one is A (H W) of width 3, forward and backward.
    assert found.bytes["halo forward"] == 40 * 3 * 8
    assert found.bytes["halo backward"] == 30 * 3 * 8
    assert found.messages["halo forward"] == 5
    assert found.bytes["gradient"] == 2 * 2 * (5 * 17 + 17 * 3 + 20) * 8
    attending = volume("p2p", replace(given_work, attends=True), (3,))
    assert attending.bytes["halo backward"] == 40 * 3 * 8
    with pytest.raises(InputError, match="partition"):
        volume("p2p", work(), (3,))


@pytest.mark.parametrize("name", ON_GRIDS)
def test_counting_takes_no_time_for_a_billion_vertices_on_thousands_of_ranks(name: str) -> None:
    # With half the shape of Friendster's graph and layers; no list as long as the vertices is formed.
    given_work = work((128, 128, 128, 32), 10**9, nnz=36 * 10**9)
    began = time.process_time()
    for grid in factorizations(4096, len(ALGORITHMS[name].axes))[::8]:
        assert sum(volume(name, given_work, grid).bytes.values()) > 0
    assert time.process_time() - began < 2


@pytest.mark.parametrize(("shape", "n"), few_of([(2, 3, 2), (3, 1, 4), (1, 1, 7), (5, 2, 1)], [5, 61], together=1))
def test_moves_within_one_order_are_exact(shape: tuple[int, ...], n: int) -> None:
    axes, vertices = dict(zip("xyz", shape, strict=True)), {"rows": np.arange(n)}
    for source, target in (
        (Spread(("x", "z"), ("y",)), Spread(("z",), ("y",))),
        (Spread(("x",), ("y",)), Spread(("y",), ("z",))),
        (Spread(("x",), ()), Spread(("z", "y"), ("x",))),
    ):
        steps = Steps(work(n=n), axes)
        add_alignment(steps, source, target, 11, backward=True)
        found = Volume.of(steps.found)
        cuts = [traffic.Cut("rows", *(tuple("xyz".index(a) for a in each) for each in (s.rows, s.columns)))
                for s in (source, target)]  # fmt: skip
        first, second = cuts
        for kind, before, after in (("align forward", first, second), ("align backward", second, first)):
            expected = traffic.alignment(shape, before, after, vertices, 11)
            assert (found.bytes.get(kind, 0), found.messages.get(kind, 0)) == expected


def test_moves_between_random_orders_are_the_expected_ones() -> None:
    n, axes = 60, {"x": 2, "y": 3}
    steps = Steps(work(n=n), axes)
    add_alignment(steps, Spread(("x",), ("y",), 0), Spread(("x",), ("y",), 1), 7, backward=False)
    rng = np.random.default_rng(0)
    counted = []
    for _ in range(60):
        vertices = {"rows": rng.permutation(n), "columns": rng.permutation(n)}
        ends = traffic.Cut("rows", (0,), (1,)), traffic.Cut("columns", (0,), (1,))
        counted.append(traffic.alignment((2, 3), *ends, vertices, 7))
    average = np.mean(counted, axis=0)
    found = Volume.of(steps.found)
    assert found.bytes["align forward"] == pytest.approx(average[0], rel=0.02)
    assert found.messages["align forward"] == pytest.approx(average[1], rel=0.02)
