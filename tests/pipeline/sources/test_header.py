"""A first line that names the columns is recognized if that is certain; anything else is read as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.storage.errors import InputError


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    "first", ["source,target", "Source, Target", '"from","to"', "FromNodeId,ToNodeId", "src_id,dst_id", "from,to,since"]
)
def test_pairs_of_column_names_are_recognized(tmp_path: Path, first: str) -> None:
    source = TextEdges.open([write(tmp_path / "e.csv", f"# comment\n{first}\nann,bob\nbob,cy\n")], extra_columns=True)
    assert source.recognized_headers == (str(tmp_path / "e.csv"),)
    edges = [
        name for chunk in source.read_names(source.ranges()[0]) for name in (chunk.source.name(0), len(chunk.source))
    ]
    assert edges == [b"ann", 2]
    # A file whose header was recognized is the same source as one whose header was declared.
    declared = TextEdges.open([str(tmp_path / "e.csv")], header=True, extra_columns=True)
    assert source.identity() == declared.identity()


@pytest.mark.parametrize("first", ["ann,bob", "target,source", "to,from", "1,2", "a,b"])
def test_other_first_lines_are_edges(tmp_path: Path, first: str) -> None:
    source = TextEdges.open([write(tmp_path / "e.csv", f"{first}\nbob,cy\n")])
    assert source.recognized_headers == ()
    assert source.identity()["header"] is False
    assert sum(len(chunk.source) for chunk in source.read_names(source.ranges()[0])) == 2


def test_a_weight_that_is_no_number_shows_a_header_and_the_user_has_the_last_word(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tsv", "a\tb\tw\nx\ty\t1.5\n")
    assert TextEdges.open([path], weights=True).recognized_headers == (path,)
    assert TextEdges.open([path], weights=True, header=False).recognized_headers == ()
    numbers = write(tmp_path / "n.tsv", "1\t2\tx\n2\t3\t1.5\n")
    assert TextEdges.open([numbers], weights=True).recognized_headers == ()


@pytest.mark.parametrize("first", ["from to 0.5", "ann bob 2", "source target 1e-3"])
@pytest.mark.parametrize("values", ["weights", "times"])
def test_a_first_line_with_a_weight_is_an_edge_whatever_its_vertices_are_called(
    tmp_path: Path, first: str, values: str
) -> None:
    path = write(tmp_path / "e.txt", f"{first}\ncy dan 1.5\ndan eve 2\n")
    source = TextEdges.open([path], weights=values == "weights", times=values == "times")
    assert source.recognized_headers == ()
    assert source.begins_with_names()
    assert [len(chunk.source) for chunk in source.read_names(source.ranges()[0])] == [3]
    # Among numbers, it would turn all ids into names.
    path = write(tmp_path / "n.txt", f"{first}\n1 2 1.5\n2 3 2\n")
    with pytest.raises(InputError, match=r"n\.txt, line 1: .*`--ids names`"):
        TextEdges.open([path], weights=values == "weights", times=values == "times").begins_with_names()


def test_an_empty_weight_in_the_first_line_is_an_error_and_not_a_header(tmp_path: Path) -> None:
    source = TextEdges.open([write(tmp_path / "e.csv", "ann,bob,\nbob,cy,2\n")], weights=True)
    with pytest.raises(InputError, match=r"e\.csv, line 1: found too few columns"):
        list(source.read_names(source.ranges()[0]))


@pytest.mark.parametrize(
    ("text", "weights"),
    [("ann bob 0.5\n1 2 1\n", True), ("source target\nann bob\n", False), ("1 2\nann bob\n", False)],
)
def test_a_header_is_suggested_only_where_one_can_be(tmp_path: Path, text: str, weights: bool) -> None:
    source = TextEdges.open([write(tmp_path / "e.txt", text)], weights=weights)
    with pytest.raises(InputError, match=r"expected a vertex id.*`--ids names`") as caught:
        list(source.read(source.ranges()[0]))
    assert "--header" not in str(caught.value)


def test_headers_are_recognized_file_by_file(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.csv", "source,target\n1,2\n"), write(tmp_path / "b.csv", "3,4\n")]
    source = TextEdges.open(paths)
    assert [chunk.source.tolist() for span in source.ranges() for chunk in source.read(span)] == [[1], [3]]
    assert source.identity()["header"] == [0]
    with pytest.raises(InputError, match="expected a vertex id"):
        list(TextEdges.open(paths, header=False).read(source.ranges()[0]))


def test_a_carriage_return_within_the_first_line_is_reported_by_the_reader(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_bytes(b"0,1\r2,3\n1,2\n")
    source = TextEdges.open([str(tmp_path / "e.csv")])
    assert source.recognized_headers == ()
    with pytest.raises(InputError, match=r"e\.csv, line 1"):
        list(source.read(source.ranges()[0]))
