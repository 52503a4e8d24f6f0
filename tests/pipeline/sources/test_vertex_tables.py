"""Vertex tables as people have them: every row goes to its vertex, and no heading becomes a class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    (tmp_path / "e.csv").write_text("src,dst\n" + "".join(f"{k},{(k + 1) % 4}\n" for k in range(4)))
    found = Catalog(tmp_path / "catalog").create("g")
    source = open_edges(None, [str(tmp_path / "e.csv")])
    ingest_graph(found, source, IngestOptions(ids="compact"), InProcessCluster())
    return found


def store(dataset: Dataset, text: str, array: str, *, by_id: bool = True, **options: Any) -> Vertices:
    path = dataset.path.parents[1] / (f"{array}.csv" if any(sign in text for sign in ",;|") else f"{array}.txt")
    path.write_text(text)
    kind = "keyed" if by_id else "files"
    source = open_vertices(kind, (), {array: str(path), **options}, dataset.graph())
    return ingest_vertices(dataset, source, InProcessCluster(), dataset.graph(), allow_others=True)


@pytest.mark.parametrize(
    "text",
    [
        ",id,x\n0,2,2.5\n1,0,0.5\n2,3,3.5\n3,1,1.5\n",
        "Unnamed: 0;id;x\n0;2;2.5\n1;0;0.5\n2;3;3.5\n3;1;1.5\n",
        '"node" "x"\n"1" 2 2.5\n"2" 0 0.5\n"3" 3 3.5\n"4" 1 1.5\n',
        ",x\n2,2.5\n0,0.5\n3,3.5\n1,1.5\n",
        "id|x\n2|2.5\n0|0.5\n3|3.5\n1|1.5\n",
    ],
)
def test_a_column_of_row_numbers_moves_no_row_to_another_vertex(dataset: Dataset, text: str) -> None:
    vertices = store(dataset, text, "feature")
    np.testing.assert_array_equal(vertices.feature(0, 4), [[0.5], [1.5], [2.5], [3.5]])


def test_a_column_without_a_name_is_not_a_feature(dataset: Dataset) -> None:
    for text in (",x\n0,0.5\n1,1.5\n2,2.5\n3,3.5\n", "x y\na 1 2\nb 3 4\nc 5 6\nd 7 8\n"):
        with pytest.raises(InputError, match=r"feature\.(csv|txt): the first column has no name.*`--by-id`"):
            store(dataset, text, "feature", by_id=False)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_heading_is_a_question_or_a_header_and_never_a_class(dataset: Dataset, by_id: bool) -> None:
    rows = ["bank", "shop", "bank", "shop"]
    body = "".join(f"{number},{row}\n" if by_id else f"{row}\n" for number, row in enumerate(rows))
    head = "company,sector\n" if by_id else "sector\n"
    with pytest.raises(InputError, match=r"label\.\w+, line 1: .*'sector'.*`--header`.*`--no-header`"):
        store(dataset, head + body, "label", by_id=by_id)
    assert store(dataset, head + body, "label", by_id=by_id, header=True).num_classes == 2
    for known in ("id,group\n", "node_id,sector\n", "x,label\n") if by_id else ("label\n", "Class\n"):
        assert store(dataset, known + body, "label", by_id=by_id).label(0, 4).tolist() == [0, 1, 0, 1]
    assert store(dataset, body, "label", by_id=by_id).num_classes == 2


@pytest.mark.parametrize("word", ["NA", "NULL", "?", "nan", "", "None", "N/A", "\\N"])
def test_missing_labels_are_unlabeled_and_no_class(dataset: Dataset, word: str) -> None:
    vertices = store(dataset, f"id,label\n0,{word}\n1,ham\n2,spam\n3,{word}\n", "label")
    assert vertices.label(0, 4).tolist() == [-1, 0, 1, -1]


def test_a_few_words_among_numbers_are_an_error_and_not_classes(dataset: Dataset) -> None:
    for text in ("0,0\n1,1\n2,cat\n3,1\n", "id,label\n0,0\n1,1\n2,cat\n3,1\n"):
        with pytest.raises(InputError, match=r"label\.csv, line \d: expected a number"):
            store(dataset, text, "label")


def test_ids_that_begin_like_comments_keep_their_rows(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("tag,user\n#gnn,ann\n#mpi,ann\nann,#gnn\n")
    found = Catalog(tmp_path / "catalog").create("g")
    source = open_edges(None, [str(tmp_path / "e.csv")], {"header": True})
    ingest_graph(found, source, IngestOptions(ids="names"), InProcessCluster())
    text = "# by hand\nid,x\n#gnn,0.5\n#mpi,1.5\nann,2.5\n"
    np.testing.assert_array_equal(store(found, text, "feature").feature(0, 3), [[0.5], [1.5], [2.5]])
    assert store(found, "id,label\n#gnn,#a\n#mpi,b\nann,#a\n", "label").label(0, 3).tolist() == [0, 1, 0]
    with pytest.raises(InputError, match=r"feature\.csv, line 3: .*comment"):
        store(found, "id,x\n#gnn,0.5\n# note\n", "feature")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('id,x\n0,"1,234"\n1,"2,500"\n2,"12"\n3,"7"\n', "thousands"),
        ("id;x\n0;1 234\n1;2 500\n2;3 012\n3;4 001\n", "thousands"),
        ("id;x\n0;1.234,50\n1;2.500,00\n2;12,5\n3;7,5\n", "thousands"),
        ("id;x\n0;1'234\n1;2'500\n2;3'012\n3;12\n", "thousands"),
        ("id,x\n0,$1234\n1,$2500\n2,$12\n3,$7\n", "with signs"),
        ("id,x\n0,12%\n1,5%\n2,7%\n3,9 %\n", "with signs"),
        ("id,x\n0,5\n1,6,9\n2,7\n3,8\n", "line 3.*too many columns"),
        ("id,x\n(no),(m)\n0,5\n1,6\n2,7\n3,8\n", "line 2.*expected a number"),
        (" id | x \n----+---\n  0 | 5\n  1 | 6\n  2 | 7\n  3 | 8\n", "line 2.*psql --csv"),
        ("id,x,x\n0,5,1\n1,6,2\n2,7,3\n3,8,3\n", "two columns are called x"),
        ("id,x\n0,5\n1,6\n2,7\n3,8\n# by hand\n", "line 6.*too few columns"),
        ("id,x\n0,5\n1,6\n2,7\n3,8\n(4 rows)\n", "line 6.*too few columns"),
    ],
)
def test_numbers_as_spreadsheets_show_them_and_odd_lines_are_refused(dataset: Dataset, text: str, says: str) -> None:
    path = dataset.path.parents[1] / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        _chosen(dataset, path)


def _chosen(dataset: Dataset, path: Path) -> Vertices:
    source = open_vertices("keyed", (), {"feature": f"{path}:x"}, dataset.graph())
    return ingest_vertices(dataset, source, InProcessCluster(), dataset.graph(), allow_others=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,x\n0,5\n1,6\n2,7\n3,8\n# by hand\n", "line 6.*remove it"),
        ("id | x\n---+---\n 0 | 5\n", "line 2.*psql --csv"),
        ("id,x\n0,5\n0,6\n1,7\n2,7\n", "line 3.*already has a row"),
    ],
)
def test_odd_lines_of_whole_tables_are_refused(dataset: Dataset, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        store(dataset, text, "feature")


@pytest.mark.parametrize(
    "text",
    [
        "sep=;\nid;x\n0;2\n2;4\n1;3\n3;5\n",
        "id,x,\n0,2,\n2,4,\n1,3,\n3,5,\n",
        "id,x\n0,2\n2,4\n1,3\n3,5\nTotal,14\n",
        '"id";"x"\n"0";"2"\n"2";4\n1;"3"\n3;5\n',
    ],
)
def test_tables_of_spreadsheets_are_read_right(dataset: Dataset, text: str) -> None:
    path = dataset.path.parents[1] / "t.csv"
    path.write_text(text)
    for found in (_chosen(dataset, path), store(dataset, text, "feature")):
        assert found.feature().reshape(-1).tolist() == [2, 3, 4, 5]
