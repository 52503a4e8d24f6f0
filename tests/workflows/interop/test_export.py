"""Exported files hold what is stored, row by row, with the ids of the source, and other programs can read them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import gnnloom
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset, GnnloomError
from gnnloom.storage.disk.files import write_json
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.interop import export
from gnnloom.workflows.interop.export import metrics_table
from gnnloom.workflows.interop.tables import ExportedColumn, Table, check_file, write_table

CLUSTER = InProcessCluster()
EDGES = [(10, 30, 0.5), (30, 20, 1.5), (20, 10, 2.5), (50, 30, 3.5)]
IDS = [10, 20, 30, 50]
EMBEDDING = np.arange(8, dtype=np.float32).reshape(4, 2) / 3


@pytest.fixture
def dataset(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A weighted graph whose ids have gaps, with everything that can be exported, in pieces of one or two rows."""
    monkeypatch.setattr(export, "_NUMBERS_AT_ONCE", 2)
    edges = tmp_path / "edges.txt"
    edges.write_text("".join(f"{u} {v} {w}\n" for u, v, w in EDGES))
    found = catalog.create("web")
    options = IngestOptions(self_loops="keep", ids="compact")
    graph = ingest_graph(found, open_edges("snap", [str(edges)], {"weights": True}), options, CLUSTER)
    ingest_vertices(found, open_vertices("random", (), {"dim": 3, "classes": 2}, graph), CLUSTER)
    partition_graph(found, graph, PartitionOptions(2, "random"), CLUSTER)
    run = Run(found.run_path("first"))
    run.start({}, 0, {"graph": graph.artifact.key})
    run.predictions_aside().mkdir(parents=True)
    records = [
        write_array(run.predictions_aside(), "label", np.array([1, 0, 1, 1], np.int32), ("vertex",)),
        write_array(run.predictions_aside(), "embedding", EMBEDDING, ("vertex", "feature")),
    ]
    run.publish_predictions(records, {})
    return found


def test_metrics_have_a_row_per_epoch_with_gaps(dataset: Dataset, tmp_path: Path) -> None:
    run = Run.open(dataset, "first")
    with pytest.raises(NotFoundError, match="no epoch has finished"):
        metrics_table(run)
    counts = {"bytes": {"halo forward": 10, "gradient": 2}, "profile": [{"seconds": {"spmm": 0.1}}]}
    run.append_metrics({"epoch": 0, "loss": 2.5, "seconds": 0.5, **counts})
    run.append_metrics({"epoch": 1, "loss": 1.5, "seconds": 0.25, "test_accuracy": 0.75, **counts})
    rows = pq.read_table(exported(dataset, tmp_path / "metrics.parquet", "metrics", "--run", "first")).to_pylist()
    sent = {"bytes_sent": 12.0, "bytes_sent_halo_forward": 10.0, "bytes_sent_gradient": 2.0}
    assert rows == [
        {"epoch": 1, "loss": 2.5, "seconds": 0.5, **sent, "test_accuracy": None},
        {"epoch": 2, "loss": 1.5, "seconds": 0.25, **sent, "test_accuracy": 0.75},
    ]
    lines = exported(dataset, tmp_path / "metrics.csv", "metrics", "--run", "first").read_text().splitlines()
    assert lines == [",".join(rows[0]), "1,2.5,0.5,12,10,2,", "2,1.5,0.25,12,10,2,0.75"]


def exported(dataset: Dataset, file: Path, what: str, *options: str) -> Path:
    arguments = ["--catalog", str(dataset.path.parent), "export", "web", what, "--out", str(file), *options]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert [path.name for path in file.parent.glob(".*")] == []
    return file


def parquet(file: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = pq.read_table(file).to_pydict()
    return found


def test_vertex_data_is_exported_in_vertex_order_with_source_ids(dataset: Dataset, tmp_path: Path) -> None:
    classes = exported(dataset, tmp_path / "c.csv", "predictions", "--run", "first").read_text()
    assert classes == "vertex,class\n10,1\n20,0\n30,1\n50,1\n"
    np.testing.assert_array_equal(
        np.load(exported(dataset, tmp_path / "e.npy", "embeddings", "--run", "first")), EMBEDDING
    )
    table = parquet(exported(dataset, tmp_path / "e.parquet", "embeddings", "--run", "first"))
    assert table["vertex"] == IDS
    np.testing.assert_array_equal(np.array(table["embedding"], np.float32), EMBEDDING)
    with np.load(exported(dataset, tmp_path / "l.npz", "labels"), allow_pickle=False) as file:
        assert file["vertex"].tolist() == IDS
        np.testing.assert_array_equal(file["label"], dataset.vertices().label())
        np.testing.assert_array_equal(file["split"], dataset.vertices().split())
    part = parquet(exported(dataset, tmp_path / "p.parquet", "partition", "--parts", "2"))["part"]
    assert part == dataset.partition(2).part().tolist()


def test_numbers_in_csv_files_are_exact(dataset: Dataset, tmp_path: Path) -> None:
    with exported(dataset, tmp_path / "f.csv", "features").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["vertex", "feature_0", "feature_1", "feature_2"]
    numbers = np.array([[float(row[f"feature_{number}"]) for number in range(3)] for row in rows], np.float32)
    np.testing.assert_array_equal(numbers, dataset.vertices().feature())


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv"])
def test_exported_edges_equal_those_of_the_source(dataset: Dataset, tmp_path: Path, ending: str) -> None:
    file = exported(dataset, tmp_path / f"edges{ending}", "edges")
    again = Catalog(tmp_path / "again").create("web")
    options: dict[str, Any] = {"weights": True} | ({"header": True} if ending == ".csv" else {})
    if ending == ".npz":
        with np.load(file) as arrays:
            rows = sorted(
                zip(arrays["source"].tolist(), arrays["target"].tolist(), arrays["weight"].tolist(), strict=True)
            )
        assert rows == sorted(EDGES)
        return
    source = open_edges("parquet" if ending == ".parquet" else "snap", [str(file)], options)
    graph = ingest_graph(again, source, IngestOptions(self_loops="keep", ids="compact"), CLUSTER)
    np.testing.assert_array_equal(graph.to_scipy().toarray(), dataset.graph().to_scipy().toarray())
    assert graph.original_id().tolist() == IDS


def test_a_npy_file_of_edges_has_pairs_of_source_and_target(dataset: Dataset, tmp_path: Path) -> None:
    pairs = np.load(exported(dataset, tmp_path / "edges.npy", "edges"))
    assert sorted(map(tuple, pairs.tolist())) == sorted((u, v) for u, v, _ in EDGES)


def test_an_error_about_missing_embeddings_names_the_option_that_makes_them(dataset: Dataset, tmp_path: Path) -> None:
    run = Run(dataset.run_path("plain"))
    run.start({}, 0, {"graph": dataset.graph().artifact.key})
    run.predictions_aside().mkdir(parents=True)
    run.publish_predictions([], {})
    with pytest.raises(NotFoundError, match="predict --embeddings"):
        export.run_table(dataset, run, "embeddings")


@pytest.mark.parametrize("what", ["predictions", "embeddings", "edges", "features", "labels", "partition"])
def test_a_frame_has_the_columns_and_values_of_the_csv_file(dataset: Dataset, tmp_path: Path, what: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = gnnloom.export(dataset, what)
    written = gnnloom.export("web", what, out=tmp_path / "x.csv", catalog=dataset.path.parent)
    assert isinstance(frame, pandas.DataFrame)
    pandas.testing.assert_frame_equal(frame, pandas.read_csv(written), check_dtype=False)
    if what in {"edges", "features", "labels"}:
        method = getattr(gnnloom.Catalog(dataset.path.parent)["web"], f"export_{what}")
        pandas.testing.assert_frame_equal(method(), frame)
        assert method(tmp_path / "y.csv").read_bytes() == written.read_bytes()
    with np.load(exported(dataset, tmp_path / "x.npz", what)) as arrays:
        assert {name: frame[name].dtype for name in arrays if name in frame} == {
            name: arrays[name].dtype for name in arrays if name in frame
        }


def test_the_frame_of_a_run_joins_predictions_and_labels(dataset: Dataset) -> None:
    pytest.importorskip("pandas")
    stored = Run.open(dataset, "first")
    for vertices in ({}, {"vertices": dataset.vertices().artifact.key}):
        write_json(stored.path / "inputs.json", {**stored.inputs(), **vertices})
        frame = gnnloom.Run.open("web/first", dataset.path.parent).frame()
        assert frame["vertex"].tolist() == IDS
        assert frame["class"].tolist() == [1, 0, 1, 1]
    assert list(frame) == ["vertex", "class", "label", "split"]
    assert frame["label"].tolist() == dataset.vertices().label().tolist()


def test_what_does_not_exist_is_not_exported(dataset: Dataset) -> None:
    with pytest.raises(InputError, match=r"nodes: .*predictions, scores"):
        gnnloom.export(dataset, "nodes")
    with pytest.raises(InputError, match="parts and method: "):
        gnnloom.export(dataset, "edges", parts=2)
    with pytest.raises(InputError, match=r"key: .*predictions"):
        gnnloom.export(dataset, "predictions", run="first", key="zz")
    with pytest.raises(NotFoundError, match=r"second.* first"):
        gnnloom.export("web/second", "predictions", catalog=dataset.path.parent)


def test_a_folder_is_refused_as_an_output_file(tmp_path: Path) -> None:
    (tmp_path / "x.npy").mkdir()
    with pytest.raises(InputError, match="this is a folder; choose another name"):
        check_file(tmp_path / "x.npy")


def test_names_that_spreadsheets_take_for_formulas_are_marked_on_request_only(tmp_path: Path) -> None:
    names = ["=HYPERLINK(1)", "+1", "-x", "@a", "\tb", "\rc", "a=b", "", "'q", "1"]
    columns = (ExportedColumn("vertex", None), ExportedColumn("score", np.dtype(np.float64)))
    table = Table(columns, len(names), lambda: iter([(names, -np.arange(1.0, 11))]), ("score",))
    for safe in (False, True):
        write_table(table, tmp_path / "x.csv", safe_csv=safe)
        with (tmp_path / "x.csv").open(newline="") as file:
            found = [*csv.reader(file)][1:]
        assert [row[0] for row in found] == ([f"'{name}" for name in names[:6]] + names[6:] if safe else names)
        assert [float(row[1]) for row in found] == [-float(number) for number in range(1, 11)]
    write_table(table, tmp_path / "x.parquet")
    for wrong in (tmp_path / "x.parquet", None):
        with pytest.raises(InputError, match=r"^--safe-csv: .*--out"):
            check_file(wrong, safe_csv=True)


def test_two_simultaneous_exports_to_one_file_leave_a_complete_file(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"

    def pieces(more: int) -> Iterator[tuple[Any, ...]]:
        yield (np.arange(2),)
        if more:
            write_table(table(more - 1), file)
        yield (np.arange(2, 4),)

    def table(more: int) -> Table:
        return Table((ExportedColumn("x", np.dtype(np.int64)),), 4, lambda: pieces(more), ("x",))

    write_table(table(1), file)
    assert np.load(file).tolist() == [0, 1, 2, 3]
    with pytest.raises(ZeroDivisionError):
        write_table(Table(table(0).columns, 4, lambda: iter([(1 // 0,)]), ("x",)), file)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("edges", "--out", "edges.txt"), "ends in .npy, .npz, .parquet, .csv"),
        (("scores", "--run", "first", "--out", "s.npy"), "no score; there are embedding, label"),
        (("labels", "--out", "none/l.npy"), "none does not exist"),
        (("edges", "--key", "zz", "--out", "e.npy"), "has no graph with key zz; there are: "),
    ],
)
def test_a_refused_export_says_why(dataset: Dataset, arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(cli, ["--catalog", str(dataset.path.parent), "export", "web", *arguments])
    assert isinstance(done.exception, GnnloomError)
    assert message in str(done.exception)
