"""Every line of a list of vertices is a vertex, but for comments before the first one."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest

import gnnloom
from gnnloom.storage import Graph
from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.workflows.interop.given_vertices import read_vertices, understood_vertices

NAMES = ["#cats", "%x", "Smith, John", "ann", "bob", "é"]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    folder, found = tmp_path_factory.mktemp("given"), {}
    (folder / "names.csv").write_text(
        "source,target\n" + "".join(f'"{name}","{other}"\n' for name in NAMES for other in NAMES[:2]), encoding="utf-8"
    )
    (folder / "numbers.txt").write_text("0 10\n10 20\n20 30\n")
    for kind in ("names.csv", "numbers.txt"):
        name = kind.partition(".")[0]
        found[name] = gnnloom.ingest(name, folder / kind, ids="compact", catalog=folder / "c", workers=0).graph()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann\n#cats\n%x\n", ["ann", "#cats", "%x"]),
        # No line before the first id is dropped if it is the name of a vertex.
        ("#cats\nann\n", ["#cats", "ann"]),
        ("# users\n#cats\n%x\n", ["#cats", "%x"]),
        ("# users\n% of May\n\nann\nann\n", ["ann", "ann"]),
        ('"Smith, John"\r\n  bob  \r\n"#cats"', ["Smith, John", "bob", "#cats"]),
        ("Smith, John\n", ["Smith, John"]),
        ("\ufeffann\né\n", ["ann", "é"]),
    ],
)
@pytest.mark.parametrize("coding", ["plain", "gzip", "utf-16"])
def test_names_that_begin_like_comments_are_vertices(
    graphs: dict[str, Graph], tmp_path: Path, text: str, expected: list[str], coding: str
) -> None:
    content = text.removeprefix("\ufeff").encode("utf-16") if coding == "utf-16" else text.encode()
    file = tmp_path / "of.txt"
    file.write_bytes(gzip.compress(content) if coding == "gzip" else content)
    found = read_vertices(graphs["names"], file)
    assert [graphs["names"].original_name(vertex, vertex + 1)[0] for vertex in found.tolist()] == expected


def test_a_line_after_the_first_name_is_never_dropped(graphs: dict[str, Graph], tmp_path: Path) -> None:
    (tmp_path / "of.txt").write_text("# users\nann\n# bob\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"of.txt, line 3: '# bob' "):
        read_vertices(graphs["names"], tmp_path / "of.txt")


def test_among_numbers_lines_that_begin_like_comments_are_comments(graphs: dict[str, Graph], tmp_path: Path) -> None:
    (tmp_path / "of.txt").write_text("# first\n20\n# 10\n%\n0\n")
    assert read_vertices(graphs["numbers"], tmp_path / "of.txt").tolist() == [2, 0]
    (tmp_path / "none.txt").write_text("# first\n\n")
    with pytest.raises(InputError, match=r"none.txt: no vertices"):
        read_vertices(graphs["numbers"], tmp_path / "none.txt")


@pytest.mark.parametrize("name", ["of.csv:who", "of.csv:2", "of.parquet", "of.parquet:who"])
def test_a_column_of_a_table_lists_vertices(graphs: dict[str, Graph], tmp_path: Path, name: str) -> None:
    names = ["bob", "Smith, John", "bob"]
    pd.DataFrame({"who": names, "age": [3, 1, 2]}).to_parquet(tmp_path / "of.parquet")
    pd.DataFrame({"age": [3, 1, 2], "who": names}).to_csv(tmp_path / "of.csv", index=False)
    found = read_vertices(graphs["names"], tmp_path / name)
    assert [graphs["names"].original_name(vertex, vertex + 1)[0] for vertex in found.tolist()] == names
    assert understood_vertices(graphs["names"], tmp_path / name).rows == tuple((each,) for each in names)


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("of.csv:age", [r"of.csv, line 2", "age", "'3'"]),
        ("of.csv:nobody", ["of.csv", "nobody", "age, who"]),
        ("of.csv:age,who", ["of.csv:age,who", "one column"]),
        ("of.csv", ["of.csv, line 1", "`of.csv:COLUMN`"]),
        ("none.parquet", ["none.parquet"]),
    ],
)
def test_a_column_without_ids_is_refused(
    graphs: dict[str, Graph], tmp_path: Path, name: str, places: list[str]
) -> None:
    pd.DataFrame({"age": [3], "who": ["bob"]}).to_csv(tmp_path / "of.csv", index=False)
    with pytest.raises(GnnloomError) as refused:
        read_vertices(graphs["names"], tmp_path / name)
    assert all(place in str(refused.value) for place in places)


def test_what_was_understood_counts_comments_as_the_reader_does(graphs: dict[str, Graph], tmp_path: Path) -> None:
    (tmp_path / "of.txt").write_text("# users\n#cats\n%x\nSmith, John\n", encoding="utf-8")
    found = understood_vertices(graphs["names"], tmp_path / "of.txt")
    assert found.facts == {"comments": 1, "ids": "names"}
    assert found.sentences[0] == "text, the id of a vertex in each line; 1 comment before the first"
    assert understood_vertices(graphs["numbers"], tmp_path / "of.txt").facts["comments"] == 3
