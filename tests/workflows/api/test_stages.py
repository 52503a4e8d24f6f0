"""The functions before training do what the commands do, from files and from arrays in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy.sparse import coo_array, csr_array

import gnnloom
from gnnloom.storage import RowShards
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.shards.grid_shards import GridShards
from gnnloom.workflows.cli.main import cli

EDGES = np.array([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 3]])


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gnnloom.Catalog:
    """The default catalog, named by the environment."""
    monkeypatch.setenv("GNNLOOM_CATALOG", str(tmp_path / "catalog"))
    return gnnloom.Catalog()


def command(*arguments: str) -> dict[str, Any]:
    """Run a command on the default catalog, without worker processes."""
    done = CliRunner().invoke(cli, [*arguments, "--workers", "0", "--json"], catch_exceptions=False)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.slow
def test_functions_and_commands_make_the_same_artifacts(catalog: gnnloom.Catalog, tmp_path: Path) -> None:
    file = tmp_path / "edges.txt"
    file.write_text("".join(f"{u} {v}\n" for u, v in EDGES.T))
    web = gnnloom.ingest("web", file, undirected=True, ids="compact", workers=0)
    assert web.graph().artifact.key == command("ingest", "web", str(file), "--undirected", "--ids", "compact")["key"]
    gnnloom.features(web, "random", dim=3, classes=2, workers=0)
    asked = ("random", "--dim", "3", "--classes", "2")
    assert web.vertices().artifact.key == command("features", "web", *asked)["vertices_key"]
    parted = gnnloom.partition("web", 2, method="block", workers=0)
    assert parted.artifact.key == command("partition", "web", "--parts", "2", "--method", "block")["key"]
    rows, grid = gnnloom.shard(web, 2, workers=0), gnnloom.shard(web, grid=(2, 1), permutation="none", workers=0)
    assert isinstance(rows, RowShards)
    assert isinstance(grid, GridShards)
    assert rows.artifact.key == command("shard", "web", "--parts", "2")["key"]
    assert grid.artifact.key == command("shard", "web", "--grid", "2x1", "--permutation", "none")["key"]
    tiny = gnnloom.generate("tiny", "sbm", vertices=60, edges=200, classes=3, workers=0)
    wanted = ("--vertices", "60", "--edges", "200", "--classes", "3")
    assert tiny.graph().artifact.key == command("generate", "tiny", "sbm", *wanted)["key"]


def test_small_work_starts_no_process(catalog: gnnloom.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("worker processes were started")

    monkeypatch.setattr("gnnloom.pipeline.cluster.open_cluster._start_local", refuse)
    web = gnnloom.ingest("web", EDGES, undirected=True)
    gnnloom.features(web, "random", dim=3, classes=2)
    gnnloom.partition(web, 2, method="block")
    gnnloom.shard(web, 2)
    gnnloom.shard(web, grid=(2, 2))
    assert len(list(web.artifacts())) == 5


def test_edges_in_memory_are_named_by_their_content(catalog: gnnloom.Catalog) -> None:
    expected = np.eye(6)
    expected[EDGES[1], EDGES[0]] = 1
    web = gnnloom.ingest("web", EDGES, workers=0)
    np.testing.assert_array_equal(web.to_scipy().toarray(), expected)
    # Equal edges are the same source, whatever holds them; others are another.
    key = gnnloom.ingest("web", torch.from_numpy(EDGES), workers=0).graph().artifact.key
    assert key == web.graph().artifact.key
    with pytest.raises(gnnloom.GnnloomError, match="has a graph already"):
        gnnloom.ingest("web", EDGES + 1, workers=0)
    weights = np.arange(1, 7, dtype=np.float32)
    matrix = csr_array(coo_array((weights, (EDGES[0], EDGES[1])), shape=(6, 6)))
    weighted = gnnloom.ingest("weighted", matrix, weights=True, self_loops="keep", workers=0)
    np.testing.assert_array_equal(weighted.to_scipy().toarray(), matrix.toarray().T)


def test_data_of_pyg_brings_its_features_labels_and_masks(catalog: gnnloom.Catalog) -> None:
    data = pytest.importorskip("torch_geometric.data").Data(
        x=torch.rand(8, 3), edge_index=torch.from_numpy(EDGES), y=torch.arange(8) % 2
    )
    # Vertices 6 and 7 have no edges.
    data.train_mask, data.val_mask = torch.arange(8) < 4, torch.arange(8) == 5
    data.test_mask = ~(data.train_mask | data.val_mask)
    web = gnnloom.ingest("web", data, workers=0)
    assert web.graph().num_vertices == 8
    assert web.graph().artifact.key == gnnloom.ingest("web", data.clone(), workers=0).graph().artifact.key
    np.testing.assert_array_equal(web.vertices().feature(), data.x.numpy())
    assert web.vertices().label().tolist() == data.y.tolist()
    assert web.vertices().split().tolist() == [1, 1, 1, 1, 3, 2, 3, 3]


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars"])
def test_edges_in_a_data_frame(catalog: gnnloom.Catalog, library: str) -> None:
    columns = {"day": [1, 2, 3], "caller": ["ann", "bob", "cid"], "callee": ["bob", "cid", "ann"]}
    module = pytest.importorskip(library)
    frame = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    calls = gnnloom.ingest("calls", frame, columns=("caller", "callee"), ids="compact", self_loops="keep", workers=0)
    assert calls.to_scipy().toarray().tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    with pytest.raises(InputError, match="column 'called'"):
        gnnloom.ingest("other", frame, columns="caller,called", ids="compact", workers=0)


def test_vertex_data_in_memory_are_stored_in_order(catalog: gnnloom.Catalog, tmp_path: Path) -> None:
    web = gnnloom.ingest("web", EDGES, workers=0)
    feature = np.random.default_rng(0).random((6, 3))
    np.save(tmp_path / "label.npy", np.arange(6) % 2)
    split = {"train": [0, 1, 2], "valid": [3], "test": [5, 4]}
    gnnloom.features(web, feature=torch.from_numpy(feature), label=tmp_path / "label.npy", split=split, workers=0)
    np.testing.assert_array_equal(web.vertices().feature(), feature.astype(np.float32))
    assert web.vertices().label().tolist() == [0, 1, 0, 1, 0, 1]
    assert web.vertices().split().tolist() == [1, 1, 1, 2, 3, 3]
    with pytest.raises(InputError, match="split:"):
        gnnloom.features(web, split={"train": [0]})
    with pytest.raises(InputError, match="feature:"):
        gnnloom.features(web, feature=np.array([None] * 6))


def test_wrong_arguments_are_refused_with_what_is_there(catalog: gnnloom.Catalog, tmp_path: Path) -> None:
    web = gnnloom.ingest("web", EDGES, workers=0)
    with pytest.raises(InputError, match="train: no option epoch; did you mean epochs"):
        # Type checkers report the same, or else the comment.
        gnnloom.train(web, epoch=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="partition: no option metod; did you mean method"):
        gnnloom.partition(web, 2, metod="block")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="generate sbm: no option scale"):
        gnnloom.generate("tiny", "sbm", scale=3)
    with pytest.raises(InputError, match="no model 'smb'"):
        gnnloom.generate("tiny", "smb")
    with pytest.raises(InputError, match="ingest: no option undirectd; did you mean undirected"):
        gnnloom.ingest("other", EDGES, undirectd=True)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="give either parts"):
        gnnloom.shard(web)
    with pytest.raises(NotFoundError, match="make one with `gnnloom partition web --parts 3`"):
        gnnloom.shard(web, 3)
    with pytest.raises(InputError, match="'2X' is not a size"):
        gnnloom.partition(web, 2, memory="2X")
    with pytest.raises(InputError, match="is not in catalog"):
        gnnloom.partition(web, 2, catalog=tmp_path)
    with pytest.raises(NotFoundError, match="no such dataset"):
        gnnloom.train("wbe")
