"""Columns of edges are counted by the phases that store them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scale.counted_cluster import MeteredCluster
from scale.test_counts import MOST_OPENS

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed import edge_columns
from gnnloom.pipeline.ingest.typed.edge_columns import ColumnsPlan
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph, project_typed_ingest
from gnnloom.pipeline.ingest.typed.table import parse_relations, parse_vertices
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.typed.type_vertices import ingest_type_vertices
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.shuffle.columns import Column, row_bytes
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase import count, temporary_bytes, total_tasks
from gnnloom.storage import Catalog

COLUMNS = "who,what,amount as weight,at as time,fee as feature,tip as feature,kind as label"
#: The phase of each function.
PHASES = {"route_places": "place edges", "route_values": "route columns", "write_arrays": "write columns"}
FILES, ROWS = 4, 5000


def _tables(folder: Path) -> TypedTables:
    """A table of several files and relations."""
    rng, count = np.random.default_rng(3), FILES * ROWS
    table = pd.DataFrame(
        {
            "who": rng.integers(0, 900, count),
            "what": rng.integers(0, 400, count),
            "amount": rng.integers(1, 99, count),
            "at": pd.to_datetime(rng.integers(0, 1 << 30, count), unit="s").strftime("%Y-%m-%dT%H:%M:%S"),
            "fee": rng.integers(0, 9, count) / 4,
            "tip": rng.integers(-9, 9, count),
            "kind": rng.choice(["card", "cash", "transfer"], count),
            "word": rng.choice(["pays", "owes", "lends"], count),
        }
    )
    for number in range(FILES):
        table[number * ROWS : (number + 1) * ROWS].to_csv(folder / f"pays-{number}.csv", index=False)
    return TypedTables.open(parse_relations([f"user,*,shop={folder}/pays-*.csv:{COLUMNS},word as relation"]), {}, {})


@pytest.mark.parametrize("chunk_bytes", [1 << 12, 4 << 20])
def test_columns_write_and_hold_what_is_counted(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(edge_columns, "CHUNK_BYTES", chunk_bytes)
    tables, cluster = _tables(tmp_path), MeteredCluster(monkeypatch)
    graph = ingest_typed_graph(catalog.create("g"), tables, IngestOptions(merge="keep"), TypedOptions(), cluster)
    assert tables.relations[0].columns is not None
    plan = ColumnsPlan.stated(FILES * ROWS, graph.nnz, FILES, 3, tables.relations[0].columns.arrays.values(), 3)
    counted = {each.phase: each for each in count(plan.phases)}
    measured = {each.where[1]: each for each in cluster.phases}
    assert {name for name in PHASES if name in measured} == PHASES.keys()
    for function, phase in PHASES.items():
        found, stated = measured[function], counted[phase]
        assert len(found.held) == stated.tasks, phase
        assert found.opens == [] or max(found.opens) <= stated.most_opens, phase
        assert max(found.held) <= stated.most_memory, phase
        if function != "write_arrays":
            # Tasks also write records, and runs have headers.
            assert 0 <= found.written - stated.bytes_written <= 4096 * stated.tasks, phase
        elif chunk_bytes < 4 << 20:
            assert len(found.held) > 9, phase
    # Places, and then the values with their places: 16 bytes, and 8 more than the 28 of a row.
    assert temporary_bytes(plan.phases) == graph.nnz * (16 + 8 + 4 + 8 + 2 * 4 + 8)


def test_the_projection_of_a_typed_ingest_has_the_counts_of_its_columns(tmp_path: Path) -> None:
    tables = _tables(tmp_path)
    projected = [
        project_typed_ingest(each, IngestOptions(merge="keep"), tmp_path, 1, 1 << 30)
        for each in (tables, _without_columns(tables))
    ]
    columns = tables.relations[0].columns
    assert columns is not None
    edges, ranges, blocks = (getattr(projected[0], name) for name in ("edges", "ranges", "blocks"))
    phases = ColumnsPlan.stated(edges, projected[0].entries, ranges, blocks, columns.arrays.values()).phases
    more = projected[0].spill_bytes - projected[1].spill_bytes
    # The numbers of rows, eight bytes each, also go through the division and the sort.
    assert temporary_bytes(phases) + 8 * edges <= more <= temporary_bytes(phases) + 4 * 8 * edges
    assert projected[0].peak_memory >= BASE_MEMORY + max(each.most_memory for each in count(phases))


def _without_columns(tables: TypedTables) -> TypedTables:
    return replace(tables, relations=tuple(replace(each, columns=None) for each in tables.relations))


def test_the_projection_of_a_typed_ingest_has_the_data_of_vertices(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, count_of = np.random.default_rng(5), 3000
    people = pd.DataFrame(
        {"id": np.arange(count_of) * 3, "age": rng.random(count_of), "job": rng.integers(0, 3, count_of)}
    )
    people.to_csv(tmp_path / "people.csv", index=False)
    pd.DataFrame({"a": people.id, "b": people.id[::-1]}).to_csv(tmp_path / "knows.csv", index=False)
    relations = parse_relations([f"person,knows,person={tmp_path}/knows.csv:a,b"])
    lists = parse_vertices([f"person={tmp_path}/people.csv:id,age as feature,job as label"])
    tables = TypedTables.open(relations, lists, {})
    projected = project_typed_ingest(tables, IngestOptions(), tmp_path, 1, 1 << 30)
    cluster, dataset = MeteredCluster(monkeypatch), catalog.create("g")
    graph = ingest_typed_graph(dataset, tables, IngestOptions(), TypedOptions(), cluster)
    (stored,) = ingest_type_vertices(dataset, graph, tables.data, cluster, VertexOptions())
    # Estimated edges differ a little.
    assert projected.vertex_bytes == pytest.approx(stored.feature().nbytes + stored.label().nbytes, rel=0.05)
    # The rows of the largest array with their ids; tasks also write records.
    routed = [each.written for each in cluster.phases if each.where[1] == "route_rows"]
    assert 0 < max(routed) <= projected.spill_bytes + 8192


@pytest.mark.parametrize("edges", [10**9, pytest.param(30 * 10**9, marks=pytest.mark.slow)])
def test_columns_of_billions_of_edges_take_little_memory_and_few_files(edges: int) -> None:
    columns: Any = {"weight": "float32", "time": "int64", "label": "int64"}
    made = [Column(name, dtype) for name, dtype in columns.items()] + [Column("feature", "float16", (64,))]
    tasks = edges // (4 << 20)
    phases = count(ColumnsPlan.stated(edges, edges, tasks, tasks // 4, made).phases)
    assert BASE_MEMORY + max(each.most_memory for each in phases) <= 448 << 20
    assert all(each.most_opens <= MOST_OPENS * each.arrays for each in phases)
    row = row_bytes(made)
    assert sum(each.bytes_written for each in phases) <= edges * (4 * 24 + 4 * (row + 8))
    assert total_tasks(phases) <= 8 * (tasks + edges * row // (4 << 20))
