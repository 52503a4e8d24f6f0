"""A first line that names the columns is recognized if that is certain; anything else is read as before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gnnloom.pipeline.sources.parquet_edges import ParquetEdges
from gnnloom.pipeline.sources.reading.text_layout import find_ends
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.storage.errors import InputError
from support.covering import few_of


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


@pytest.mark.parametrize(
    ("first", "values"), few_of(["from to 0.5", "ann bob 2", "source target 1e-3"], ["weights", "times"], together=1)
)
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
    with pytest.raises(InputError, match=r"e\.csv, line 1:"):
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


@pytest.mark.parametrize(
    ("header", "source", "target", "names"),
    few_of(
        [
            pytest.param("id,source_id,target_id", 1, 2),
            pytest.param("Id,Label,Source,Target", 2, 3),
            pytest.param("amount,nameOrig,nameDest", 1, 2),
            pytest.param("txn,account_to,account_from", 2, 1),
            pytest.param("when,Source_IP,SourcePort,Destination_IP,DestinationPort", 1, 3),
            pytest.param("ride,start_station_id,start_lat,end_station_id,end_lat,started_at", 1, 3),
            pytest.param("weight,citing,cited", 1, 2),
            pytest.param("n,protein1,protein2", 1, 2),
            pytest.param("dst,src", 1, 0),
            pytest.param(",kind,from,to", 2, 3),
        ],
        [False, True],
        together=2,
    ),
)
def test_columns_that_are_called_ends_are_read_wherever_they_stand(
    tmp_path: Path, header: str, source: int, target: int, names: bool
) -> None:
    width = header.count(",") + 1
    cells = [[f"{'v' * names}{7 * row + column + 1}" for column in range(width)] for row in range(4)]
    path = write(tmp_path / "e.csv", "\n".join([header, *map(",".join, cells)]) + "\n")
    edges = TextEdges.open([path], extra_columns=True, header=True)
    assert edges.begins_with_names() is names
    assert read(edges, names=names) == [(row[source], row[target]) for row in cells]
    frame = pd.DataFrame(cells, columns=header.split(","))
    frame.to_parquet(tmp_path / "e.parquet", index=False)
    stored = ParquetEdges.open([str(tmp_path / "e.parquet")])
    assert read(stored, names=True) == [(row[source], row[target]) for row in cells]
    # The command line says so without the two options, unless nothing else is in the table.
    seen = TextEdges.open([path], header=True if width == 2 else None)
    facts = seen.understood()[0].facts
    assert (facts["source"], facts["target"]) == (header.split(",")[source], header.split(",")[target])
    if width > 2:
        with pytest.raises(InputError, match=r"line 2: .*`--extra-columns`"):
            read(seen, names=names)


def read(edges: TextEdges | ParquetEdges, *, names: bool) -> list[tuple[str, str]]:
    """All edges, as texts."""
    found = list[tuple[str, str]]()
    for span in edges.ranges():
        for named in edges.read_names(span) if names else ():
            source, target = named.source, named.target
            found += [(source.name(row).decode(), target.name(row).decode()) for row in range(len(source))]
        for chunk in () if names else edges.read(span):
            found += [(str(first), str(second)) for first, second in zip(chunk.source, chunk.target, strict=True)]
    return found


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("x_index,x_id,y_index,y_id", "`--columns x_index,y_index` or `--columns x_id,y_id`"),
        ("kind,from_key,from_code,to_key,to_code", "`--columns from_key,to_key` or `--columns from_code,to_code`"),
    ],
)
def test_several_pairs_of_ends_are_a_question(tmp_path: Path, header: str, reason: str) -> None:
    row = ",".join(map(str, range(1, header.count(",") + 2)))
    path = write(tmp_path / "e.csv", f"{header}\n{row}\n")
    with pytest.raises(InputError, match=re.escape(reason)):
        TextEdges.open([path]).begins_with_names()
    pd.read_csv(path).to_parquet(tmp_path / "e.parquet", index=False)
    with pytest.raises(InputError, match=re.escape(reason)):
        ParquetEdges.open([str(tmp_path / "e.parquet")])


@pytest.mark.parametrize(
    "header", ["id,valid_from,valid_to", "id,start_date,end_date", "id,f_1,f_2,f_3", "id,x,y", "id,start,end", "a,b,c"]
)
def test_pairs_of_other_columns_are_no_ends(header: str) -> None:
    assert find_ends(header.split(",")) == []


@pytest.mark.parametrize("values", ["weights", "times"])
def test_the_value_of_columns_that_are_called_ends_is_the_only_other_one(tmp_path: Path, values: str) -> None:
    options: dict[str, Any] = {values: True}
    path = write(tmp_path / "e.csv", "v,src,dst\n5,1,2\n6,2,3\n")
    edges = TextEdges.open([path], **options)
    assert edges.understood()[0].facts["value"] == "v"
    assert [list(chunk.source) for chunk in edges.read(edges.ranges()[0])] == [[1, 2]]
    several = write(tmp_path / "s.csv", "v,src,dst,w\n5,1,2,7\n6,2,3,8\n")
    with pytest.raises(InputError, match=r"`--columns src,dst,VALUE`"):
        TextEdges.open([several], **options).begins_with_names()


@pytest.mark.parametrize(
    ("comment", "ends"),
    [
        ("#Interaction\tGene A\tGene B", (1, 2)),
        ("# txn\tsource\ttarget", (1, 2)),
        ("# a sentence about a source and a target", (0, 1)),
        ("# Nodes: 5\tEdges: 6\t7", (0, 1)),
    ],
)
def test_ends_that_a_comment_names_are_read(tmp_path: Path, comment: str, ends: tuple[int, int]) -> None:
    path = write(tmp_path / "e.tsv", f"{comment}\n103\t6416\t2318\n117\t84665\t88\n")
    edges = TextEdges.open([path], extra_columns=True)
    rows = [("103", "6416", "2318"), ("117", "84665", "88")]
    assert read(edges, names=False) == [(row[ends[0]], row[ends[1]]) for row in rows]


def test_several_pairs_of_ends_in_a_comment_are_asked_for_by_number(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tsv", "# n\tfrom_id\tto_id\tsrc_idx\tdst_idx\n1\t2\t3\t4\t5\n")
    with pytest.raises(InputError, match=r"`--columns 2,3` \(from_id and to_id\) or `--columns 4,5`"):
        TextEdges.open([path]).begins_with_names()
