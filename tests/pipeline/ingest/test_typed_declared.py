"""Files with the import words of Neo4j or Neptune become graphs with types by themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.errors import GnnloomError
from gnnloom.workflows.cli.main import cli

#: Two id spaces, with one and with several labels; a header of its own, and a second part without a header.
NEO4J = {
    "movies-header.csv": "movieId:ID(Movie),title,year:int,:LABEL",
    "movies-1.csv": 'tt1,"The Matrix",1999,Movie\ntt2,"Heat, again",1995,Movie;Sequel',
    "movies-2.csv": "tt3,Alien,1979,Film",
    "actors.csv": "personId:ID(Person),name\nkeanu,Keanu Reeves\ncarrie,Carrie-Anne Moss\nnobody,Nobody",
    "roles.csv": (
        ":START_ID(Person),role,:END_ID(Movie),:TYPE\nkeanu,Neo,tt1,ACTED_IN\ncarrie,Trinity,tt1,ACTED_IN\n"
        "keanu,,tt3,LIKES"
    ),
    "roles2.csv": "carrie,x,tt2,DIRECTED",
    "knows.csv": ":START_ID(Person),:END_ID(Person)\nkeanu,carrie",
}
WANTED = {
    ("Person", "ACTED_IN", "Movie"): {("keanu", "tt1"), ("carrie", "tt1")},
    ("Person", "DIRECTED", "Movie"): {("carrie", "tt2")},
    ("Person", "LIKES", "Film"): {("keanu", "tt3")},
    ("Person", "knows", "Person"): {("keanu", "carrie")},
}
NEPTUNE = {
    "nodes.csv": "~id,~label,name:String,age:Int\nv1,person,marko,29\nv2,person,vadas,27\nv3,software,lop,",
    "edges.csv": (
        "~id,~from,~to,~label,weight:Double\ne1,v1,v2,knows,0.5\ne2,v1,v3,created,0.4\ne3,v2,v3,created,1\n"
        "e4,v2,v1,knows,1"
    ),
}


def _write(folder: Path, files: dict[str, str]) -> list[str]:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    return sorted(str(folder / name) for name in files)


def _edges(dataset: Any) -> dict[tuple[str, str, str], set[tuple[str, str]]]:
    """The edges of a dataset by the names of their ends."""
    graph = dataset.typed_graph()
    found = {}
    for relation in graph.relations:
        matrix = relation.to_scipy().tocoo()
        source, target = graph.original_name(relation.source.name), graph.original_name(relation.target.name)
        found[relation.edge_type] = {(source[j], target[i]) for i, j in zip(matrix.row, matrix.col, strict=True)}
    return found


@pytest.mark.slow
def test_files_of_neo4j(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _write(tmp_path / "export", NEO4J)
    monkeypatch.chdir(tmp_path)
    dataset = gnnloom.ingest("movies", files, workers=0, catalog="catalog")
    assert _edges(dataset) == WANTED
    assert [each.name for each in dataset.types] == ["Film", "Movie", "Person"]
    assert dataset.typed_graph().original_name("Person") == ["carrie", "keanu", "nobody"]
    # The same graph from the command, with a glob; `look` shows how each file is read.
    done = CliRunner().invoke(cli, ["--catalog", "catalog", "ingest", "again", "export/*.csv", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["digest"] == dataset.typed_graph().artifact.digest
    shown = CliRunner().invoke(cli, ["look", "export/*.csv"]).output
    assert "vertices of type Person" in shown
    assert "gnnloom ingest NAME 'export/*.csv'" in shown
    plan = CliRunner().invoke(cli, ["ingest", "more", "export/*.csv", "--plan", "--json"])
    assert json.loads(plan.stdout)["edges"] in range(4, 8)


def test_files_of_neptune(tmp_path: Path) -> None:
    dataset = gnnloom.ingest("g", _write(tmp_path / "n", NEPTUNE), workers=0, catalog=tmp_path / "catalog")
    assert _edges(dataset) == {
        ("person", "knows", "person"): {("v1", "v2"), ("v2", "v1")},
        ("person", "created", "software"): {("v1", "v3"), ("v2", "v3")},
    }


def test_edges_alone_make_types_of_their_id_spaces(tmp_path: Path) -> None:
    files = _write(tmp_path / "n", {"made.csv": "a:START_ID(User),b:END_ID(Item)\n1,2\n2,2"})
    dataset = gnnloom.ingest("g", files, workers=0, catalog=tmp_path / "catalog")
    assert [each.edge_type for each in dataset.relations] == [("User", "made", "Item")]
    files = _write(tmp_path / "m", {"edges.csv": "~id,~from,~to,~label\ne,a,b,x\nf,b,a,y"})
    dataset = gnnloom.ingest("h", files, workers=0, catalog=tmp_path / "catalog")
    assert [each.edge_type for each in dataset.relations] == [("vertex", "x", "vertex"), ("vertex", "y", "vertex")]


def test_columns_of_declared_tables_are_read_by_name(tmp_path: Path) -> None:
    files = dict(NEO4J)
    files["roles.csv"] = (
        ":START_ID(Person),role,fee:float,since:date,:END_ID(Movie),:TYPE\nkeanu,Neo,0.5,1999-03-31,tt1,ACTED_IN\n"
        "carrie,Trinity,0.25,1999-03-31,tt1,ACTED_IN\nkeanu,Neo,,2000-01-01,tt3,LIKES"
    )
    files["roles2.csv"] = "carrie,x,4,2001-02-03,tt2,DIRECTED"
    dataset = gnnloom.ingest(
        "movies",
        _write(tmp_path / "export", files),
        workers=0,
        catalog=tmp_path / "catalog",
        merge="keep",
        columns="fee as weight else 9,since as time,role as label",
    )
    graph, found = dataset.typed_graph(), {}
    for relation in graph.relations:
        if relation.edge_columns:
            assert relation.edge_columns == {"label": ["role"], "time": ["since"], "weight": ["fee"]}
            labels = [relation.classes[each] for each in relation.column("label")]
            times = relation.column("time").astype(f"M8[{relation.time_unit}]").astype("M8[D]").astype(str)
            found[relation.name] = list(zip(relation.column("weight").tolist(), times, labels, strict=True))
    assert found == {
        "ACTED_IN": [(0.25, "1999-03-31", "Trinity"), (0.5, "1999-03-31", "Neo")],
        "DIRECTED": [(4.0, "2001-02-03", "x")],
        "LIKES": [(9.0, "2000-01-01", "Neo")],
    }
    neptune = _write(tmp_path / "n", NEPTUNE)
    dataset = gnnloom.ingest("g", neptune, workers=0, catalog=tmp_path / "catalog", columns="weight as weight")
    weights = {each.name: sorted(each.to_scipy().data.tolist()) for each in dataset.typed_graph().relations}
    assert weights == {"created": [pytest.approx(0.4), 1.0], "knows": [0.5, 1.0]}
    for columns, message in (("wieght as weight", "did you mean weight"), ("weight as wieght", "did you mean weight")):
        with pytest.raises(GnnloomError, match=message):
            gnnloom.ingest("h", neptune, workers=0, catalog=tmp_path / "catalog", columns=columns)


def test_triples_have_columns(tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_text("a\tlikes\tb\t0.5\nb\tknows\tc\t0.25\na\tlikes\tc\t1\n")
    how: Any = {"format": "triples", "workers": 0, "catalog": tmp_path / "catalog"}
    dataset = gnnloom.ingest("g", tmp_path / "facts.tsv", columns="1,2,3,4 as weight", **how)
    assert {each.name: each.to_scipy().data.tolist() for each in dataset.typed_graph().relations} == {
        "knows": [0.25],
        "likes": [0.5, 1.0],
    }
    columns = "1,2,3,4 as float16 feature"
    dataset = gnnloom.ingest("h", tmp_path / "facts.tsv", columns=columns, merge="keep", **how)
    assert dataset.typed_graph().relation("likes").column("feature").tolist() == [[0.5], [1.0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tr\tb\na\tr\tb\tc\n", r"facts\.txt, line 2: .*more columns.*expected 3.*`columns`"),
        ("\tr\tb\na\tr\tb\n", r"facts\.txt, line 1: .*empty"),
        ("a\tr\tb\na\tr\n", r"facts\.txt, line 2: .*few"),
        ("4\n0 1 0\n1 2 0\n", r"facts\.txt: .*4 rows, found 2"),
        ("²\n0 1 0\n1 2 0\n", r"facts\.txt"),
        ("9" * 5000 + "\n0 1 0\n1 2 0\n", r"facts\.txt"),
        ("1 2²\n2 3\n3 4\n", r"facts\.txt"),
    ],
)
def test_triples_that_are_not_whole_are_refused(catalog: Catalog, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "facts.txt").write_text(text)
    with pytest.raises(GnnloomError, match=message):
        gnnloom.ingest("g", tmp_path / "facts.txt", format="triples", workers=0, catalog=catalog)


@pytest.mark.parametrize("text", ["1 2²\n2 3\n3 4\n", "9" * 5000 + " 1\n2 3\n3 4\n"])
def test_first_lines_that_only_look_like_counts_are_ids(catalog: Catalog, tmp_path: Path, text: str) -> None:
    (tmp_path / "edges").write_text(text)
    with pytest.raises(GnnloomError, match=r"edges, line 1"):
        gnnloom.ingest("g", tmp_path / "edges", workers=0, catalog=catalog)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"knows.csv": ":START_ID(Persn),:END_ID(Person)\nkeanu,carrie"}, r"knows\.csv, line 1.*did you mean Person"),
        ({"knows.csv": ":START_ID(Person),:END_ID\nkeanu,carrie"}, r"knows\.csv, line 1.*:END_ID without a name"),
        ({"knows.csv": ":START_ID(Person),to\nkeanu,carrie"}, r"knows\.csv, line 1: no column has END_ID"),
        ({"knows.csv": ":START_ID(Person),:END_ID(Person)\nkeanu,who"}, r"knows\.csv, line 2: .*'who'"),
        ({"actors.csv": ":ID(Person),x:ID(Person)\nkeanu,1"}, r"actors\.csv, line 1: two columns have ID"),
        ({"other.csv": "a,b,c,d,e,f"}, r"other\.csv: .*6 columns"),
        ({"lost-header.csv": "id:ID(Lost)"}, r"lost-header\.csv: a header without rows"),
        ({"more.csv": "id:ID(Movie),:LABEL\ntt1,Film"}, r"'tt1' has the types Film and Movie"),
        ({"more.csv": "id:ID(Movie),:LABEL\ntt9,"}, r"more\.csv, line 2"),
    ],
)
def test_bad_headers_get_one_error(catalog: Catalog, tmp_path: Path, changed: dict[str, str], message: str) -> None:
    files = _write(tmp_path / "export", NEO4J | changed)
    with pytest.raises(GnnloomError, match=message):
        gnnloom.ingest("g", files, workers=0, catalog=catalog)


def test_ids_that_no_file_of_vertices_has_are_vertices_on_request(tmp_path: Path) -> None:
    files = _write(tmp_path / "export", NEO4J | {"owns.csv": ":START_ID(Person),:END_ID(House)\nkeanu,h1\ncarrie,h1"})
    with pytest.raises(GnnloomError, match=r"owns\.csv, line 1: :END_ID\(House\).*unknown=.add"):
        gnnloom.ingest("g", files, workers=0, catalog=tmp_path / "catalog")
    dataset = gnnloom.ingest("g", files, unknown="add", workers=0, catalog=tmp_path / "catalog")
    owns = {("Person", "owns", "House"): {("keanu", "h1"), ("carrie", "h1")}}
    assert _edges(dataset) == WANTED | owns
    # Movies and films share their ids, so an id that no file lists could be either.
    (tmp_path / "export" / "roles2.csv").write_text("carrie,x,tt9,DIRECTED\n")
    with pytest.raises(GnnloomError, match=r"unknown=\"add\":"):
        gnnloom.ingest("h", files, unknown="add", workers=0, catalog=tmp_path / "catalog")


def test_columns_that_are_left_out_are_named(tmp_path: Path) -> None:
    files = _write(tmp_path / "export", NEO4J)
    shown = str(gnnloom.look(files))
    assert "1 column not read: name" in shown
    assert "1 column not read: role" in shown


def test_options_of_other_graphs_are_refused(tmp_path: Path) -> None:
    files = _write(tmp_path / "export", NEO4J)
    for options, message in (
        ({"store": "float16"}, "store"),
        ({"undirected": True}, "rev_NAME"),
    ):
        with pytest.raises(GnnloomError, match=message):
            gnnloom.ingest("g", files, workers=0, catalog=tmp_path / "catalog", **options)
