"""Columns of vertices in files of Neo4j and Neptune hold what the user says, and are named if they hold nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gnnloom
from gnnloom.storage.errors import GnnloomError
from support.covering import examples

#: Typed columns, a list of numbers, a cell without a value, and a second part without a header.
NEO4J = {
    "people.csv": (
        "id:ID(Person),age:int,since:datetime,tags:string[],place:float[],part\n"
        "ann,31,2020-01-01,a;b,0.5;1,train\nbob,,2021-01-01,c,2;3,test"
    ),
    "people_1.csv": "cem,17,2022-01-01,,4;5,",
    "films-header.csv": "filmId:ID(Film),year:int,:LABEL",
    "films-1.csv": "f2,1979,Film\nf1,1995,Series;New\nf3,2001,Film",
    "saw.csv": ":START_ID(Person),:END_ID(Film),stars:int,on:date\nann,f1,4,2020-02-03\nbob,f2,5,2020-02-04\ncem,f3,,",
}
NEPTUNE = {
    "nodes.csv": "~id,~label,name:String,age:Int\nv1,person,marko,29\nv2,person,vadas,27\nv3,software,lop,",
    "edges.csv": "~id,~from,~to,~label,weight:Double\ne1,v1,v2,knows,0.5\ne2,v1,v3,created,0.25\ne3,v2,v1,knows,1",
}


def _write(folder: Path, files: dict[str, str]) -> list[str]:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    return sorted(str(folder / name) for name in files)


def _ingest(folder: Path, files: dict[str, str], columns: str, **options: Any) -> Any:
    how: dict[str, Any] = {"workers": 0, "catalog": folder / "catalog", "merge": "keep", **options}
    return gnnloom.ingest("g", _write(folder / "export", files), columns=columns, **how)


def _rows(dataset: Any, name: str, array: str) -> dict[str, Any]:
    """Values of the vertices of a type by their names."""
    values = getattr(dataset.vertices(of_type=name), array)()
    return dict(zip(dataset.typed_graph().original_name(name), values.tolist(), strict=True))


def test_columns_of_vertices_and_of_edges_have_the_roles_that_are_named(tmp_path: Path) -> None:
    columns = "age as feature else 9.5,place as feature,part as split,year as label,stars as feature else 0"
    dataset = _ingest(tmp_path, NEO4J, columns)
    assert _rows(dataset, "Person", "feature") == {"ann": [31, 0.5, 1], "bob": [9.5, 2, 3], "cem": [17, 4, 5]}
    assert _rows(dataset, "Person", "split") == {"ann": 1, "bob": 3, "cem": 0}
    # The first label of a film is its type, and each type has the data of its own rows.
    assert _rows(dataset, "Film", "label") == {"f2": 1979, "f3": 2001}
    assert _rows(dataset, "Series", "label") == {"f1": 1995}
    assert [each.count for each in dataset.types] == [2, 3, 1]
    stars = {each.name: each.column("feature").tolist() for each in dataset.typed_graph().relations}
    assert sorted(value for rows in stars.values() for (value,) in rows) == [0, 4, 5]


@pytest.mark.parametrize("columns", ["fee as feature,since as time", "fee as weight", "role as label,fee as feature"])
def test_values_of_edges_are_named_by_a_header_in_a_file_of_its_own(tmp_path: Path, columns: str) -> None:
    files = {
        "people.csv": "id:ID(Person)\nann\nbob",
        "films.csv": "id:ID(Film)\nf1\nf2",
        "acted-header.csv": ":START_ID(Person),role,fee:double,since:date,:END_ID(Film),:TYPE",
        "acted-1.csv": "ann,Neo,0.5,2020-01-01,f1,ACTED_IN\nbob,fan,2,2021-01-01,f1,ACTED_IN",
        "acted-2.csv": "ann,fan,1.5,2022-01-01,f2,ACTED_IN",
    }
    acted = _ingest(tmp_path, files, columns).typed_graph().relation("ACTED_IN")
    shown = repr(gnnloom.look(sorted(map(str, (tmp_path / "export").iterdir()))))
    assert "edges from :START_ID(Person) to :END_ID(Film)\n" in shown
    assert "3 columns not read: role, fee:double, since:date" in shown
    found = {name: acted.column(name).reshape(-1).tolist() for name in acted.edge_columns}
    assert acted.edge_columns == {each.split()[-1]: [each.split()[0]] for each in columns.split(",")} or not found
    fee = found.get("feature") or acted.to_scipy().tocoo().data.tolist()
    assert sorted(fee) == [0.5, 1.5, 2]
    if "label" in found:
        assert sorted(acted.classes[each] for each in found["label"]) == ["Neo", "fan", "fan"]


def test_the_column_of_types_may_be_a_label(tmp_path: Path) -> None:
    dataset = _ingest(tmp_path, NEPTUNE, "~label as label,age as feature else mean")
    vertices = dataset.vertices(of_type="nodes")
    assert [each.name for each in dataset.types] == ["nodes"]
    assert [vertices.class_names[each] for each in vertices.label()] == ["person", "person", "software"]
    assert vertices.feature().tolist() == [[29], [27], [28]]
    # The relations of edges are in a column of this name too.
    edges = dataset.typed_graph().relation("edges")
    assert sorted(edges.classes[each] for each in edges.column("label")) == ["created", "knows", "knows"]


def test_each_type_of_a_table_has_its_rows_and_no_row_is_called_left_out(tmp_path: Path) -> None:
    dataset = _ingest(tmp_path, NEPTUNE, "age as feature else -1,weight as weight")
    assert _rows(dataset, "person", "feature") == {"v1": [29], "v2": [27]}
    assert _rows(dataset, "software", "feature") == {"v3": [-1]}
    assert "left_out" not in dataset.vertices(of_type="software").artifact.facts
    # The same command finds what the first one made.
    again = _again(tmp_path, "age as feature else -1,weight as weight")
    assert again.vertices(of_type="person").artifact.key == dataset.vertices(of_type="person").artifact.key


def _again(folder: Path, columns: str) -> Any:
    files = sorted(map(str, (folder / "export").iterdir()))
    return gnnloom.ingest("g", files, columns=columns, workers=0, catalog=folder / "catalog", merge="keep")


def test_tables_of_the_same_type_may_not_give_it_one_array_twice(tmp_path: Path) -> None:
    more = {"more.csv": "~id,~label,height:Int\nv4,person,3"}
    with pytest.raises(GnnloomError, match=r"person.*feature; join the tables"):
        _ingest(tmp_path, NEPTUNE | more, "age as feature else 0,height as feature")


def test_what_has_no_role_is_named_by_look_and_by_ingest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = str(
        gnnloom.look(_write(tmp_path / "export", NEO4J), columns="age as feature else 0,stars as weight else 1")
    )
    assert "4 columns not read: since:datetime, tags:string[], place:float[], part" in shown
    assert "1 column not read: on:date" in shown
    assert "age:int (else 0)" in shown


def test_look_shows_files_whose_edges_have_ends_in_no_table(tmp_path: Path) -> None:
    more = {"owns.csv": ":START_ID(Person),:END_ID(House)\nann,h1"}
    look = gnnloom.look(_write(tmp_path / "export", NEO4J | more))
    assert look.command.endswith("--unknown add")
    assert any("House" in each.question for each in look.files)
    assert {"vertices of type Person"} <= {line[:23] for each in look.files for line in each.sentences}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("age as feature", r"people\.csv, line 3: column age:int: .*missing.*age:int else 0"),
        ("tags as feature", r"people\.csv, line 1, column tags: lists of words"),
        ("age as time", r"column age: no file of edges has it"),
        ("stars as split", r"column stars: no file of vertices has it"),
        ("aeg as feature", r"column aeg: no file has it; did you mean age"),
        ("age as float16 feature else 0", r"people\.csv, line 1, column age: .*store"),
        ("part as label else x", r"people\.csv, line 1, column part"),
        ("age as feature else old", r"people\.csv, column age:int: else 'old'"),
        ("id as feature", r"column id:ID\(Person\): .*people\.csv has its ids in this column"),
        ("place as split else train", r"only features|column place"),
    ],
)
def test_bad_roles_get_one_error(tmp_path: Path, columns: str, message: str) -> None:
    with pytest.raises(GnnloomError, match=message):
        _ingest(tmp_path, NEO4J, columns)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "frame"])
def test_missing_features_of_vertices_become_what_the_column_says(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(7)
    people = pd.DataFrame(
        {
            "id": rng.permutation(60) * 3,
            "age": np.where(rng.random(60) < 0.3, np.nan, rng.integers(0, 90, 60)),
            "height": np.where(rng.random(60) < 0.3, np.nan, rng.random(60)),
            "job": [[None, "cook", "smith"][each] for each in rng.integers(0, 3, 60)],
        }
    )
    edges = pd.DataFrame({"a": people.id[:-1].to_numpy(), "b": people.id[1:].to_numpy()})
    table = tmp_path / f"people.{suffix}"
    held = "age as feature else -2.5", "height as feature else mean", "job as feature else none yet"
    if suffix == "csv":
        people.to_csv(table, index=False)
    elif suffix == "parquet":
        people.to_parquet(table)
    edges.to_csv(tmp_path / "edges.csv", index=False)
    vertices: Any = {"person": (people, ["id", *held]) if suffix == "frame" else f"{table}:id,{','.join(held)}"}
    relations: Any = {("person", "knows", "person"): f"{tmp_path / 'edges.csv'}:a,b"}
    dataset = gnnloom.ingest("g", None, relations=relations, vertices=vertices, workers=0, catalog=tmp_path / "catalog")
    wanted = people.sort_values("id")
    jobs = pd.get_dummies(wanted.job.fillna("none yet")).sort_index(axis=1)
    assert list(jobs.columns) == ["cook", "none yet", "smith"]
    values = np.column_stack([wanted.age.fillna(-2.5), wanted.height.fillna(wanted.height.mean()), jobs])
    np.testing.assert_allclose(dataset.vertices(of_type="person").feature(), values.astype(np.float32), rtol=1e-6)
    columns = dataset.vertices(of_type="person").feature_columns
    assert [each["name"] for each in columns] == ["age", "height", "job"]
    assert columns[0]["filled"] == [-2.5]
    assert columns[2]["filled"] == [0, 1, 0]


#: Times that float64 lacks, a cell of a feature or none, and words.
_TIMES = st.integers(1 << 53, 1 << 62).map(lambda number: 2 * (number // 2) + 1)
_CELLS = st.none() | st.integers(-1000, 1000)


@settings(max_examples=examples(9), deadline=None)
@example([(None, "Cook"), (None, "Cook")], [(0, 0, (1 << 53) + 1, 1)], ",", 1)
@given(
    people=st.lists(st.tuples(_CELLS, st.sampled_from(["Cook", "Smith;Cook", "Smith"])), min_size=2, max_size=12),
    edges=st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 11), _TIMES, st.integers(1, 99)), min_size=1, max_size=20
    ),
    separator=st.sampled_from(",;|\t"),
    split_at=st.integers(1, 11),
)
def test_random_exports_equal_pandas(
    tmp_path_factory: pytest.TempPathFactory, people: Any, edges: Any, separator: str, split_at: int
) -> None:
    folder, separator = tmp_path_factory.mktemp("export"), "|" if separator == ";" else separator
    table = pd.DataFrame(people, columns=["age:int", ":LABEL"]).astype({"age:int": "Int64"})
    table.insert(0, "id:ID(Person)", [f"p{number}" for number in range(len(table))])
    found = pd.DataFrame(edges, columns=[":START_ID(Person)", ":END_ID(Person)", "at:long", "paid:int"])
    for end in found.columns[:2]:
        found[end] = [f"p{number % len(table)}" for number in found[end]]
    # The second part of each table has no header.
    for name, rows_of in (("people", table), ("pays", found)):
        at = min(split_at, len(rows_of))
        rows_of[:at].to_csv(folder / f"{name}.csv", sep=separator, index=False)
        if at < len(rows_of):
            rows_of[at:].to_csv(folder / f"{name}_1.csv", sep=separator, index=False, header=False)
    files = sorted(map(str, folder.iterdir()))
    how: dict[str, Any] = {"workers": 0, "catalog": folder / "catalog", "merge": "keep"}
    columns = "age as feature else -1,at as time,paid as weight"
    dataset = gnnloom.ingest("g", files, columns=columns, **how)
    type_of = dict(zip(table["id:ID(Person)"], table[":LABEL"].str.partition(";")[0], strict=True))
    ages = dict(zip(table["id:ID(Person)"], table["age:int"].fillna(-1), strict=True))
    for each in dataset.types:
        assert _rows(dataset, each.name, "feature") == {
            name: [age] for name, age in ages.items() if type_of[name] == each.name
        }
    rows = []
    for relation in dataset.relations:
        frame = gnnloom.export(dataset, "edges", relation=relation.name)
        assert isinstance(frame, pd.DataFrame)
        assert set(frame.source.map(type_of)) == {relation.source.name}
        assert set(frame.target.map(type_of)) == {relation.target.name}
        rows += list(zip(frame.source, frame.target, frame.time, frame.weight, strict=True))
    assert sorted(rows) == sorted(found.itertuples(index=False, name=None))


def test_cells_that_speak_of_columns_are_shown_in_files_without_a_header(tmp_path: Path) -> None:
    files = {
        "people-header.csv": "id:ID(Person)",
        "people-1.csv": "column 99\nbob\ncy",
        "knows-header.csv": ":START_ID(Person),:END_ID(Person),:TYPE",
        "knows-1.csv": "column 99,bob,KNOWS\nbob,cy,KNOWS",
    }
    (tmp_path / "export").mkdir()
    for name, text in files.items():
        (tmp_path / "export" / name).write_text(text + "\n")
    shown = repr(gnnloom.look(sorted(map(str, (tmp_path / "export").iterdir()))))
    assert "'column 99' in line 1 is not a number" in shown
