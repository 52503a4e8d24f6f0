"""Relations of a graph with types are mapped one by one: a reader of few relations opens the files of no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.typed.mapped_graph import map_relations
from support.opened_files import hearing_of_files
from support.typed_tables import random_problem


def test_a_relation_is_mapped_without_the_others(catalog: Catalog, tmp_path: Path) -> None:
    graph = random_problem(7, edges=60).ingest(catalog.create("shop"), tmp_path / "tables")
    everything = map_relations(graph)
    assert len(everything) > 1
    name = next(iter(everything))
    opened = set[str]()

    def note(path: Any, _mode: Any, _flags: Any) -> None:
        if str(path).endswith(".npy"):
            opened.add(Path(str(path)).name)

    with hearing_of_files(note):
        found = map_relations(graph, [name])
    assert list(found) == [name]
    assert opened
    assert all(each.startswith(f"{name}.") for each in opened)
    np.testing.assert_array_equal(found[name].matrix.indices, everything[name].matrix.indices)
    assert found[name].columns.keys() == everything[name].columns.keys()
    assert map_relations(graph, []) == {}
