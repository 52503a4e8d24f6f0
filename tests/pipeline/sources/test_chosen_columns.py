"""Columns of one vertex table, chosen by name or number: every cell is read as what it is, or refused with its line."""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.sources.vertex_data import cells, keyed_rows
from gnnloom.pipeline.sources.vertex_data.table_columns import split_location
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError, NotFoundError
from support.covering import examples

CORA = "31336\t0\t1\t1\tNeural\n1061127\t1\t0\t0\tRules\n1106406\t0\t0\t1\tNeural\n"
NODES = (
    'node_id,label,train_mask,val_mask,test_mask,feat\n0,1,True,False,False,"0.1, 0.2"\n'
    '1,0,False,True,False,"0.3, 0.4"\n2,1,False,False,True,"0.5, 0.6"\n'
)
MIXED = "who,age,color,sector,fold,city\n2,30,red,bank,val,NA\n0,,blue,shop,train,Rome\n1,50,red,bank,test,Oslo\n"


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return with_edges(tmp_path, "0 1\n1 2\n2 0\n")


def with_edges(folder: Path, text: str, ids: str = "compact") -> Dataset:
    folder.mkdir(exist_ok=True)
    (folder / "e.txt").write_text(text)
    found = Catalog(folder / "catalog").create("g")
    ingest_graph(found, open_edges(None, [str(folder / "e.txt")]), IngestOptions(ids=ids), InProcessCluster())
    return found


def store(dataset: Dataset, *, by_id: bool = False, **options: Any) -> Vertices:
    source = open_vertices("keyed" if by_id else "files", (), options, dataset.graph())
    return ingest_vertices(dataset, source, InProcessCluster(), dataset.graph(), allow_others=True)


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_columns_of_a_content_file_are_chosen_by_number(tmp_path: Path) -> None:
    dataset = with_edges(tmp_path, "31336 1061127\n1061127 1106406\n")
    file = write(tmp_path, "mini.content", CORA)
    vertices = store(dataset, by_id=True, feature=f"{file}:2-4", label=f"{file}:5")
    assert vertices.feature(0, 3).tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 1]]
    assert vertices.label(0, 3).tolist() == [0, 1, 0]
    assert vertices.artifact.facts["class_names"] == ["Neural", "Rules"]
    again = store(dataset, by_id=True, ids_file=f"{file}:1", feature=f"{file}:3-4,2")
    assert again.feature(0, 3).tolist() == [[1, 1, 0], [0, 0, 1], [0, 1, 0]]


def test_one_table_has_features_labels_and_masks_of_a_split(dataset: Dataset, tmp_path: Path) -> None:
    file = write(tmp_path, "nodes.csv", NODES)
    for by_id in (True, False):
        vertices = store(
            dataset, by_id=by_id, feature=f"{file}:feat", label=f"{file}:label",
            split=f"{file}:train_mask,val_mask,test_mask",
        )  # fmt: skip
        np.testing.assert_array_equal(
            vertices.feature(0, 3), np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], np.float32)
        )
        assert vertices.label(0, 3).tolist() == [1, 0, 1]
        assert vertices.split(0, 3).tolist() == [1, 2, 3]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_words_become_categories_that_can_be_read_back(dataset: Dataset, tmp_path: Path, suffix: str) -> None:
    file = mixed(tmp_path, suffix)
    vertices = store(
        dataset, by_id=True, feature=f"{file}:color,age,city", label=f"{file}:sector", split=f"{file}:fold",
        missing="mean", missing_indicator=True,
    )  # fmt: skip
    assert vertices.artifact.facts["feature_columns"] == [
        {"name": "color", "width": 2, "words": ["blue", "red"]},
        {"name": "age", "width": 1, "filled": [40.0]},
        {"name": "city", "width": 2, "words": ["Oslo", "Rome"], "filled": [0.5, 0.5]},
        {"name": "age", "width": 1, "missing": True},
        {"name": "city", "width": 1, "missing": True},
    ]
    assert vertices.feature(0, 3).tolist() == [
        [1, 0, 40, 0, 1, 1, 0],
        [0, 1, 50, 1, 0, 0, 0],
        [0, 1, 30, 0.5, 0.5, 0, 1],
    ]
    assert vertices.label(0, 3).tolist() == [1, 0, 0]
    assert vertices.split(0, 3).tolist() == [1, 3, 2]


def mixed(folder: Path, suffix: str) -> str:
    if suffix == "csv":
        return write(folder, "mixed.csv", MIXED)
    table = pa.table({
        "who": [2, 0, 1], "age": [30.0, None, 50.0], "color": ["red", "blue", "red"],
        "sector": pa.array(["bank", "shop", "bank"]).dictionary_encode(), "fold": ["val", "train", "test"],
        "city": [None, "Rome", "Oslo"],
    })  # fmt: skip
    pq.write_table(table, folder / "mixed.parquet", row_group_size=2)
    return str(folder / "mixed.parquet")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_missing_feature_is_an_error_that_names_its_place_and_the_options(
    dataset: Dataset, tmp_path: Path, suffix: str
) -> None:
    file = mixed(tmp_path, suffix)
    with pytest.raises(InputError, match=r"--missing.*--missing") as error:
        store(dataset, by_id=True, feature=f"{file}:age")
    assert ("line 3" if suffix == "csv" else "row 1") in str(error.value)
    filled = store(dataset, by_id=True, feature=f"{file}:age", missing="0")
    assert filled.feature(0, 3).tolist() == [[0], [50], [30]]


def test_an_array_with_nan_is_filled(dataset: Dataset, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, np.nan], [3, 4], [np.nan, 8]], np.float32))
    vertices = store(dataset, feature=str(tmp_path / "x.npy"), missing="mean")
    assert vertices.feature(0, 3).tolist() == [[1, 6], [3, 4], [2, 8]]
    one = store(dataset, feature=f"{tmp_path}/x.npy:2", missing="0")
    assert one.feature(0, 3).tolist() == [[0], [4], [8]]


@pytest.mark.parametrize(
    "cells",
    [
        ["[0.5, 1.5]", "[2, 3e0]", "[-4,5]"],
        ["0.5 1.5", "2 3", "-4  5"],
        ["0.5;1.5", "2;3", "-4; 5"],
        ["(0.5, 1.5)", "[2 3]", "-4 5"],
    ],
)
def test_lists_in_a_cell_are_columns(dataset: Dataset, tmp_path: Path, cells: list[str]) -> None:
    text = "id,x\n" + "".join(f'{number},"{cell}"\n' for number, cell in enumerate(cells))
    file = write(tmp_path, "x.csv", text)
    vertices = store(dataset, feature=f"{file}:x")
    assert vertices.feature(0, 3).tolist() == [[0.5, 1.5], [2, 3], [-4, 5]]
    file = write(tmp_path, "y.csv", text.replace('5"\n', '5, 6"\n').replace("5]", "5, 6]"))
    with pytest.raises(InputError, match=r"y\.csv, line \d: column x: expected a list of \d numbers.*(more|fewer)"):
        store(dataset, feature=f"{file}:x")


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.list_(pa.float32(), 2), pa.large_list(pa.int64())])
def test_a_list_column_of_parquet_is_an_embedding(dataset: Dataset, tmp_path: Path, kind: pa.DataType) -> None:
    column = pa.array([[0, 1], [2, 3], [4, 5]], kind)
    pq.write_table(pa.table({"id": ["2", "0", "1"], "x": column}), tmp_path / "x.parquet")
    pq.write_table(pa.table({"x": column}), tmp_path / "alone.parquet")
    assert store(dataset, by_id=True, feature=f"{tmp_path}/x.parquet").feature().tolist() == [[2, 3], [4, 5], [0, 1]]
    assert store(dataset, feature=f"{tmp_path}/alone.parquet").feature().tolist() == [[0, 1], [2, 3], [4, 5]]


def test_lists_of_unequal_length_name_the_row(dataset: Dataset, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[0.5, 1], None, [1.0]]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"x\.parquet, column x, row 2:"):
        store(dataset, feature=f"{tmp_path}/x.parquet", missing="0")


def test_several_labels_come_from_a_list_or_from_columns(dataset: Dataset, tmp_path: Path) -> None:
    pq.write_table(pa.table({"y": [[0, 1], [1, 1], [0, 0]], "a": [1, 0, 1]}), tmp_path / "y.parquet")
    assert store(dataset, label=f"{tmp_path}/y.parquet:y").multilabel().tolist() == [[0, 1], [1, 1], [0, 0]]
    file = write(tmp_path, "y.csv", "id,a,b\n0,True,0\n1,false,1\n2,,1\n")
    assert store(dataset, label=f"{file}:a,b").multilabel().tolist() == [[1, 0], [0, 1], [-1, 1]]


def test_names_of_classes_come_from_parquet_and_numpy_as_from_text(dataset: Dataset, tmp_path: Path) -> None:
    words = ["spam", "ham", "NA"]
    np.save(tmp_path / "y.npy", np.array(words))
    pq.write_table(pa.table({"id": [0, 1, 2], "label": ["spam", "ham", None]}), tmp_path / "y.parquet")
    np.save(tmp_path / "ids.npy", np.arange(3))
    for by_id, options in (
        (False, {"label": f"{tmp_path}/y.npy"}),
        (True, {"label": f"{tmp_path}/y.npy", "ids_file": f"{tmp_path}/ids.npy"}),
        (True, {"label": f"{tmp_path}/y.parquet"}),
        (False, {"label": f"{tmp_path}/y.parquet"}),
    ):
        vertices = store(dataset, by_id=by_id, **options)
        assert vertices.label(0, 3).tolist() == [1, 0, -1], options
        assert vertices.artifact.facts["class_names"] == ["ham", "spam"]


def test_quoted_numbers_and_truth_are_numbers(dataset: Dataset, tmp_path: Path) -> None:
    file = write(tmp_path, "x.csv", '"id","a","b"\n"2","0.5","TRUE"\n"0","1.5","FALSE"\n"1","-2","true"\n')
    assert store(dataset, by_id=True, feature=file).feature(0, 3).tolist() == [[1.5, 0], [-2, 1], [0.5, 1]]


def test_too_many_words_and_unchosen_words_say_what_to_do(dataset: Dataset, tmp_path: Path) -> None:
    file = write(tmp_path, "mixed.csv", MIXED)
    with pytest.raises(InputError, match=r"column color:.*--categories"):
        store(dataset, by_id=True, feature=f"{file}:color", categories=1)
    days = write(tmp_path, "days.csv", "id,day\n0,2024-01-02\n1,2024-01-03\n2,2024-01-02\n")
    with pytest.raises(InputError, match=r"column day:.*they are dates.*such as the year"):
        store(dataset, by_id=True, feature=f"{days}:day", categories=1)
    np.save(tmp_path / "x.npy", np.array([["a"], ["b"], ["a"]]))
    with pytest.raises(InputError, match=r"has words; name the columns"):
        store(dataset, by_id=True, feature=file, missing="0")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_unknown_column_is_answered_with_the_columns(dataset: Dataset, tmp_path: Path, suffix: str) -> None:
    file = mixed(tmp_path, suffix)
    for column in ("ages", "7", "0", "2-9"):
        with pytest.raises(
            InputError, match=rf"no column {column}; the columns are who, age, color, sector, fold, city"
        ):
            store(dataset, by_id=True, feature=f"{file}:{column}")
    with pytest.raises(InputError, match="has the ids of the rows"):
        store(dataset, by_id=True, feature=f"{file}:who,age")
    with pytest.raises(InputError, match="column age is chosen twice"):
        store(dataset, by_id=True, feature=f"{file}:age,2")


def test_a_file_whose_name_has_a_colon_wins(dataset: Dataset, tmp_path: Path) -> None:
    plain, odd = write(tmp_path, "t.csv", "x,y\n1,2\n3,4\n5,6\n"), write(tmp_path, "t.csv:x", "7\n8\n9\n")
    assert store(dataset, feature=odd).feature().tolist() == [[7], [8], [9]]
    assert store(dataset, feature=f"{plain}:y").feature().tolist() == [[2], [4], [6]]
    assert store(dataset, feature=f"{odd}:1").feature().tolist() == [[7], [8], [9]]
    assert split_location("C:\\data\\t.csv") == ("C:\\data\\t.csv", ())
    assert split_location("http://host:80/t.csv") == ("http://host:80/t.csv", ())
    assert split_location('https://host/t.csv:a,"b,c"') == ("https://host/t.csv", ("a", "b,c"))
    with pytest.raises(NotFoundError, match=r"none\.csv: "):
        store(dataset, feature=f"{tmp_path}/none.csv:x")


def test_members_and_masks_of_an_archive_are_chosen(dataset: Dataset, tmp_path: Path) -> None:
    masks = np.array([[1, 0], [0, 0], [0, 1]], bool)
    np.savez(tmp_path / "d.npz", x=np.ones((3, 2)), y=np.array([0, 1, 0]), train_mask=masks, val_mask=masks[::-1])
    file = f"{tmp_path}/d.npz"
    chosen: dict[str, Any] = {"feature": f"{file}:x", "label": f"{file}:y", "split": f"{file}:train_mask,val_mask"}
    vertices = store(dataset, **chosen, split_index=1)
    assert vertices.split().tolist() == [2, 0, 1]
    with pytest.raises(InputError, match=r"--split-index"):
        store(dataset, label=f"{file}:y", split=f"{file}:train_mask,val_mask")


def test_masks_of_several_splits_need_an_index(dataset: Dataset, tmp_path: Path) -> None:
    eye = np.eye(3, dtype=bool)
    for name, masks in {"s": np.stack([eye, eye[:, ::-1]], 2), "one": eye[:, :, None]}.items():
        parts = dict(zip(("train_mask", "val_mask", "test_mask"), masks, strict=True))
        np.savez(tmp_path / f"{name}.npz", **parts)
    with pytest.raises(InputError, match=r"--split-index"):
        store(dataset, split=f"{tmp_path}/s.npz")
    assert store(dataset, split=f"{tmp_path}/s.npz", split_index=0).split().tolist() == [1, 2, 3]
    assert store(dataset, split=f"{tmp_path}/s.npz", split_index=1).split().tolist() == [3, 2, 1]
    for name, index in (("s", 2), ("one", 1)):
        with pytest.raises(InputError, match="--split-index"):
            store(dataset, split=f"{tmp_path}/{name}.npz", split_index=index)


@pytest.mark.parametrize("id_text", ["07", "007", "00"])
def test_ids_with_leading_zeros_are_refused_where_vertices_have_numbers(tmp_path: Path, id_text: str) -> None:
    dataset = with_edges(tmp_path, "7 0\n0 9\n")
    file = write(tmp_path, "x.csv", f"id,x\n0,1\n{id_text},2\n9,3\n")
    with pytest.raises(InputError, match=r"x\.csv, line 3: .*leading zeros"):
        store(dataset, by_id=True, feature=file)
    with pytest.raises(InputError, match=r"x\.csv, line 3: .*leading zeros"):
        store(dataset, by_id=True, feature=f"{file}:x")
    pq.write_table(pa.table({"id": ["0", id_text, "9"], "x": [1, 2, 3]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"x\.parquet.*row 1: .*leading zeros"):
        store(dataset, by_id=True, label=f"{tmp_path}/x.parquet")


def test_ids_as_programs_write_them_find_their_vertices(tmp_path: Path) -> None:
    dataset = with_edges(tmp_path, "7 0\n0 9\n")
    file = write(tmp_path, "x.csv", "id,x\n9.0,3\n0.0,1\n7.,2\n")
    assert store(dataset, by_id=True, feature=file).feature().tolist() == [[1], [2], [3]]
    for word in ("NULL", "nan", "NA"):
        file = write(tmp_path, "y.csv", f"id,x\n9,3\n{word},1\n7,2\n0,0\n")
        with pytest.raises(InputError, match=r"y\.csv, line 3:"):
            store(dataset, by_id=True, feature=file)


def test_headings_decide_or_are_a_question(dataset: Dataset, tmp_path: Path) -> None:
    file = write(tmp_path, "t.csv", "0,bank\n1,shop\n2,bank\n")
    assert store(dataset, by_id=True, label=f"{file}:2").label().tolist() == [0, 1, 0]
    file = write(tmp_path, "u.csv", "a,bank\nb,shop\nc,bank\n")
    named = with_edges(tmp_path / "catalog", "a b\nb c\n")
    assert store(named, by_id=True, label=f"{file}:2").label().tolist() == [0, 1, 0]
    file = write(tmp_path, "v.csv", "firm,sector\na,bank\nb,shop\nc,bank\n")
    with pytest.raises(InputError, match=r"line 1.*'firm', 'sector'.*--header.*--no-header"):
        store(named, by_id=True, label=f"{file}:2")
    assert store(named, by_id=True, label=f"{file}:sector").label().tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("id;x;\n0;3;\n1;4;\n2;5;\n", "", [[3], [4], [5]]),
        ("id,2019,2020\n0,1,3\n1,2,4\n2,3,5\n", ":2020", [[3], [4], [5]]),
        ("id,2019,2020\n0,1,3\n1,2,4\n2,3,5\n", ":3", [[3], [4], [5]]),
        ("id,x\n0,[]\n1,[1 2]\n2,[3 4]\n", ":x", "line 2: column x: expected a list of 2 numbers.*fewer"),
        ("id,x\n0,a, b\n1,b\n2,c\n", ":x", "line 2: found too many columns; expected 2"),
        ("id,x,y\n0,1,2\n1,3\n2,4,5\n", ":x", "line 3: found too few columns; expected 3"),
        ("id,x\n0,1\n1,2x\n2,3\n", ":x", "line 3: column x: expected a number"),
        ("id,x\n0,inf\n1,2\n2,3\n", ":x", "line 2: column x: expected finite float32"),
        ("id,x,x\n0,1,2\n1,2,3\n2,3,4\n", ":x", "two columns are called x; give their numbers"),
        ("id,x\n0,\n1,NA\n2,?\n", ":x", "column x.*missing"),
    ],
)
def test_tables_as_people_have_them(
    dataset: Dataset, tmp_path: Path, text: str, columns: str, expected: list[list[float]] | str
) -> None:
    file = write(tmp_path, "t.csv", text)
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            store(dataset, by_id=True, feature=file + columns)
        return
    assert store(dataset, by_id=True, feature=file + columns).feature().tolist() == expected


def test_a_decimal_comma_is_not_a_list(dataset: Dataset, tmp_path: Path) -> None:
    file = write(tmp_path, "x.csv", 'id;x;n\n0;7,5;"a, b"\n1;-0,5;c\n2;"12,25";c\n')
    with pytest.raises(InputError, match=r"column x:.*'7,5'.*`--decimal ,`"):
        store(dataset, by_id=True, feature=f"{file}:x")
    stored = store(dataset, by_id=True, feature=f"{file}:x", label=f"{file}:n", decimal=",")
    assert stored.feature().tolist() == [[7.5], [-0.5], [12.25]]
    assert stored.label().tolist() == [0, 1, 1]
    plain = write(tmp_path, "y.txt", "7,5 1\n0,5 2\n2,25 3\n")
    assert store(dataset, feature=plain, decimal=",").feature().tolist() == [[7.5, 1], [0.5, 2], [2.25, 3]]


def test_many_ranges_and_blocks_give_the_same_bytes(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, "mixed.csv", MIXED)
    options: dict[str, Any] = {"feature": f"{file}:color,age,city", "missing": "mean", "missing_indicator": True}
    by_row = store(dataset, **options).artifact.digest
    by_id = store(dataset, by_id=True, **options).artifact.digest
    for name in ("_LEAST_BYTES", "_MOST_BYTES"):
        monkeypatch.setattr(keyed_rows, name, 16)
    monkeypatch.setattr(cells, "_BLOCK_BYTES", 32)
    again = with_edges(tmp_path / "catalog", "0 1\n1 2\n2 0\n")
    assert store(again, **options).artifact.digest == by_row
    assert store(again, by_id=True, **options).artifact.digest == by_id


def test_another_column_of_ids_is_named(dataset: Dataset, tmp_path: Path) -> None:
    file = write(tmp_path, "x.csv", "x,id\n7,2\n8,0\n9,1\n")
    for table in (file, f"{file}:x"):
        assert store(dataset, by_id=True, ids_file=f"{file}:id", feature=table).feature().tolist() == [[8], [9], [7]]
    with pytest.raises(InputError, match=r"other\.csv:id:"):
        store(dataset, by_id=True, ids_file="other.csv:id", feature=file)
    with pytest.raises(InputError, match=r"as in t\.csv:id"):
        store(dataset, by_id=True, ids_file=file, feature=file)


def test_the_row_numbers_of_a_frame_are_no_feature(dataset: Dataset, tmp_path: Path) -> None:
    frame = pa.table({"x": [1.0, 2.0, 3.0], "__index_level_0__": [5, 6, 7]})
    pq.write_table(frame, tmp_path / "x.parquet")
    assert store(dataset, feature=f"{tmp_path}/x.parquet").feature().tolist() == [[1], [2], [3]]
    assert store(dataset, feature=f"{tmp_path}/x.parquet", missing="0").feature().tolist() == [[1], [2], [3]]
    pq.write_table(frame.add_column(0, "id", pa.array([2, 0, 1])), tmp_path / "y.parquet")
    assert store(dataset, by_id=True, feature=f"{tmp_path}/y.parquet").feature().tolist() == [[2], [3], [1]]


def test_blocks_are_cut_so_that_many_categories_stay_in_memory(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = mixed(tmp_path, "csv")
    lists = pa.table({"id": [2, 0, 1], "x": pa.array([[0, 1], [2, 3], [4, 5]], pa.list_(pa.int8(), 2))})
    pq.write_table(lists, tmp_path / "x.parquet")
    both: list[dict[str, Any]] = [
        {"feature": f"{file}:color,city,age", "missing": "0"},
        {"feature": f"{tmp_path}/x.parquet:x"},
    ]
    whole = [store(dataset, by_id=True, **options).artifact.digest for options in both]
    monkeypatch.setattr(cells, "_BLOCK_VALUES", 1)
    again = with_edges(tmp_path / "again", "0 1\n1 2\n2 0\n")
    assert [store(again, by_id=True, **options).artifact.digest for options in both] == whole


@settings(max_examples=examples(40), deadline=None)
@given(data=strategies.data())
def test_a_table_that_any_program_writes_reads_back(data: strategies.DataObject) -> None:
    rows = data.draw(strategies.integers(1, 12))
    number = strategies.floats(-1e6, 1e6, width=32) | strategies.integers(-(10**6), 10**6)
    word = strategies.text("abcdeé -_'\"0", min_size=1).map(str.strip).filter(lambda text: text[:1].isalpha())
    frame = pd.DataFrame({
        "x": data.draw(strategies.lists(number, min_size=rows, max_size=rows)),
        "flag": data.draw(strategies.lists(strategies.booleans(), min_size=rows, max_size=rows)),
        "word": data.draw(strategies.lists(word, min_size=rows, max_size=rows)),
        "list": [[k, 0.5] for k in range(rows)],
    })  # fmt: skip
    with TemporaryDirectory() as folder:
        path = Path(folder, "t.csv")
        separator = data.draw(strategies.sampled_from([",", ";", "\t", "|"]))
        quoting = data.draw(strategies.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
        ends = data.draw(strategies.sampled_from(["\n", "\r\n"]))
        has_index = data.draw(strategies.booleans())
        frame.to_csv(path, index=has_index, sep=separator, quoting=quoting, lineterminator=ends)
        source = open_vertices("files", (), {"feature": f"{path}:x,flag,word,list"})
        source = source.with_surveys([source.survey(span) for span in source.surveys()])  # type: ignore[attr-defined]
        found = np.concatenate(list(source.read_rows("feature", 0, rows)))
    words = sorted(set(frame["word"]), key=str.encode)
    expected = np.column_stack([
        frame["x"].astype(np.float32), frame["flag"], [[each == word for word in words] for each in frame["word"]],
        frame["list"].tolist(),
    ])  # fmt: skip
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_more_columns_than_a_name_of_a_file_has_characters_may_be_named(tmp_path: Path) -> None:
    table, columns = tmp_path / "t.csv", tuple(f"column{number}" for number in range(1000))
    table.write_text("1\n")
    assert split_location(f"{table}:{','.join(columns)}") == (str(table), columns)
