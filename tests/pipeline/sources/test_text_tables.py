"""Tables as people have them are read right, or refused with the line and the remedy; nothing is guessed in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.errors import InputError
from support.covering import few_of

RING = [(number, (number + 1) % 12) for number in range(12)]


def ingest(folder: Path, text: str | bytes, name: str = "e.csv", *, ids: str = "compact", **options: Any) -> Graph:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    source = open_edges(None, [str(folder / name)], options)
    chosen = IngestOptions(self_loops="keep", ids=ids)
    catalog = Catalog(folder / "catalog")
    dataset = catalog.create(f"g{len(list(catalog))}")
    return ingest_graph(dataset, source, chosen, InProcessCluster())


def edges_of(graph: Graph) -> set[tuple[Any, Any]]:
    ids: Any = graph.original_name() if graph.has_names else graph.original_id().tolist()
    rows, columns = graph.to_scipy().tocoo().coords
    return {(ids[column], ids[row]) for row, column in zip(rows, columns, strict=True)}


def weights_of(graph: Graph) -> list[float]:
    return sorted(graph.to_scipy().data.tolist())


@pytest.mark.parametrize(
    ("ids", "written"), few_of(["keep", "compact"], ['"{}"', "{}.0", "{}.", " {} ", '"{}.00"'], together=1)
)
def test_numbers_stay_numbers_however_they_are_written(tmp_path: Path, ids: str, written: str) -> None:
    lines = "".join(f"{written.format(source)},{target}\n" for source, target in RING)
    graph = ingest(tmp_path, f'"src","dst"\n{lines}', ids=ids)
    assert not graph.has_names
    rows, columns = graph.to_scipy().tocoo().coords
    assert set(zip(columns.tolist(), rows.tolist(), strict=True)) == set(RING)


@pytest.mark.parametrize("token", ["-1", "7.9E+17", "x", "1,234", "5.5", "9" * 20])
def test_a_few_words_among_numbers_are_an_error_and_not_names(tmp_path: Path, token: str) -> None:
    lines = "".join(f"{source}\t{target}\n" for source, target in RING)
    with pytest.raises(InputError, match=r"e\.tsv, line 14: .*`--ids names`"):
        ingest(tmp_path, f"src\tdst\n{lines}{token}\t5\n", "e.tsv")
    assert ingest(tmp_path, f"src\tdst\n{lines}{token}\t5\n", "e.tsv", ids="names").num_vertices == 13


@pytest.mark.parametrize(
    ("token", "kind"),
    few_of(
        ["NULL", "nan", "NaN", "NA", "N/A", "None", "<NA>", "\\N", ""],
        [("keep", False), ("compact", False), ("compact", True)],
        together=1,
    ),
)
def test_a_missing_id_is_an_error_with_its_line(tmp_path: Path, token: str, kind: tuple[str, bool]) -> None:
    ids, names = kind
    lines = "".join(f"{'v' * names}{source},{'v' * names}{target}\n" for source, target in RING)
    for line in (f"3,{token}", f"{token},3"):
        with pytest.raises(InputError, match=r"e\.csv, line 14:"):
            ingest(tmp_path, f"src,dst\n{lines}{line.replace('3', 'v' * names + '3')}\n", ids=ids)
    if names and token:
        assert token in ingest(tmp_path, f"src,dst\n{lines}v3,{token}\n", ids="names").original_name()


def test_ids_with_leading_zeros_are_names_or_an_error(tmp_path: Path) -> None:
    text = "007,7\n7,010\n010,00501\n00501,501\n"
    assert edges_of(ingest(tmp_path, text)) == {("007", "7"), ("7", "010"), ("010", "00501"), ("00501", "501")}
    with pytest.raises(InputError, match=r"keep\.csv, line 1: .*leading zeros.*`--ids names`"):
        ingest(tmp_path, text, "keep.csv", ids="keep")
    later = "".join(f"{number},{number + 1}\n" for number in range(10_000))
    with pytest.raises(InputError, match=r"later\.csv, line 10,001: .*leading zeros"):
        ingest(tmp_path, f"{later}5,007\n", "later.csv")


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("tag,user\n#gnn,ann\n#mpi,ben\nzarr,ben\n", {("#gnn", "ann"), ("#mpi", "ben"), ("zarr", "ben")}),
        ("# made by hand\n% twice\nann,bob\n%x,ann\n", {("ann", "bob"), ("%x", "ann")}),
        ("#from,to\nann,bob\nbob,cy\n", {("ann", "bob"), ("bob", "cy")}),
    ],
)  # fmt: skip
def test_names_that_begin_like_comments_are_kept(tmp_path: Path, text: str, edges: set[Any]) -> None:
    options: dict[str, Any] = {} if text.startswith("#") else {"header": True}
    assert edges_of(ingest(tmp_path, text, **options)) == edges


def test_a_line_that_may_be_a_comment_is_asked_about(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"e\.csv, line 3: .*`--comment '#'`.*`--comment none`"):
        ingest(tmp_path, "ann,bob\nbob,cy\n# note,of\n")
    assert len(edges_of(ingest(tmp_path, "ann,bob\nbob,cy\n# note,of\n", comment="#"))) == 2
    assert ("# note", "of") in edges_of(ingest(tmp_path, "ann,bob\nbob,cy\n# note,of\n", "n.csv", comment="none"))
    # The first lines: a hashtag that occurs again, and one among others.
    for first in ("#gnn,ann\nbob,ann\n", "#gnn,x\nann,#mpi\nbob,ann\n"):
        with pytest.raises(InputError, match=r"e\.csv: '#gnn.*`--comment none`.*`--comment '#'`"):
            ingest(tmp_path, first)
        assert "#gnn" in ingest(tmp_path, first, f"{len(first)}.csv", comment="none", header=False).original_name()
    # Among numbers such a line can only be a comment, and other signs are stated.
    assert edges_of(ingest(tmp_path, "1,2\n#3,4\n2,1\n", "number.csv")) == {(1, 2), (2, 1)}
    assert edges_of(ingest(tmp_path, "; by hand\n1 2\n;3 4\n2 1\n", "sign.txt", comment=";")) == {(1, 2), (2, 1)}


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        (",src,dst\n0,7,8\n1,11,0\n2,0,7\n", {(7, 8), (11, 0), (0, 7)}),
        ("Unnamed: 0,a,b\n0,7,8\n1,8,7\n", {(7, 8), (8, 7)}),
        ('"","from","to"\n"1",7,8\n"2",8,7\n', {(7, 8), (8, 7)}),
        ('from to\n"1" 7 8\n"2" 8 7\n', {(7, 8), (8, 7)}),
    ],
)
def test_a_column_of_row_numbers_is_skipped(tmp_path: Path, text: str, edges: set[Any]) -> None:
    name = "e.csv" if "," in text else "e.txt"
    assert edges_of(ingest(tmp_path, text, name)) == edges
    weighted = "\n".join(line + (",w" if number == 0 else ",0.5") for number, line in enumerate(text.split("\n")[:-1]))
    if "," in text:
        assert set(weights_of(ingest(tmp_path, f"{weighted}\n", "w.csv", weights=True))) == {0.5}


@pytest.mark.parametrize("text", [",src,dst,w\n0,7,8,1\n1,8,7,2\n", 'from,to,w\n"1",7,8,1\n"2",8,7,2\n'])
@pytest.mark.parametrize("ids", ["keep", "names"])
def test_a_further_column_beside_row_numbers_is_not_lost_unnoticed(tmp_path: Path, text: str, ids: str) -> None:
    with pytest.raises(InputError, match=r"e\.csv, line 2: found more columns.*`--columns (src,dst|from,to),w`"):
        ingest(tmp_path, text, ids=ids)
    assert ingest(tmp_path, text, ids=ids, extra_columns=True).nnz == 2
    assert weights_of(ingest(tmp_path, text, ids=ids, weights=True)) == [1, 2]


def test_only_numbers_in_front_of_a_short_header_number_the_rows(tmp_path: Path) -> None:
    for rows, found in (("ann,7,8\nbob,8,7\n", "line 1: .*`--columns 2,3`"), ("1,7,8\n1,8,7\n", "line 2: found more")):
        with pytest.raises(InputError, match=found):
            ingest(tmp_path, f"from,to\n{rows}")


@pytest.mark.parametrize("first", ["customer,supplier", "buyer name,seller", "A,B"])
def test_a_first_line_of_which_no_word_occurs_again_is_asked_about(tmp_path: Path, first: str) -> None:
    text = f"{first}\nann,bob\nbob,cy\ncy,ann\n"
    with pytest.raises(InputError, match=r"e\.csv, line 1: .*`--header`.*`--no-header`"):
        ingest(tmp_path, text)
    assert ingest(tmp_path, text, "h.csv", header=True).num_vertices == 3
    assert ingest(tmp_path, text, "n.csv", header=False).num_vertices == 5


def test_two_words_over_columns_of_numbers_are_a_header(tmp_path: Path) -> None:
    assert edges_of(ingest(tmp_path, "customer,supplier\n7,8\n8,9\n")) == {(7, 8), (8, 9)}
    assert edges_of(ingest(tmp_path, "by whom\n7 8\n8 9\n", "e.txt", ids="keep")) == {(7, 8), (8, 9)}
    # Such words may be ids if the others are names, too, or none of two.
    for first in ("NULL,NULL", "customer,3", "-1,-2", "x y,"):
        with pytest.raises(InputError):
            ingest(tmp_path, f"{first}\n7,8\n8,9\n", "x.csv")
    with pytest.raises(InputError, match=r"line 1"):
        ingest(tmp_path, "ann,bob\n7,8\n", "few.csv")


@pytest.mark.parametrize("written", ["u{}", "http://ex.org/{}", "{}@x.org", "ex:{}"])
def test_a_first_line_that_looks_like_the_others_is_an_edge(tmp_path: Path, written: str) -> None:
    pairs = [(written.format(2 * number), written.format(2 * number + 1)) for number in range(9)]
    assert edges_of(ingest(tmp_path, "".join(f"{a}\t{b}\n" for a, b in pairs), "e.tsv")) == set(pairs)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("von;nach;w\n1;2;7,494\n2;1;0,5\n", "e.csv"),
        ("1;2;7,494\n2;1;0,5\n", "e.csv"),
        ("1 2 7,494\n2 1 0,5\n", "e.txt"),
        ("1\t2\t7,494\n2\t1\t0,5\n", "e.txt"),
        ('1,2,"7,494"\n2,1,"0,5"\n', "e.csv"),
        ("a;b;7,494\nb;a;0,5\n", "e.csv"),
        ("x y 7,494\ny x 0,5\n", "e.txt"),
    ],
)
@pytest.mark.parametrize("extra", [False, True])
def test_a_decimal_comma_is_refused_or_read_as_one(tmp_path: Path, text: str, name: str, extra: bool) -> None:
    with pytest.raises(InputError, match=rf"{name}, line \d: .*`--decimal ,`"):
        ingest(tmp_path, text, name, weights=True, extra_columns=extra)
    assert weights_of(ingest(tmp_path, text, name, weights=True, decimal=",")) == pytest.approx([0.5, 7.494])


@pytest.mark.parametrize(
    ("text", "name", "extra"),
    [
        ("src,dst\nann,bob\nann,bob\\,\n", "e.csv", False),
        ("src,dst\nann,bob\nx\\,y,bob\n", "e.csv", True),
        ("src,dst,since\nann,bob,3\nann,x\\,y,4\n", "e.csv", True),
        ("ann\tbob\t3\nx\\\ty\tbob\t4\n", "e.tsv", True),
        ("ann bob 3\nx\\ y bob 4\n", "e.txt", True),
    ],
)
def test_an_escaped_separator_is_refused(tmp_path: Path, text: str, name: str, extra: bool) -> None:
    # Where the first line names the columns, the number of fields tells as well.
    why = r"(a backslash precedes a separator|\d fields, and the first line)"
    with pytest.raises(InputError, match=rf"{name}, line \d: {why}"):
        ingest(tmp_path, text, name, ids="names", extra_columns=extra, header=text.startswith("src"))


def test_a_name_that_ends_with_a_backslash_is_read_where_it_can_be_nothing_else(tmp_path: Path) -> None:
    graph = ingest(tmp_path, "C:\\,C:\\d\\\nC:\\d\\,C:\\d\\e\n", ids="names", header=False)
    assert edges_of(graph) == {("C:\\", "C:\\d\\"), ("C:\\d\\", "C:\\d\\e")}
    graph = ingest(tmp_path, '"C:\\",b,1\nb,"C:\\",2\n', ids="names", header=False, extra_columns=True)
    assert edges_of(graph) == {("C:\\", "b"), ("b", "C:\\")}


@pytest.mark.parametrize("value", ["5x", "5%", "1.5.2", "5-6", '"5"x', '"5'])
def test_what_follows_a_number_in_its_field_is_an_error(tmp_path: Path, value: str) -> None:
    for line in (f"1,2,{value}\n2,1,5\n", f"ann,bob,{value}\nbob,ann,5\n"):
        with pytest.raises(InputError, match=r"e\.csv, line 1"):
            ingest(tmp_path, line, weights=True, extra_columns=True)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1|2|0.5\n2|1|4\n", "e.txt"),
        ("1 | 2 | 0.5\n2 | 1 | 4\n", "e.txt"),
        ("1::2::0.5\n2::1::4\n", "ratings.dat"),
        ("1:2:0.5\n2:1:4\n", "e.txt"),
        ("1\t2\t0.5\n2\t1\t4\n", "e.csv"),
        ('1,2,"0.5"\n"2",1,"4"\n', "e.csv"),
        ("a;b;w\n1;2;0.5\n2;1;4\n", "E.CSV"),
    ],
)
def test_separators_of_logs_are_recognized(tmp_path: Path, text: str, name: str) -> None:
    graph = ingest(tmp_path, text, name, weights=True)
    assert (edges_of(graph), weights_of(graph)) == ({(1, 2), (2, 1)}, [0.5, 4.0])


def test_an_empty_field_between_tabs_moves_no_other_to_its_place(tmp_path: Path) -> None:
    text = "a\tb\tc\n1\t\t2\n2\t\t1\n"
    assert edges_of(ingest(tmp_path, text, "e.tsv", columns="a,c")) == {(1, 2), (2, 1)}
    with pytest.raises(InputError, match=r"e\.tsv, line 2:"):
        ingest(tmp_path, text, "e.tsv", columns="a,b")


def test_columns_with_names_may_be_chosen_by_number(tmp_path: Path) -> None:
    text = "when,a,score,b\n2020,7,0.5,3\n2021,3,4,7\n"
    assert edges_of(ingest(tmp_path, text, columns="2,4")) == {(7, 3), (3, 7)}
    assert weights_of(ingest(tmp_path, text, "w.csv", columns="2,4,3")) == [0.5, 4.0]


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_text_columns_of_binary_files_follow_the_same_rules(tmp_path: Path, kind: str) -> None:
    def read(columns: list[list[str]], name: str, ids: str = "compact") -> Graph:
        path = tmp_path / f"{name}.{kind}"
        if kind == "npy":
            np.save(path, np.array(columns))
        else:
            pq.write_table(pa.table(dict(zip("ab", columns, strict=True))), path)
        return ingest(tmp_path, path.read_bytes(), path.name, ids=ids)

    digits = [[str(source), f"{target}.0"] for source, target in RING]
    columns = [list(column) for column in zip(*digits, strict=True)]
    assert edges_of(read(columns, "digits")) == set(RING)
    assert edges_of(read(columns, "kept", "keep")) == set(RING)
    assert read(columns, "named", "names").has_names
    assert edges_of(read([["007", "7"], ["7", "010"]], "padded")) == {("007", "7"), ("7", "010")}
    for token in ("x", "-1", "NULL", "nan", "7.5"):
        wrong = [columns[0], [*columns[1][:-1], token]]
        for ids in ("keep", "compact"):
            with pytest.raises(InputError, match=rf"{kind}.*(row|edge) 11: .*`--ids names`"):
                read(wrong, "wrong", ids)
    late = [["v1"] * 5000, [*["v2"] * 4999, "NA"]]
    with pytest.raises(InputError, match=r"(row|edge) 4,999: a vertex id is missing"):
        read(late, "late")
    assert "NA" in read(late, "any", "names").original_name()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (";P;Q;R\nP;0.5;2.5;0.0\nQ;3.5;0;1.5\nR;4.0;0.0;6.5\n", "a matrix with a row and a column per vertex"),
        (",0,1\n0,0,1\n1,1,0\n", "a matrix with a row and a column per vertex"),
        ("(0,1)\n(1,2)\n", "line 1: tuples"),
        ("(0, 0) (1, 0)\n(0, 1) (1, 1)\n", "line 1: tuples"),
        ("0 1 {'weight': 1.5}\n0 3 {'weight': 3.5}\n", "line 1: dictionaries"),
        ("a\tlikes\tb\nb\tlikes\tc\nc\tknows\ta\n", "line 1: triples .*`--columns 1,3`"),
        ("head,relation,tail\nc,likes,b\nd,likes,a\n", "line 2: triples .*`--columns 1,3`"),
    ],
)
def test_what_is_not_a_list_of_edges_is_named(tmp_path: Path, text: str, reason: str) -> None:
    either: tuple[dict[str, Any], ...] = ({}, {"extra_columns": True})
    for options in either:
        with pytest.raises(InputError, match=rf"e\.txt.*{reason}"):
            ingest(tmp_path, text, "e.txt", **options)


def test_third_columns_of_words_that_are_not_relations_are_ignored_on_request(tmp_path: Path) -> None:
    text = "ann,bob,friend\nbob,cy,friend\ncy,ann,foe\n"
    assert ingest(tmp_path, text, extra_columns=True).num_vertices == 3
    triples = "a\tlikes\tb\nb\tlikes\tc\n"
    assert edges_of(ingest(tmp_path, triples, "t.tsv", columns="1,3", header=False)) == {("a", "b"), ("b", "c")}


@pytest.mark.parametrize("first", ["2,9,1", "3,1,2"])
def test_numbers_of_columns_do_not_turn_the_first_edge_into_a_header(tmp_path: Path, first: str) -> None:
    text = f"{first}\n5,0,4\n6,0,2\n"
    edges = {tuple(map(int, first.split(",")[::2])), (5, 4), (6, 2)}
    assert edges_of(ingest(tmp_path, text, columns="1,3")) == edges
    named = text.translate(str.maketrans("123456789", "abcdefghi"))
    assert len(edges_of(ingest(tmp_path, named, "n.csv", ids="names", columns="1,3", header=False))) == 3
    # Names are asked about, as without columns, unless the chosen words are a pair such as source and target.
    with pytest.raises(InputError, match=r"`--header`.*`--no-header`"):
        ingest(tmp_path, f"who,when,whom\n{named}", "w.csv", columns="1,3")
    assert len(edges_of(ingest(tmp_path, f"source,when,target\n{named}", "s.csv", columns="1,3"))) == 3
    assert len(edges_of(ingest(tmp_path, f"2,when,3\n{text}", "h.csv", columns="2,3", header=True))) == 3


def test_a_key_of_columns_by_number_says_whether_the_first_line_was_an_edge(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("7,x,8\n8,x,9\n")
    found = open_edges(None, [str(tmp_path / "e.csv")], {"columns": "1,3"}).identity()
    assert found["header"] is False
    assert open_edges(None, [str(tmp_path / "e.csv")], {"columns": "1,3", "header": True}).identity()["header"] is True


@pytest.mark.parametrize("titles", [("user_id", "item_id"), ("userId", "movieId"), ("Customer ID", "Product-id")])
def test_columns_that_are_called_ids_are_a_header_over_names(tmp_path: Path, titles: tuple[str, str]) -> None:
    edges = {("ann", "x"), ("bob", "y"), ("ann", "y")}
    lines = "".join(f"{source},{target}\n" for source, target in edges)
    assert edges_of(ingest(tmp_path, f"{','.join(titles)}\n{lines}")) == edges


def test_names_that_end_as_ids_do_are_edges_or_a_question(tmp_path: Path) -> None:
    lines = "ann_id,bob_id\ncid_id,dan_id\neve_id,fay_id\n"
    with pytest.raises(InputError, match="no id of this line occurs again"):
        ingest(tmp_path, lines)
    lines += "ann_id,cid_id\n"
    assert ("ann_id", "bob_id") in edges_of(ingest(tmp_path, lines))
