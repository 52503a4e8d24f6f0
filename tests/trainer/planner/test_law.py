"""The law of what partitions exchange meets what it is fitted to, and is bounded by a random partition."""

from __future__ import annotations

import numpy as np
import pytest

from gnnloom.trainer.algorithms.workload import Exchange
from gnnloom.trainer.planner.law import ExchangeLaw, KnownPartition
from support.graphs import random_adjacency
from support.partitions import rows_sent


def known(parts: int, rows: float, heaviest: float = 1.0) -> KnownPartition:
    exchange = Exchange(rows=rows, messages=parts, busiest_rows=1.5 * rows / parts, busiest_messages=1)
    return KnownPartition("given", f"key{parts}", parts, exchange, exchange, heaviest)


def test_a_power_law_is_found_and_continued() -> None:
    partitions = [known(parts, 50 * (parts - 1) ** 0.7, 1.1) for parts in (2, 4, 8, 16)]
    law = ExchangeLaw.fitted(10_000, 10**6, partitions)
    assert law.exponent == pytest.approx(0.7)
    assert law.error == pytest.approx(0, abs=1e-9)
    found = law.at(100)
    assert found is not None
    assert found.rows == pytest.approx(50 * 99**0.7)
    assert found.busiest_rows == pytest.approx(1.5 * found.rows / 100)
    assert law.heaviest == 1.1


def test_the_error_is_the_distance_from_the_law() -> None:
    partitions = [known(parts, 50 * (parts - 1) ** 0.7 * factor) for parts, factor in ((2, 1.1), (4, 0.9), (8, 1.1))]
    error = ExchangeLaw.fitted(10_000, 10**6, partitions).error
    assert error is not None
    assert 0.03 < error < 0.2


def test_with_one_partition_the_exponent_is_assumed_and_no_error_is_claimed() -> None:
    law = ExchangeLaw.fitted(10_000, 10**6, [known(4, 90)])
    found = law.at(4)
    assert found is not None
    assert found.rows == pytest.approx(90)
    assert law.error is None
    assert "assumed exponent" in law.source


def test_a_law_never_exceeds_a_random_partition() -> None:
    law = ExchangeLaw.fitted(1000, 3000, [known(2, 900), known(4, 2700)])
    found = law.at(512)
    assert found is not None
    assert found.rows == law.random_rows(512)


@pytest.mark.parametrize("parts", [2, 5, 9])
def test_without_partitions_rows_are_near_those_of_a_random_one_and_not_below(parts: int) -> None:
    matrix = random_adjacency(400, 1600, 3, symmetric=True)
    law = ExchangeLaw.fitted(400, matrix.nnz, [])
    part = np.random.default_rng(1).integers(0, parts, 400)
    counted = rows_sent(matrix.toarray(), part, parts).sum()
    found = law.at(parts)
    assert found is not None
    assert 0.97 * counted < found.rows < 1.2 * counted
    assert "bound" in law.source
    assert law.at(1) is None
