"""Times follow from the steps and the profile as stated, computed by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage.disk.files import write_json
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.trainer.algorithms.steps import Communication, DenseWork, ElementWork, Operation, SparseWork, Step
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.planner.cost import communication_seconds, dense_seconds, epoch_cost
from gnnloom.trainer.planner.profile import (
    GENERIC,
    CollectiveRate,
    Link,
    MachineProfile,
    Rates,
    RateTable,
    open_profile,
    published_profiles,
    store_profile,
)

PROFILE = MachineProfile(
    name="made-up",
    ranks_per_node=4,
    intra=Link(1e-6, 1e9),
    inter=Link(1e-5, 2e8),
    cards=2,
    spmm=RateTable(((1, 100), (1, 10), (1, 1000)), (8e-9, 8e-9, 4e-9, 4e-9, 2e-9, 2e-9, 1e-9, 1e-9)),
    gemm=RateTable(((1,),), (1e-9,)),
    stream=1e9,
    call=0.0,
)


def sent(
    operation: Operation, group: int, stride: int, elements: float, calls: float = 1, **others: Any
) -> Communication:
    fixed: dict[str, Any] = {"kind": Kind.LOSS, "groups": 1, "element_size": 4}
    return Communication(
        operation=operation, group=group, stride=stride, elements=elements, calls=calls, **{**fixed, **others}
    )


def test_tables_are_interpolated_in_logarithms_and_constant_outside() -> None:
    assert PROFILE.spmm.at(1, 1, 5) == 8e-9
    assert PROFILE.spmm.at(100, 10, 5) == 1e-9
    assert PROFILE.spmm.at(10, 1, 5) == pytest.approx(5e-9)
    assert PROFILE.spmm.at(10**6, 10**6, 10**9) == 1e-9
    with pytest.raises(InputError, match="do not match"):
        RateTable(((1, 2),), (1.0,))


def test_rings_within_a_node_have_its_links() -> None:
    # Each of 4 ranks sends 2 * 3/4 of 4000 bytes; twice two rounds of latency.
    step = sent(Operation.ALL_REDUCE, 4, 1, 1000)
    assert communication_seconds(step, PROFILE) == pytest.approx(4e-6 + 6000 / 1e9)
    # In a broadcast every rank gets everything.
    assert communication_seconds(sent(Operation.BROADCAST, 4, 1, 1000), PROFILE) == pytest.approx(2e-6 + 4000 / 1e9)


@pytest.mark.parametrize(("stride", "rings"), [(1, 1), (2, 2), (4, 4), (64, 4)])
def test_rings_between_nodes_share_the_network_cards(stride: int, rings: int) -> None:
    step = sent(Operation.ALL_GATHER, 8, stride, 1000)
    bandwidth = min(1e9, 2 * 2e8 / rings)
    assert communication_seconds(step, PROFILE) == pytest.approx(3e-5 + 3500 / bandwidth)


def test_groups_communicate_at_the_same_time() -> None:
    alone = sent(Operation.REDUCE_SCATTER, 4, 1, 1000)
    many = replace(alone, groups=8, elements=8000, calls=8)
    assert communication_seconds(many, PROFILE) == pytest.approx(communication_seconds(alone, PROFILE))


def test_measured_collectives_win_over_the_links() -> None:
    rate = CollectiveRate("all-reduce", 4, 1e-3, 1e-6)
    step = sent(Operation.ALL_REDUCE, 4, 1, 1000, calls=3)
    found = communication_seconds(step, replace(PROFILE, collectives=(rate,)))
    assert found == pytest.approx(3e-3 + 6000e-6)


def test_an_exchange_takes_as_long_as_its_busiest_rank() -> None:
    step = sent(Operation.EXCHANGE, 4, 1, 1000, calls=12, busiest=(0.5, 0.25))
    assert communication_seconds(step, PROFILE) == pytest.approx(3e-6 + 2000 / 1e9)


def test_an_epoch_is_split_into_compute_exposed_and_waiting() -> None:
    sparse = SparseWork(nnz=2000, average=1000, rows=1000, columns=5, width=1)
    hidden = sent(Operation.EXCHANGE, 4, 1, 250, calls=4, busiest=(1.0, 1.0), overlapped=1.0)
    steps: list[Step] = [
        sparse,
        hidden,
        DenseWork(rows=10, inner=10, columns=10),
        ElementWork(numbers=250),
        sent(Operation.ALL_REDUCE, 4, 1, 1000),
    ]
    found = epoch_cost(steps, PROFILE)
    assert found.spmm == pytest.approx(1000 * 8e-9 + 8000 / 1e9)
    # Twice the nonzeros in as many rows: more per row, and so a lower rate.
    assert found.waiting == pytest.approx(2000 * PROFILE.spmm.at(1, 2, 5) - 1000 * 8e-9)
    assert found.gemm == pytest.approx(1000 * 1e-9)
    assert found.passes == pytest.approx(1000 / 1e9)
    # The exchange of 5 us runs behind the product of 16 us.
    assert found.hidden == pytest.approx(5e-6)
    assert found.exposed == pytest.approx(1e-5)
    assert found.total == pytest.approx(found.compute + found.exposed + found.waiting)
    assert epoch_cost(steps, replace(PROFILE, overlap=0)).exposed == pytest.approx(1.5e-5)
    # Numbers of twice the size take twice as long; what is sent has a size of its own.
    assert epoch_cost(steps, PROFILE, 8).compute == pytest.approx(2 * found.compute)
    assert epoch_cost(steps, PROFILE, 8).exposed == pytest.approx(found.exposed)


def test_one_product_hides_no_more_than_its_own_time() -> None:
    # 16 us of product; half of each message, 8 us, is under way behind three quarters of it.
    sparse = SparseWork(nnz=1000, average=1000, rows=1000, columns=5, width=1)
    half = sent(Operation.ALL_GATHER, 4, 1, 4 * 4000 / 3, overlapped=0.75)
    alone = communication_seconds(half, PROFILE)
    one, three = (epoch_cost([sparse, *[half] * count], PROFILE) for count in (1, 3))
    assert one.hidden == pytest.approx(0.75 * min(alone, one.spmm))
    assert one.hidden < three.hidden <= three.spmm
    # Another product hides messages of its own.
    twice = epoch_cost([sparse, half, sparse, half], PROFILE)
    assert twice.hidden == pytest.approx(2 * one.hidden)
    assert twice.exposed == pytest.approx(sum(twice.communication.values()) - twice.hidden)


def test_products_in_bf16_have_rates_of_their_own_where_they_were_measured(tmp_path: Path) -> None:
    steps: list[Step] = [
        SparseWork(nnz=1000, average=1000, rows=1000, columns=5, width=1), DenseWork(rows=10, inner=10, columns=10)
    ]  # fmt: skip
    assumed, wide = epoch_cost(steps, PROFILE, 2), epoch_cost(steps, PROFILE)
    assert (assumed.spmm, assumed.gemm) == pytest.approx((wide.spmm / 2, wide.gemm / 2))
    rates = Rates(RateTable(((1,), (1,), (1,)), (7e-9,)), RateTable(((1,),), (3e-9,)), passes=2.5)
    measured = replace(PROFILE, bf16=rates)
    found = epoch_cost(steps, measured, 2)
    # Rows are read and written with two bytes for each number.
    assert (found.spmm, found.gemm) == pytest.approx((1000 * 7e-9 + 4000 / 1e9, 1000 * 3e-9))
    assert epoch_cost(steps, measured) == wide
    touched = [ElementWork(numbers=1000)]
    assert epoch_cost(touched, PROFILE, 2).passes == epoch_cost(touched, PROFILE).passes == pytest.approx(4e-6)
    assert epoch_cost(touched, measured, 2).passes == pytest.approx(1e-5)
    store_profile(tmp_path, measured)
    assert open_profile(tmp_path, "made-up") == measured


def test_gradients_of_weights_and_products_by_two_sides_have_rates_of_their_own(tmp_path: Path) -> None:
    by_sides = RateTable(((1, 100), (1, 100)), (9e-9, 5e-9, 5e-9, 1e-9))
    measured = replace(PROFILE, gemm=by_sides, gradient=RateTable(((1,),), (4e-9,)))
    product, gradient = DenseWork(rows=10**4, inner=1, columns=100), DenseWork(rows=1, inner=10**4, columns=100)
    assert dense_seconds(product, measured) == pytest.approx(10**6 * 5e-9)
    assert dense_seconds(gradient, measured) == pytest.approx(10**6 * 4e-9)
    # Without a rate of their own they take the time of other products.
    assert dense_seconds(gradient, replace(measured, gradient=None)) == pytest.approx(10**6 * 5e-9)
    narrow = Rates(PROFILE.spmm, PROFILE.gemm, gradient=RateTable(((1,),), (7e-9,)))
    assert dense_seconds(gradient, replace(measured, bf16=narrow), 2) == pytest.approx(10**6 * 7e-9)
    store_profile(tmp_path, replace(measured, bf16=narrow, passes=1.5))
    assert open_profile(tmp_path, "made-up") == replace(measured, bf16=narrow, passes=1.5)


def test_passes_take_their_measured_multiple_of_the_bandwidth() -> None:
    touched, slow = [ElementWork(numbers=1000)], replace(PROFILE, passes=1.5)
    assert epoch_cost(touched, slow).passes == pytest.approx(6e-6)
    # Halves of the numbers do not make them faster, and twice the bytes make them slower.
    assert epoch_cost(touched, slow, 2).passes == pytest.approx(6e-6)
    assert epoch_cost(touched, slow, 8).passes == pytest.approx(1.2e-5)


def test_profiles_are_stored_and_read_back(tmp_path: Path) -> None:
    store_profile(tmp_path, PROFILE)
    assert open_profile(tmp_path, "made-up") == PROFILE
    assert open_profile(tmp_path / "elsewhere", str(tmp_path / ".profiles" / "made-up.json")) == PROFILE


def test_published_profiles_cite_their_figures() -> None:
    assert published_profiles() == ["frontier", "generic", "perlmutter", "summit"]
    for name in published_profiles():
        if name == GENERIC:
            assert "gnnloom calibrate" in open_profile(Path("none"), name).sources["measured"]
            continue
        profile = open_profile(Path("none"), name)
        assert profile.sources["others"].startswith("assumed")
        assert all("(" in text for key, text in profile.sources.items() if key != "others"), name


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "not a machine profile"),
        ({"encoding-type": "gnnloom-machine-profile", "version": 4}, "version 4"),
        ({"encoding-type": "gnnloom-machine-profile", "version": 1}, "not a complete machine profile"),
        ({**PROFILE.to_json(), "speed": 1}, "not a complete machine profile"),
    ],
)
def test_what_is_not_a_profile_is_refused_by_name(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    file = tmp_path / "profile.json"
    write_json(file, content)
    with pytest.raises(InputError, match=message):
        open_profile(tmp_path, str(file))


def test_a_missing_profile_lists_those_that_there_are(tmp_path: Path) -> None:
    store_profile(tmp_path, PROFILE)
    with pytest.raises(NotFoundError, match="made-up, frontier, generic, perlmutter, summit"):
        open_profile(tmp_path, "nowhere")
