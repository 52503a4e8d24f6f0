"""Rows of tables that name their vertices, in any order, go to the right vertices of a stored graph."""

from __future__ import annotations

import datetime as dt
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.sources.vertex_data.keyed import open_keyed_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import InputError
from gnnloom.workflows.interop.export import vertices_table

CLUSTER = InProcessCluster()
IDS = {
    "names": ["Doe, Jane", "b", "bé", "user 10", "user 9"],
    "numbers": ["3", "10", "200", "4000000000", "9223372036854775807"],
    "kept": ["0", "1", "2", "3", "4"],
}


def store(catalog: Catalog, folder: Path, kind: str) -> Dataset:
    """Store a ring through the ids, which are in the order of their vertices."""
    ids, dataset = IDS[kind], catalog.create(kind)
    lines = "".join(
        f'"{a}","{b}"\n' if kind == "names" else f"{a},{b}\n" for a, b in zip(ids, ids[1:] + ids[:1], strict=True)
    )
    (folder / "edges.csv").write_text(lines)
    options = IngestOptions(ids="keep" if kind == "kept" else "compact")
    ingest_graph(dataset, open_edges(None, [str(folder / "edges.csv")]), options, CLUSTER)
    return dataset


def rows_of(kind: str, width: int, low: int, high: int) -> tuple[list[str], np.ndarray]:
    """Ids in another order, including two that no vertex has, and values for them."""
    rng = np.random.default_rng(width)
    ids = [*IDS[kind], "nobody", "77"]
    order = rng.permutation(len(ids))
    return [ids[place] for place in order], rng.integers(low, high, (len(ids), width))


def expected(kind: str, ids: list[str], values: np.ndarray) -> np.ndarray:
    return values[[ids.index(name) for name in IDS[kind]]]


def write_csv(path: Path, ids: list[str], values: np.ndarray, header: bool) -> str:
    lines = [",".join([f'"{name}"', *map(str, row)]) for name, row in zip(ids, values.tolist(), strict=True)]
    head = ",".join(["id", *(f"c{number}" for number in range(values.shape[1]))])
    path.write_text("\n".join([head, *lines] if header else lines))
    return str(path)


def write_parquet(path: Path, ids: list[str], values: np.ndarray) -> str:
    columns = {f"c{number}": column for number, column in enumerate(values.T)}
    pq.write_table(pa.table({"id": ids, **columns}), path, row_group_size=2)
    return str(path)


def read(dataset: Dataset, array: str, path: Path) -> None:
    ingest_vertices(dataset, open_vertices("keyed", (), {array: str(path)}, dataset.graph()), CLUSTER)


@pytest.mark.parametrize("kind", IDS)
def test_rows_go_to_the_vertices_that_their_ids_name(catalog: Catalog, tmp_path: Path, kind: str) -> None:
    dataset = store(catalog, tmp_path, kind)
    feature, label, split = rows_of(kind, 3, -9, 9), rows_of(kind, 2, -1, 2), rows_of(kind, 1, 0, 4)
    files = {
        "feature": write_csv(tmp_path / "x.csv", *feature, header=True),
        "label": write_parquet(tmp_path / "y.parquet", *label),
        "split": write_csv(tmp_path / "s.txt", *split, header=False),
    }
    vertices = ingest_vertices(dataset, open_vertices("keyed", (), files, dataset.graph()), CLUSTER)
    np.testing.assert_array_equal(vertices.feature(), expected(kind, *feature))
    np.testing.assert_array_equal(vertices.multilabel(), expected(kind, *label))
    np.testing.assert_array_equal(vertices.split(), expected(kind, *split)[:, 0])


def test_vertices_without_a_row_have_no_label_and_no_split(catalog: Catalog, tmp_path: Path) -> None:
    dataset = store(catalog, tmp_path, "names")
    (tmp_path / "y.csv").write_text("user 9,2\nb,\nbé,0\n")
    (tmp_path / "s.tsv").write_text("b\ttest\n")
    files = {"label": str(tmp_path / "y.csv"), "split": str(tmp_path / "s.tsv")}
    vertices = ingest_vertices(dataset, open_vertices("keyed", (), files, dataset.graph()), CLUSTER)
    assert vertices.label().tolist() == [-1, -1, 0, -1, 2]
    assert vertices.split().tolist() == [0, 3, 0, 0, 0]
    assert vertices.num_classes == 3


@pytest.mark.parametrize(
    ("array", "text", "reason"),
    [
        ("feature", "b,1\nbé,2\n", r"x\.csv: 3 vertices without features; the first is Doe, Jane; add a row"),
        ("label", "b,1\nx,1\nb,2\n", r"x\.csv, line 3: the vertex already has a row"),
        ("label", "x,1\ny,1\n", "none of the ids is a vertex of the graph"),
        ("label", "b,1\nbé,1.5\n", "line 2: expected a class"),
        ("label", "b,1\nbé,-2\n", "line 2: expected a class"),
        ("label", "b,1,0\nbé,1,3\n", "line 2: expected labels of 0 or 1"),
        ("feature", "b,1\nbé,inf\n", "line 2: expected finite float32 features"),
        ("feature", "b,1\nbé,1e39\n", "line 2: expected finite float32 features"),
        ("split", "b,1\nbé,4\n", "line 2: expected a split code"),
        ("split", "b,1,1\n", "expected one column of splits after the ids, found 2"),
        ("label", "b,1\n,1\n", "line 2: expected a vertex name, found an empty one"),
        ("label", "b,1\nbé\n", "line 2: found too few columns"),
        ("label", "b,1\nbé,1,2\n", "line 2: found too many columns"),
        ("label", "b,1\nbé,one\n", "line 2: expected a number"),
        ("feature", "b,1\nbé,\n", "line 2: expected a number, found an empty cell"),
        ("split", "b,train\nbé,hold-out\n", "line 2: expected a number"),
        ("label", "b\n", "expected an id and at least one number per line"),
        ("label", "", "expected an id and at least one number per line"),
    ],
)
def test_invalid_tables_are_named(catalog: Catalog, tmp_path: Path, array: str, text: str, reason: str) -> None:
    dataset = store(catalog, tmp_path, "names")
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=reason):
        read(dataset, array, tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"id": ["b"]}, "expected a column of ids and at least one of numbers"),
        ({"id": ["b"], "y": [dt.date(2026, 1, 2)]}, r"column y: date32\[day\], which is not a number"),
        ({"id": [1.5], "y": [1]}, "column id: expected integers or text, found double"),
        ({"id": ["b", None], "y": [1, 1]}, "column id, row 1: expected a value, found null"),
        ({"id": ["b", "b"], "y": [1, 1]}, "column id, row 1: the vertex already has a row"),
    ],
)
def test_invalid_parquet_tables_are_named(
    catalog: Catalog, tmp_path: Path, columns: dict[str, Any], reason: str
) -> None:
    dataset = store(catalog, tmp_path, "names")
    pq.write_table(pa.table(columns), tmp_path / "y.parquet")
    with pytest.raises(InputError, match=reason):
        read(dataset, "label", tmp_path / "y.parquet")


@pytest.mark.parametrize("kind", IDS)
def test_numpy_rows_with_a_file_of_ids_go_along_with_tables(catalog: Catalog, tmp_path: Path, kind: str) -> None:
    dataset = store(catalog, tmp_path, kind)
    ids, values = rows_of(kind, 3, 0, 9)
    np.save(tmp_path / "x.npy", values.astype(np.float32))
    numbers = [(1 << 62) + 5 if name == "nobody" else int(name) for name in ids if kind != "names"]
    np.save(tmp_path / "ids.npy", np.array(numbers or ids))
    label_ids, labels = rows_of(kind, 1, 0, 4)
    files = {
        "feature": str(tmp_path / "x.npy"),
        "label": write_csv(tmp_path / "y.csv", label_ids, labels, header=True),
        "ids_file": str(tmp_path / "ids.npy"),
    }
    vertices = ingest_vertices(dataset, open_vertices("keyed", (), files, dataset.graph()), CLUSTER)
    np.testing.assert_array_equal(vertices.feature(), expected(kind, ids, values))
    np.testing.assert_array_equal(vertices.label(), expected(kind, label_ids, labels)[:, 0])
    assert vertices.artifact.facts["left_out"] == 2


def test_an_array_without_ids_goes_by_row_next_to_a_table_by_id(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("2 5\n5 7\n7 2\n")
    dataset = catalog.create("gaps")
    edges = open_edges(None, [str(tmp_path / "edges.txt")])
    ingest_graph(dataset, edges, IngestOptions(ids="compact"), CLUSTER)
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.float32).reshape(8, 1))
    np.savez(tmp_path / "split.npz", train=[2], valid=[7], test=[5])
    (tmp_path / "y.csv").write_text("7,1\n2,0\n")
    files = {
        name: str(tmp_path / file) for name, file in (("feature", "x.npy"), ("split", "split.npz"), ("label", "y.csv"))
    }
    vertices = ingest_vertices(dataset, open_vertices("keyed", (), files, dataset.graph()), CLUSTER)
    assert vertices.feature()[:, 0].tolist() == [2, 5, 7]
    assert vertices.label().tolist() == [0, -1, 1]
    assert vertices.split().tolist() == [1, 3, 2]


def test_ids_that_do_not_fit_the_rows_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    graph = store(catalog, tmp_path, "kept").graph()
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    np.save(tmp_path / "ids.npy", np.arange(4))
    np.save(tmp_path / "half.npy", np.arange(5) / 2)
    feature, ids = str(tmp_path / "x.npy"), str(tmp_path / "ids.npy")
    for files, message in (
        ({"feature": feature, "ids_file": ids}, r"x\.npy: 5 rows, .*ids\.npy has 4 ids"),
        ({"feature": feature, "ids_file": str(tmp_path / "half.npy")}, r"half\.npy: expected ids, integers or text"),
        ({"feature": feature}, r"an array has no column of ids; give the ids of its rows with `--ids-file`"),
        ({"label": str(tmp_path / "edges.csv"), "ids_file": ids}, "but no such file was given"),
    ):
        with pytest.raises(InputError, match=message):
            open_vertices("keyed", (), files, graph)


def test_labels_that_begin_with_ids_are_not_taken_for_a_matrix(catalog: Catalog, tmp_path: Path) -> None:
    graph = store(catalog, tmp_path, "kept").graph()
    for text in ("id,label\n0,1\n", "0,1\n1,1\n2,0\n", "ann 1\nbob 0\n"):
        (tmp_path / "y.csv").write_text(text)
        with pytest.raises(InputError, match="`--by-id`"):
            open_vertices("files", (), {"label": str(tmp_path / "y.csv")}, graph)


def test_names_of_classes_are_kept_and_exported(catalog: Catalog, tmp_path: Path) -> None:
    dataset = store(catalog, tmp_path, "names")
    (tmp_path / "y.csv").write_text('id,class\nuser 9,Rule Learning\nb,\nbé,"Case, Based"\nx,Theory\n')
    vertices = ingest_vertices(
        dataset, open_vertices("keyed", (), {"label": str(tmp_path / "y.csv")}, dataset.graph()), CLUSTER
    )
    assert vertices.label().tolist() == [-1, -1, 0, -1, 1]
    assert vertices.artifact.facts["class_names"] == ["Case, Based", "Rule Learning", "Theory"]
    table = vertices_table(dataset, "labels")
    assert [column.name for column in table.columns] == ["vertex", "label", "label_name"]
    assert [name for piece in table.pieces() for name in piece[2]] == ["", "", "Case, Based", "", "Rule Learning"]


def test_names_of_classes_after_blanks_are_the_rest_of_the_line(catalog: Catalog, tmp_path: Path) -> None:
    dataset, file = store(catalog, tmp_path, "kept"), tmp_path / "y.txt"
    for lines in (["0 Machine Learning", "1 Databases"], ["id label", '1  "Databases"', "0\tMachine  Learning "]):
        file.write_text("\n".join(lines) + "\n")
        source = open_vertices("keyed", (), {"label": str(file)}, dataset.graph())
        vertices = ingest_vertices(dataset, source, CLUSTER, allow_others=True)
        assert vertices.artifact.facts["class_names"] == ["Databases", "Machine Learning"]
        assert vertices.label()[:2].tolist() == [1, 0]
    for line in ("0", "0 a very long name of a class that nobody would ever want to read"):
        file.write_text(f"1 Databases\n2 Databases\n{line}\n")
        with pytest.raises(InputError, match=r"y\.txt, line 3:"):
            open_vertices("keyed", (), {"label": str(file)}, dataset.graph())


def test_an_empty_cell_of_a_split_is_no_split(catalog: Catalog, tmp_path: Path) -> None:
    dataset = store(catalog, tmp_path, "kept")
    (tmp_path / "split.csv").write_text("id,split\n0,train\n1,\n2,test\n")
    source = open_vertices("keyed", (), {"split": str(tmp_path / "split.csv")}, dataset.graph())
    assert ingest_vertices(dataset, source, CLUSTER).split()[:3].tolist() == [1, 0, 3]


def test_empty_arrays_are_refused_with_their_file_or_name(catalog: Catalog, tmp_path: Path) -> None:
    dataset = store(catalog, tmp_path, "kept")
    shapes = [(5, 0), (0, 3), (0, 0), (0,), (4, 0)]
    for shape, array, ids in product(shapes, ("feature", "label", "target", "split"), (None, 5, 4, 0)):
        np.save(tmp_path / "x.npy", np.zeros(shape, np.int64))
        files = {array: str(tmp_path / "x.npy")}
        if ids is not None:
            np.save(tmp_path / "ids.npy", np.arange(ids))
            files["ids_file"] = str(tmp_path / "ids.npy")
        how = "files" if ids is None else "keyed"
        with pytest.raises(InputError, match=r"x\.npy|^feature: no column|^the vertex data has \d row"):
            ingest_vertices(dataset, open_vertices(how, (), files, dataset.graph()), CLUSTER)


@pytest.mark.parametrize(
    ("text", "ids_file", "rows"),
    [
        ('"id" "age" "x"\n"1" 4 33 0\n"2" 0 44 1\n', "", {4: [33, 0], 0: [44, 1]}),
        ('"age" "x"\n"4" 33 0\n"0" 44 1\n', "", {4: [33, 0], 0: [44, 1]}),
        ("id age x\n1 4 33 0\n2 0 44 1\n", ":2", {4: [33, 0], 0: [44, 1]}),
        ("id\tage\tx\n4\t33\t0\t9\n0\t44\t1\t9\n", ":1", {4: [33, 0, 9], 0: [44, 1, 9]}),
    ],
)
def test_names_of_rows_as_r_writes_them_are_no_ids_unless_nothing_else_is(
    tmp_path: Path, text: str, ids_file: str, rows: dict[int, list[float]]
) -> None:
    path = tmp_path / "people.txt"
    path.write_text(text)
    if ids_file:
        (found,) = cast("Any", open_keyed_vertices(None, feature=str(path))).understood()
        assert "line 1 names 3 columns" in found.question
        assert all(f"`--ids-file {path}:{number}`" in found.question for number in (1, 2))
    options: dict[str, Any] = {"feature": str(path)} | ({"ids_file": f"{path}{ids_file}"} if ids_file else {})
    source: Any = open_keyed_vertices(None, **options)
    (found,) = source.understood()
    table = source.source_of("feature")
    assert not found.question
    read = {
        int(bytes(block.id_text[block.id_offset[k] : block.id_offset[k + 1]])): block.values[k].tolist()
        for span in table.ranges()
        for block in table.read_table(span)
        for k in range(len(block.at))
    }
    assert read == rows
    if ids_file:
        assert [each["name"] for each in table.feature_columns][:2] == ["age", "x"]
