"""A run that finds no shards, or the wrong ones, is told how to make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog, Dataset, ReadCounter
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import OpenedShards
from support.problems import problem

GIVEN = problem("graph", 20, 60, symmetric=False)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return GIVEN.store(Catalog(tmp_path / "catalog"), 2)


def open_shards(dataset: Dataset, num_ranks: int, **options: Any) -> OpenedShards:
    config = TrainConfig.of(catalog=str(dataset.path.parent), dataset=dataset.name, **options)
    reads, request = config.algorithm.kind.reads, config.shard_request(dataset)
    opened: OpenedShards = reads.open(dataset, request, 0, num_ranks, ReadCounter())
    return opened


def test_a_rank_opens_its_own_row_shard(dataset: Dataset) -> None:
    opened = open_shards(dataset, 2, ranks=2)
    rows = opened.vertex_rows("rows", (0, 0))
    np.testing.assert_array_equal(rows.vertex(), np.flatnonzero(GIVEN.part(2) == 0))
    np.testing.assert_array_equal(rows.read("feature"), GIVEN.feature[rows.vertex()])


def test_every_rank_opens_the_grid_shards_and_reads_its_rows(tmp_path: Path) -> None:
    dataset = GIVEN.store_grid(Catalog(tmp_path / "catalog"), "double", grid=(2, 2))
    opened = open_shards(dataset, 3, ranks=3, algorithm="broadcast")
    for order in ("rows", "columns"):
        rows = opened.vertex_rows(order, (5, 12))
        np.testing.assert_array_equal(rows.read("feature"), GIVEN.feature[rows.vertex()])


def test_missing_shards_are_told_with_the_command_that_makes_them(dataset: Dataset) -> None:
    with pytest.raises(NotFoundError, match="`gnnloom partition graph --parts 3` and `gnnloom shard graph --parts 3`"):
        open_shards(dataset, 3, ranks=3)
    with pytest.raises(NotFoundError, match="`gnnloom shard graph --grid 16x16 --permutation double`"):
        open_shards(dataset, 2, ranks=2, algorithm="summa")
    with pytest.raises(NotFoundError, match="--permutation partition --parts 2`"):
        open_shards(dataset, 2, ranks=2, algorithm="summa", permutation="partition")


def test_shards_for_another_number_of_ranks_are_refused(dataset: Dataset) -> None:
    with pytest.raises(InputError, match=r"2 ranks.* 3 \(configured: 2\)"):
        open_shards(dataset, 3, ranks=2)
    with pytest.raises(InputError, match="the job has 3 ranks, but 2 are configured"):
        open_shards(dataset, 3, ranks=2, algorithm="broadcast")
