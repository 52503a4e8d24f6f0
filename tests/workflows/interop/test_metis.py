"""Partitions are exchanged as METIS part files; a wrong file is refused with its line."""

from __future__ import annotations

import numpy as np
import pytest

from gnnloom.pipeline.partition.measure import quality
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.workflows.interop.metis import read_metis_part, store_metis_part, write_metis_part
from support.small_catalogs import store_small_dataset


def test_a_partition_survives_the_way_through_a_metis_file(catalog: Catalog) -> None:
    partition = store_small_dataset(catalog).partition(2)
    file = catalog.root / "web.part.2"
    write_metis_part(partition, file)
    np.testing.assert_array_equal(np.loadtxt(file, dtype=np.int32), partition.part())
    part = np.empty(30, np.int32)
    parts = read_metis_part(file, part)
    np.testing.assert_array_equal(part, partition.part())
    assert parts == 2


def test_a_given_partition_is_measured_like_our_own(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    # So that the rows that parts exchange are stored as arrays, as those of many parts are.
    monkeypatch.setattr(quality, "MATRIX_PARTS", 2)
    dataset, cluster = store_small_dataset(catalog), InProcessCluster()
    graph = dataset.graph()
    own = partition_graph(dataset, graph, PartitionOptions(3, "random"), cluster)
    write_metis_part(own, catalog.root / "web.part.3")
    given = store_metis_part(dataset, graph, catalog.root / "web.part.3", None, cluster)
    assert given.artifact.key != own.artifact.key
    different = {name for name in own.quality if own.quality[name] != given.quality.get(name)}
    # Nobody asked the other program for a limit, which the bound follows from.
    assert different - {"imbalance_bound"} == {"method"}
    for ours, theirs in zip(own.exchange(), given.exchange(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n1\n", "2 lines, expected one for each of 3"),
        ("0\n1\n0\n1\n", ":4: more lines"),
        ("0\nx\n0\n", r":2: expected a part from 0 to 1, found b'x'"),
        ("0\n-1\n0\n", ":2: expected a part"),
        ("0\n2\n0\n", ":2: expected a part"),
        ("0\n1.0\n0\n", ":2: expected a part"),
        ("0\n\n0\n", ":2: expected a part"),
        ("0\n" + "1" * 10_000, ":2: expected a part"),
        ("0\n\u0662\n1\n", ":2: expected a part"),
    ],
)
def test_files_that_are_not_partitions_are_refused_with_their_line(catalog: Catalog, text: str, message: str) -> None:
    catalog.root.mkdir()
    file = catalog.root / "web.part.2"
    file.write_text(text)
    part = np.empty(3, np.int32)
    with pytest.raises(InputError, match=message):
        read_metis_part(file, part, 2)
    with pytest.raises(NotFoundError):
        read_metis_part(catalog.root / "absent", part)
