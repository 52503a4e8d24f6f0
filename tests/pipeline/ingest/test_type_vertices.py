"""Vertex data of types are stored in pieces, and continued after any task, as in graphs without types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph
from gnnloom.pipeline.ingest.typed.table import parse_relations, parse_vertices
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.typed.type_vertices import ingest_type_vertices
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import Scratch
from support.scratch import small_chunks
from support.stopping import run_in_steps


@pytest.mark.slow
@pytest.mark.parametrize("names", [False, True])
def test_bytes_do_not_depend_on_where_the_stage_was_stopped(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: bool
) -> None:
    small_chunks(monkeypatch, 64)
    rng = np.random.default_rng(0)
    ids = [f"u{each}é" for each in range(300)] if names else list(range(0, 900, 3))
    rows = rng.permutation(300)
    users = pd.DataFrame({"id": [ids[row] for row in rows], "x": rng.random(300), "y": rng.integers(0, 5, 300)})
    users.to_parquet(tmp_path / "users.parquet")
    pd.DataFrame({"u": ids[:50], "i": range(50)}).to_csv(tmp_path / "buys.csv", index=False)
    listed = [f"user={tmp_path}/users.parquet:id,x as feature,y as label"]
    tables = TypedTables.open(
        parse_relations([f"user,buys,item={tmp_path}/buys.csv:u,i"]), parse_vertices(listed), {}, any_name=False
    )
    options = VertexOptions(store="float16")

    def ingest(name: str, cluster: InProcessCluster) -> str:
        dataset = catalog.create(name)
        graph = ingest_typed_graph(dataset, tables, IngestOptions(), TypedOptions(), cluster)
        (stored,) = ingest_type_vertices(dataset, graph, tables.data, cluster, options)
        order = np.argsort(users["id"].to_numpy() if not names else np.array([each.encode() for each in users["id"]]))
        np.testing.assert_array_equal(stored.feature()[:, 0], users["x"].to_numpy(np.float32)[order].astype(np.float16))
        np.testing.assert_array_equal(stored.label(), users["y"].to_numpy()[order])
        return stored.artifact.digest

    scratch = Scratch(task_pieces=1, routed_bytes=1000)
    whole = ingest("whole", InProcessCluster(scratch=scratch))
    digest, ran = run_in_steps(lambda cluster: ingest("stopped", cluster), 7, scratch=scratch)
    assert digest == whole
    assert len([name for name, _ in ran if name == "write_vertex_rows"]) >= 8
