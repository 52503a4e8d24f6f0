"""Vertex data is stored row for row or not at all: matched to the graph, checked, resumable, always the same bytes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.format import guess_format, open_edges, open_vertices
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset, Graph
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import ExistsError, FormatError, InputError, NotFoundError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import ArtifactWriter
from support.graphs import random_adjacency, store_graph
from support.scratch import small_chunks

#: Tasks of few rows, which read few ids at a time.
HERE = InProcessCluster(scratch=Scratch(task_pieces=2, step_entries=100))


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 4 KiB, so that small arrays have many chunks and pieces."""
    small_chunks(monkeypatch, 4096)


def make_graph(catalog: Catalog, num_vertices: int, name: str = "small") -> Dataset:
    dataset = catalog.create(name)
    store_graph(dataset, random_adjacency(num_vertices, 5 * num_vertices, 0, symmetric=True), symmetric=True)
    return dataset


def make_compacted(catalog: Catalog, original_id: np.ndarray) -> Dataset:
    """A graph artifact that holds only what the stage reads."""
    dataset = catalog.create("compacted")
    num_vertices = len(original_id)
    facts = {"nnz": 0, "symmetric": True, "weighted": False, "block_rows": [0, num_vertices], "block_nnz": [0]}
    with ArtifactWriter.begin(dataset.path, "graph", {}, {}) as writer:
        with writer.task("all/0") as output:
            output.add(write_array(writer.path, "degree", np.zeros(num_vertices, np.int64), ("vertex",)))
            output.add(write_array(writer.path, "original_id", original_id.astype(np.int64), ("vertex",)))
        writer.commit(["all/0"], {"vertex": num_vertices}, facts)
    return dataset


def numpy_source(folder: Path, num_rows: int, *, streamed: bool = False) -> tuple[NumpyVertices, dict[str, np.ndarray]]:
    rng = np.random.default_rng(num_rows)
    arrays: dict[str, Any] = {
        "feature": rng.normal(size=(num_rows, 5)).astype(np.float32),
        "label": rng.integers(-1, 6, num_rows).astype(np.int32),
        "split": rng.integers(0, 4, num_rows).astype(np.uint8),
    }
    if streamed:
        np.savez_compressed(folder / "all.npz", **arrays)
        return NumpyVertices.open(**cast("Any", dict.fromkeys(arrays, str(folder / "all.npz")))), arrays
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return NumpyVertices.open(**cast("Any", {name: str(folder / f"{name}.npy") for name in arrays})), arrays


@pytest.mark.parametrize("streamed", [False, True])
def test_rows_are_stored_as_they_are(catalog: Catalog, tmp_path: Path, streamed: bool) -> None:
    dataset = make_graph(catalog, 5003)
    source, arrays = numpy_source(tmp_path, 5003, streamed=streamed)
    found = ingest_vertices(dataset, source, HERE)
    assert found.artifact.verify() == 3
    assert np.array_equal(found.feature(), arrays["feature"])
    assert np.array_equal(found.label(), arrays["label"])
    assert np.array_equal(found.split(), arrays["split"])
    assert found.artifact.facts == {
        "num_classes": 6,
        "unlabeled": int((arrays["label"] == -1).sum()),
        **{name: int((arrays["split"] == code).sum()) for name, code in (("train", 1), ("valid", 2), ("test", 3))},
    }
    assert found.artifact.inputs == {"graph": dataset.graph().artifact.key}


def test_bytes_do_not_depend_on_how_the_source_is_read(catalog: Catalog, tmp_path: Path) -> None:
    digests = set()
    for streamed in (False, True):
        dataset = make_graph(catalog, 5003, f"set-{streamed}".lower())
        source, _ = numpy_source(tmp_path, 5003, streamed=streamed)
        digests.add(ingest_vertices(dataset, source, HERE).artifact.digest)
    assert len(digests) == 1


def test_storing_the_same_vertex_data_again_does_nothing(catalog: Catalog, tmp_path: Path) -> None:
    dataset = make_graph(catalog, 50)
    first = ingest_vertices(dataset, numpy_source(tmp_path, 50)[0], HERE)
    before = (first.artifact.path / "manifest.json").stat().st_mtime_ns
    ingest_vertices(dataset, NumpyVertices.open(**cast("Any", files(tmp_path))), HERE)
    assert (first.artifact.path / "manifest.json").stat().st_mtime_ns == before


def files(folder: Path) -> dict[str, str]:
    return {name: str(folder / f"{name}.npy") for name in ("feature", "label", "split")}


def test_existing_vertex_data_is_not_replaced_silently(catalog: Catalog, tmp_path: Path) -> None:
    dataset = make_graph(catalog, 50)
    first = ingest_vertices(dataset, numpy_source(tmp_path, 50)[0], HERE)
    key = first.artifact.key
    with pytest.raises(ExistsError, match=f"from another source: {key} .*--add"):
        ingest_vertices(dataset, StochasticBlockModel(50, 10).vertices(), HERE)
    path = Path(files(tmp_path)["feature"])
    np.save(path, np.load(path) + 1)
    with pytest.raises(ExistsError, match=f"files have changed since; .*catalog rm .*vertices/{key}"):
        ingest_vertices(dataset, NumpyVertices.open(**cast("Any", files(tmp_path))), HERE)


def test_any_of_the_arrays_may_be_missing(catalog: Catalog, tmp_path: Path) -> None:
    numpy_source(tmp_path, 50)
    found = ingest_vertices(make_graph(catalog, 50), NumpyVertices.open(label=files(tmp_path)["label"]), HERE)
    assert (found.has_feature, found.has_label, found.has_split) == (False, True, False)
    assert found.num_features == 0


def test_features_that_do_not_match_the_vertices_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    dataset = make_graph(catalog, 51)
    with pytest.raises(InputError, match="the vertex data has 50 rows, the graph 51 vertices"):
        ingest_vertices(dataset, numpy_source(tmp_path, 50)[0], HERE)
    assert dataset.artifacts("vertices") == []


def test_a_dataset_without_a_graph_is_an_error(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no graph"):
        ingest_vertices(catalog.create("bare"), numpy_source(tmp_path, 50)[0], HERE)


@pytest.mark.parametrize("streamed", [False, True])
def test_compacted_graphs_choose_rows_by_original_id(catalog: Catalog, tmp_path: Path, streamed: bool) -> None:
    original = np.sort(np.random.default_rng(1).choice(9000, 2500, replace=False))
    dataset = make_compacted(catalog, original)
    source, arrays = numpy_source(tmp_path, 9000, streamed=streamed)
    found = ingest_vertices(dataset, source, HERE)
    assert np.array_equal(found.feature(), arrays["feature"][original])
    assert np.array_equal(found.label(), arrays["label"][original])
    assert np.array_equal(found.split(), arrays["split"][original])


def test_too_few_rows_for_the_original_ids_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    dataset = make_compacted(catalog, np.array([0, 5, 70]))
    with pytest.raises(InputError, match=r"70 rows.* ids .* 70;"):
        ingest_vertices(dataset, numpy_source(tmp_path, 70)[0], HERE)


def test_original_ids_that_do_not_ascend_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    dataset = make_compacted(catalog, np.array([0, 20, 10, 30]))
    with pytest.raises(FormatError, match="original_id:"):
        ingest_vertices(dataset, numpy_source(tmp_path, 70)[0], HERE)


def test_bad_rows_publish_nothing(catalog: Catalog, tmp_path: Path) -> None:
    dataset = make_graph(catalog, 3000)
    feature = np.zeros((3000, 4))
    feature[2999, 3] = np.nan
    np.save(tmp_path / "x.npy", feature)
    with pytest.raises(InputError, match=r"x\.npy, row 2,999:"):
        ingest_vertices(dataset, NumpyVertices.open(feature=str(tmp_path / "x.npy")), HERE)
    # This file never makes the artifact, so that nothing is left to finish.
    assert dataset.artifacts("vertices") == []


@dataclass(frozen=True)
class FailingOnce:
    """A source whose tasks fail from one row on, as long as a file exists."""

    inner: VertexSource
    row: int
    flag: Path
    log: Path

    arrays = ("feature", "label", "split")
    random_access = True
    in_graph_order = False

    def identity(self) -> dict[str, Any]:
        return self.inner.identity()

    def num_vertices(self) -> int:
        return self.inner.num_vertices()

    def num_columns(self, array: str) -> int:
        return self.inner.num_columns(array)

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[np.ndarray]:
        with self.log.open("a") as log:
            log.write(f"{array} {start}\n")
        for block in self.inner.read_rows(array, start, stop):
            if self.flag.exists() and stop > self.row:
                raise OSError("stopped on purpose")
            yield block


def test_resume_runs_only_the_missing_tasks_and_gives_the_same_bytes(catalog: Catalog, tmp_path: Path) -> None:
    model = StochasticBlockModel(4001, 10, num_features=9)
    whole = ingest_vertices(make_graph(catalog, 4001, "whole"), model.vertices(), HERE).artifact.digest
    dataset = make_graph(catalog, 4001, "resumed")
    source = FailingOnce(model.vertices(), 2000, tmp_path / "flag", tmp_path / "log")
    source.flag.touch()
    with pytest.raises(OSError, match="on purpose"):
        ingest_vertices(dataset, source, HERE)
    begun = set(source.log.read_text().split("\n")[:-2])
    assert len(begun) > 1
    source.flag.unlink()
    source.log.write_text("")
    assert ingest_vertices(dataset, source, HERE).artifact.digest == whole
    assert not begun & set(source.log.read_text().split("\n")[:-1])


SLOW_INGEST = """
import sys, time
from gnnloom.pipeline.ingest import vertex_rows
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format import arrays

arrays.CHUNK_BYTES = 4096
plain = vertex_rows.write_rows
vertex_rows.write_rows = lambda *arguments: (time.sleep(0.02), plain(*arguments))[1]
model = StochasticBlockModel(4001, 10, num_features=9)
ingest_vertices(Catalog(sys.argv[1])["killed"], model.vertices(), InProcessCluster(scratch=Scratch(task_pieces=2)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [(4,), pytest.param((1, 4), marks=pytest.mark.long)])
def test_killed_at_any_point_the_next_run_gives_the_same_bytes(catalog: Catalog, kills: tuple[int, ...]) -> None:
    model = StochasticBlockModel(4001, 10, num_features=9)
    whole = ingest_vertices(make_graph(catalog, 4001, "whole"), model.vertices(), HERE).artifact.digest
    dataset = make_graph(catalog, 4001, "killed")
    for num_records in kills:
        with subprocess.Popen([sys.executable, "-c", SLOW_INGEST, str(catalog.root)]) as child:
            while child.poll() is None and len(list(dataset.path.glob("vertices/*/.work/records/[!.]*"))) < num_records:
                time.sleep(0.005)
            child.kill()
        assert child.returncode == -signal.SIGKILL
        assert [info.state for info in dataset.artifacts("vertices")] == ["incomplete"]
    assert ingest_vertices(dataset, model.vertices(), HERE).artifact.digest == whole


def test_random_features_and_labels_for_any_graph(catalog: Catalog) -> None:
    dataset = make_graph(catalog, 4001)
    source = open_vertices("random", options={"dim": 8, "classes": 5, "seed": 1}, graph=dataset.graph())
    found = ingest_vertices(dataset, source, HERE)
    assert found.feature().std() == pytest.approx(1, abs=0.02)
    assert np.bincount(found.label(), minlength=5) == pytest.approx(np.full(5, 800), rel=0.15)
    assert np.bincount(found.split(), minlength=4) == pytest.approx([0, 2400, 800, 800], rel=0.15)
    assert found.num_classes == 5


def test_degree_labels_ascend_with_the_degree(catalog: Catalog) -> None:
    dataset = make_graph(catalog, 4001)
    source = open_vertices("degree-labels", options={"dim": 2, "classes": 6}, graph=dataset.graph())
    found = ingest_vertices(dataset, source, HERE)
    degree, label = dataset.graph().degree(), found.label()
    order = np.argsort(degree, kind="stable")
    assert np.all(np.diff(label[order]) >= 0)
    assert len(np.unique(np.stack([degree, label]), axis=1).T) == len(np.unique(degree))
    assert found.num_classes == 6
    assert np.bincount(label).min() > 4001 / 6 / 2


def test_degree_labels_of_equal_degrees_are_one_class(catalog: Catalog) -> None:
    dataset = make_compacted(catalog, np.arange(40))
    source = open_vertices("degree-labels", options={"classes": 4}, graph=dataset.graph())
    assert ingest_vertices(dataset, source, HERE).num_classes == 1


def test_synthetic_rows_follow_the_stored_graph_even_if_compacted(catalog: Catalog) -> None:
    dataset = make_compacted(catalog, np.array([3, 50, 700]))
    found = ingest_vertices(dataset, open_vertices("random", graph=dataset.graph()), HERE)
    assert found.feature().shape == (3, 128)


@pytest.mark.slow
def test_cora_is_stored_as_published(catalog: Catalog, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 1 << 20)
    dataset = make_graph(catalog, 2708, "cora")
    found = ingest_vertices(dataset, open_vertices("ogb", [str(shared_data / "cora")]), HERE)
    reference = np.loadtxt(shared_data / "cora/raw/node-feat.csv.gz", delimiter=",", dtype=np.float32)
    assert np.array_equal(found.feature(), reference)
    facts = {"num_classes": 7, "unlabeled": 0, "train": 140, "valid": 500, "test": 1000}
    assert found.artifact.facts == facts


# Formats of edges and of vertex data


def test_formats_are_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    assert guess_format([str(tmp_path)]) == "ogb"
    assert guess_format(["a.npy", "b.npy"]) == "npy"
    assert guess_format(["a.npz"]) == "npz"
    assert guess_format(["a.txt", "https://host/b.csv.gz"]) == "snap"
    with pytest.raises(InputError, match="several formats"):
        guess_format(["a.txt", "b.npz"])


def test_unknown_formats_and_options_list_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0 1 5\n")
    path = str(tmp_path / "edges.txt")
    with pytest.raises(InputError, match="format 'nope':"):
        open_edges("nope", [path])
    with pytest.raises(InputError, match="has no option header; it has weights"):
        open_edges("npz", [path], {"header": True})
    with pytest.raises(InputError, match="expected one folder, found 2"):
        open_edges("ogb", [path, path])
    with pytest.raises(InputError, match="no source given"):
        open_edges("snap", [])
    source = open_edges(None, [path], {"weights": True, "header": False})
    assert isinstance(source, TextEdges)
    assert source.weights
    with pytest.raises(InputError, match="vertex data 'nope':"):
        open_vertices("nope")
    with pytest.raises(InputError, match="ingest a graph first"):
        open_vertices("random")


def test_seed_zero_is_a_seed(catalog: Catalog) -> None:
    graph: Graph = make_graph(catalog, 20).graph()
    source = open_vertices("random", options={"seed": 0, "dim": 3}, graph=graph)
    assert source.identity() == replace(source, seed=0).identity()  # type: ignore[type-var]
    assert source.num_columns("feature") == 3
