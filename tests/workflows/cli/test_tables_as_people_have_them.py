"""Files in the forms of public bug reports and data sets: each is read right, or refused with the remedy."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gnnloom.storage import Catalog
from gnnloom.storage.errors import GnnloomError
from gnnloom.workflows.cli.main import cli
from support.journey import travel

CASES = Path(__file__).parents[3].parent / "shared/cases"


def ingest(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(
        cli,
        [
            "--catalog",
            str(folder / "catalog"),
            "ingest",
            "g",
            *words,
            "--workers",
            "0",
            "--self-loops",
            "keep",
            "--json",
        ],
    )


def ingest_content(folder: Path, name: str, content: str | bytes, words: str) -> Result:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return ingest(folder, str(folder / name), *words.split())


@dataclass(frozen=True)
class Read:
    """A file that is read.

    Attributes:
        name: name of the file.
        content: what the file holds.
        words: options.
        edges: the edges, with names or numbers; each in one direction if ``words`` has ``--undirected``.
        weights: weights by edge; empty if there are none.
    """

    name: str
    content: str | bytes
    words: str
    edges: str
    weights: tuple[float, ...] = ()


def archived(kind: str) -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        archive.writestr("edges.txt", "0 1\n1 2\n")
        if kind == "two":
            archive.writestr("readme.txt", "by hand")
    return found.getvalue()


def tar() -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as archive:
        entry = tarfile.TarInfo("edges.txt")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"0 1\n"))
    return found.getvalue()


READ = {
    "quoted numbers": Read("e.csv", '"src","dst"\n"10","2"\n"2","9"\n', "--ids compact", "10-2 2-9"),
    "floats of a column with gaps": Read("e.csv", "src,dst\n3,1.0\n4,3.0\n", "", "3-1 4-3"),
    "leading zeros": Read("zip.txt", "007,7\n7,010\n", "--ids compact", "007-7 7-010"),
    "an index of pandas": Read("e.csv", ",src,dst\n0,7,8\n1,8,0\n", "", "7-8 8-0"),
    "row names of R": Read("e.txt", '"from" "to"\n"1" "ann" "bo"\n"2" "bo" "cy"\n', "--ids compact", "ann-bo bo-cy"),
    "row names of R over numbers": Read("e.txt", '"src" "dst"\n"7" 10 20\n"2" 20 30\n', "", "10-20 20-30"),
    "row names of R without quotes": Read("e.tsv", "src\tdst\n1\t10\t20\n2\t20\t30\n", "--columns 2,3",
                                          "10-20 20-30"),
    "row names of R beside words": Read("e.txt", "from to\n1 ann bo\n2 bo cy\n", "--ids compact", "ann-bo bo-cy"),
    "a last column without a name": Read("e.csv", "src,dst\n1,2,5\n2,3,7\n", "--columns 1,2,3", "1-2 2-3", (5, 7)),
    "fractions without a name": Read("e.csv", "src,dst\n1,2,0.5\n2,3,7\n", "--weights", "1-2 2-3", (0.5, 7)),
    "separators that end lines": Read("e.csv", "src,dst\n1,2,\n2,3,\n", "--extra-columns", "1-2 2-3"),
    "hashtags": Read("e.csv", "tag,user\n#gnn,ann\n#mpi,ann\n", "--header --ids names", "#gnn-ann #mpi-ann"),
    "URLs": Read("e.txt", "http://x/a#1 http://x/b\nhttp://x/b http://x/c\n", "--ids compact",
                 "http://x/a#1-http://x/b http://x/b-http://x/c"),
    "decimal commas": Read("e.csv", "von;nach;Menge\n1;2;7,494\n2;3;0,5\n", "--weights --decimal ,", "1-2 2-3",
                           (7.494, 0.5)),
    "a mark and semicolons": Read("e.csv", b"\xef\xbb\xbfSource;Target\r\na;b\r\nb;c\r\n", "--ids compact", "a-b b-c"),
    "Gephi": Read("e.csv", "Source,Target,Type,Id,Label,Weight\n0,1,Directed,0,,1.5\n1,2,Directed,1,,2\n",
                  "--columns Source,Target,Weight", "0-1 1-2", (1.5, 2)),
    "quoted weights": Read("e.csv", 'src,dst,weight\n0,1,"2.5"\n1,2,"3"\n', "--weights", "0-1 1-2", (2.5, 3)),
    "MovieLens": Read("ratings.dat", "1::10::5::1400000100\n1::11::3::1400000200\n", "--extra-columns", "1-10 1-11"),
    "bars": Read("e.txt", "0|1\n1|2\n", "", "0-1 1-2"),
    "KONECT, signed": Read("out.votes", "% asym signed\n1 2 1\n2 3 -1\n", "--weights", "1-2 2-3", (1, -1)),
    "KONECT, symmetric": Read("out.web", "% sym unweighted\n1 2\n2 3\n", "--undirected", "1-2 2-1 2-3 3-2"),
    "both directions": Read("e.txt", "0 1 0.5\n1 0 0.5\n1 2 2\n2 1 2\n", "--undirected --weights", "0-1 1-0 1-2 2-1",
                            (0.5, 0.5, 2, 2)),
    "MatrixMarket by its first bytes": Read(
        "m.txt", "%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 1.5\n3 2 0.5\n", "--weights",
        "0-1 1-0 1-2 2-1", (1.5, 1.5, 0.5, 0.5)),
    "MatrixMarket, one percent sign": Read("m.mtx", "%MatrixMarket matrix coordinate pattern general\n3 3 1\n2 1\n", "",
                                           "0-1"),
    "MatrixMarket of uint64": Read("m.mtx", "%%MatrixMarket matrix coordinate unsigned-integer general\n3 3 1\n1 2 9\n",
                                   "--weights", "1-0", (9,)),
    "a suffix in capitals": Read("E.TXT.GZ", gzip.compress(b"0 1\n1 2\n"), "", "0-1 1-2"),
    "gzip without a suffix": Read("edges", gzip.compress(b"0 1\n1 2\n"), "", "0-1 1-2"),
    "bz2": Read("e.txt.bz2", bz2.compress(b"0 1\n1 2\n"), "", "0-1 1-2"),
    "xz": Read("e.txt.xz", lzma.compress(b"0 1\n1 2\n"), "", "0-1 1-2"),
    "zip of one": Read("e.zip", archived("one"), "", "0-1 1-2"),
    "Apache AGE": Read("e.csv", "start_id,start_vertex_type,end_id,end_vertex_type\n1,a,5,b\n2,a,5,b\n",
                       "--extra-columns", "1-5 2-5"),
    "Ligra's edges": Read("e.txt", "EdgeArray\n0 1\n1 2\n", "", "0-1 1-2"),
    "three edges whose rows are as many as their columns": Read("e.txt", "0 1 1\n1 2 1\n2 0 5\n", "--weights",
                                                                "0-1 1-2 2-0", (1, 1, 5)),
    "quotes within text": Read("e.csv", 'u,v,t\n1,2,5" pipe\n2,3,"a ""b"" c"\n3,1,x""y\n', "--extra-columns",
                               "1-2 2-3 3-1"),
    "a quote in a comment": Read("e.csv", 'src,dst,t\n1,2,a\n# "5\n2,3,b\n', "--extra-columns", "1-2 2-3"),
    "joiners within names": Read("e.csv", "src,dst\nme\u200dx,bo\nbo,me\u200dx\n", "--ids names",
                                 "me\u200dx-bo bo-me\u200dx"),
    "UTF-16": Read("e.csv", "src,dst\n0,1\n1,2\n".encode("utf-16"), "", "0-1 1-2"),
    "carriage returns": Read("e.txt", b"0 1\r1 2\r", "", "0-1 1-2"),
    "a column of relations": Read("kg.tsv", "a\tlikes\tb\nb\tlikes\tc\n", "--columns 1,3 --ids names", "a-b b-c"),
    "empty lines, quotes and mixed line ends": Read("e.csv", b'"a,1",b\r\n\n  \nb,"c ""d"""', "--ids names --no-header",
                                                    'a,1-b b-c_"d"'),
    "DIMACS, arcs": Read("roads", "c by hand\np sp 3 2\nc\na 1 2 803\na 3 1 0.5\n", "--weights", "0-1 2-0", (803, 0.5)),
    "DIMACS, edges": Read("g.txt.gz", gzip.compress(b"p edge 3 2\nn 1 4\ne 2 1\n\ne 2 3\n"), "--undirected",
                          "0-1 1-0 1-2 2-1"),
    "DIMACS, both directions": Read("g.col", "p col 3 4\ne 1 2\ne 2 1\ne 2 3\ne 3 2\n", "", "0-1 1-0 1-2 2-1"),
    "METIS, decimal weights": Read("g.graph", "2 1 1\n2 0.5\n1 5e-1\n", "--undirected --weights", "0-1 1-0",
                                   (0.5, 0.5)),
    "a line for Excel": Read("e.csv", "\ufeffsep=;\r\nvon;nach\r\n1;2\r\n2;3\r\n", "", "1-2 2-3"),
    "a quoted line for Excel": Read("e.txt", '"sep=|"\nann|bo\nbo|cy\n', "--ids compact", "ann-bo bo-cy"),
    "dates as ids": Read("e.csv", "day,next\n2024-01-01,2024-01-02\n2024-01-02,2024-01-03\n", "--header --ids compact",
                         "2024-01-01-2024-01-02 2024-01-02-2024-01-03"),
    "short hashes": Read("e.txt", "1e5 a3f\na3f 3e21\n", "--ids compact", "1e5-a3f a3f-3e21"),
    "three decimals": Read("e.csv", "u;v;w\n1;2;1.234\n2;3;12.000\n", "--weights", "1-2 2-3", (1.234, 12)),
    "blanks in a column that is not read": Read("e.csv", "u;v;note\n1;2;hello world\n2;3;1 234\n", "--extra-columns",
                                                "1-2 2-3"),
    "a separator within a note": Read("e.csv", "u,v,note\n1,2,x\n2,3,hello, world\n", "--extra-columns", "1-2 2-3"),
    "names between blanks in a .csv": Read("e.csv", "ann bo\nbo cy\n", "--ids names --no-header", "ann-bo bo-cy"),
    "arrows as separators": Read("e.txt", "ann->bo\nbo->cy\n", "--ids names --delimiter ->", "ann-bo bo-cy"),
    "numbers between blanks in a .csv": Read("e.csv", "1 2 0.5\n2 3 1\n", "--weights", "1-2 2-3", (0.5, 1)),
    "numbers for columns called alike": Read("e.csv", "id,id,w\n1,2,5\n2,3,6\n", "--columns 1,2,3 --header", "1-2 2-3",
                                            (5, 6)),
    "a METIS graph": Read("g.graph", "% by hand\n3 2\n2\n1 3\n2\n", "--undirected", "0-1 1-0 1-2 2-1"),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_a_table_is_read_right(tmp_path: Path, case: str) -> None:
    want = READ[case]
    result = ingest_content(tmp_path, want.name, want.content, want.words)
    assert result.exit_code == 0, result.exception
    graph = Catalog(tmp_path / "catalog").dataset("g").graph()
    matrix = graph.to_scipy().tocoo()
    names = [
        str(name).replace(" ", "_") for name in (graph.original_name() if graph.has_names else graph.original_id())
    ]
    found = {
        f"{names[column]}-{names[row]}": value for row, column, value in zip(*matrix.coords, matrix.data, strict=True)
    }
    expected = want.edges.split()
    assert set(found) == set(expected)
    if want.weights:
        assert [found[edge] for edge in expected] == pytest.approx(want.weights)


@dataclass(frozen=True)
class Refused:
    """A file that is refused.

    Attributes:
        says: words of the message: the line, what the file is, and the remedy.
        name: name of the file.
    """

    content: str | bytes
    says: tuple[str, ...]
    name: str = "e.csv"
    words: str = ""


_RING = "".join(f"{number},{number + 1}\n" for number in range(12))
REFUSED = {
    "thousands": Refused('u,v,w\n1,2,"1,234"\n2,3,"12"\n', ("line 2", "thousands", "`--decimal ,`"), words="--weights"),
    "thousands, in the only column that is there": Refused("u;v;w\n1;2;1 234\n", ("line 2", "thousands"),
                                                           words="--weights --extra-columns"),
    "thousands between apostrophes": Refused("u;v;w\n1;2;1'234\n", ("line 2", "thousands"), words="--weights"),
    "thousands and decimals": Refused("u;v;w\n1;2;1.234,50\n", ("line 2", "thousands"), words="--weights --decimal ,"),
    "thousands beyond the first lines": Refused("u;v;w\n" + "1;2;1234\n" * 9999 + "3;1;1 2\n", ("line 10,001", "blank"),
                                                words="--weights --extra-columns"),
    "thousands in ids": Refused('src,dst\n"1,234","2,500"\n"2,500","1,234"\n', ("line 2", "thousands", "--ids names"),
                                words="--ids compact"),
    "ids as spreadsheets shorten them": Refused("src,dst\n1.23457E+12,2.5E+12\n2.5E+12,17\n", (
        "line 2", "scientific", "--ids names"), words="--ids compact"),
    "columns that are called alike": Refused("u,v,u\n1,2,5\n", ("called u", "numbers", "`--header`"),
                                             words="--columns u,v"),
    "a separator within a name": Refused("u,v,w\nann,bo,1\nSmith, John,cy,2\n", ("line 3", "double quotes"),
                                         words="--columns u,v --ids names"),
    "a line of totals": Refused("u,v,w\n1,2,5\n2,3,6\n3,1,6\nTotal,,17\n", ("line 5", "remove the line"),
                                words="--weights --ids compact"),
    "a line of totals below names": Refused("u,v,w\nann,bo,5\nbo,ann,6\nTotal,,11\n", ("line 4", "remove the line"),
                                            words="--weights --ids compact --header"),
    "a title": Refused("Report of May,,\nu,v,w\n1,2,5\n2,3,6\n3,1,6\n", ("line 1", "remove the line"),
                       words="--extra-columns"),
    "a header of two lines": Refused("Source,Target\n(id),(id)\n1,2\n2,3\n3,1\n", ("line 2", "remove the line")),
    "a count of rows": Refused("src,dst\nann,bo\nbo,ann\n(2 rows)\n", ("line 4", "remove the line"),
                               words="--ids names"),
    "a table of psql": Refused(" u | v \n---+---\n 1 | 2\n(1 row)\n", ("line 2", "psql --csv"), "e.txt"),
    "a table of MySQL": Refused("+---+---+\n| u | v |\n+---+---+\n| 1 | 2 |\n", ("line 1", "mysql --batch"), "e.txt"),
    "a table of Markdown": Refused("| u | v |\n|---|---|\n| 1 | 2 |\n", ("line 2", "Markdown"), "e.md"),
    "Windows-1252": Refused("von;nach\nMüller;Jäger\nJäger;Müller\n".encode("cp1252"), ("line 2", "UTF-8", "iconv"),
                            words="--header --ids names"),
    "a missing id": Refused("src,dst\n0,1\n1,\n2,0\n", ("line 3", "missing")),
    "NULL among numbers": Refused(f"src,dst\n{_RING}NULL,3\n", ("line 14", "missing"), words="--ids compact"),
    "one negative id": Refused(f"src,dst\n{_RING}-1,3\n", ("line 14", "--ids names"), words="--ids compact"),
    "leading zeros among numbers": Refused("007,7\n7,010\n", ("line 1", "--ids names")),
    "decimal commas": Refused("von;nach;Menge\n1;2;7,494\n", ("line 2", "--decimal ,"), words="--weights"),
    "a column without a name": Refused("src,dst\n1,2,5\n2,3,7\n", (
        "line 1", "`--columns 2,3`", "`--columns 1,2`", "`--columns 1,2,3`", "'2'", "'1'")),
    "a column without a name, in quotes": Refused('"src" "dst"\n"1" "2" 5\n"2" "3" 7\n', ("line 1", "`--columns 2,3`"),
                                                 "e.txt", "--ids compact"),
    "a column without a name, next to weights": Refused("src\tdst\tw\n1\t2\t3\t5\n2\t3\t4\t7\n", (
        "line 1", "`--columns 2,3,4`", "`--columns 1,2,3`"), "e.tsv", "--weights"),
    "names of rows or of vertices": Refused("src,dst\nann,bo,x\nbo,cy,x\n", ("line 1", "`--columns 2,3`"),
                                            words="--ids names"),
    "a header of words": Refused("customer,supplier\nann,bob\nbob,cy\n", ("line 1", "--header"), words="--ids compact"),
    "names by default": Refused("ann,bob\nbob,cy\n", ("line 1", "--ids names")),
    "a weight that nobody asked for": Refused("src,dst,weight\n0,1,2.5\n", ("line 2", "`--weights`")),
    "a matrix of a spreadsheet": Refused(";P;Q\nP;0.5;2.5\nQ;3.5;0\n", ("matrix", "stack()"), words="--ids names"),
    "KONECT, bipartite": Refused("% bip\n1 1\n1 2\n", ("bipartite", "--relation"), "out.items"),
    "KONECT, symmetric": Refused("% sym\n1 2\n2 3\n", ("--undirected",), "out.web"),
    "Gephi, undirected": Refused("Source,Target,Type\n0,1,Undirected\n", ("--undirected",), words="--extra-columns"),
    "lists": Refused("[1, 2]\n[2, 3]\n", ("line 1", "brackets"), "e.txt", "--ids compact"),
    "arrows": Refused("1 => 2\n2 => 3\n", ("line 1", "'=>'", "`--columns 1,3`"), "e.txt",
                      "--ids names --extra-columns"),
    "arrows between names": Refused("ann -- bo\nbo -- cy\n", ("line 1", "`--columns 1,3`"), "e.txt", "--ids names"),
    "arrows without blanks": Refused("1->2\n2->3\n", ("line 1", "`--delimiter '->'`"), "e.txt", "--ids names"),
    "whole lines in quotes": Refused('"src,dst"\n"1,2"\n"2,3"\n', ("line 1", "double quotes"), words="--ids names"),
    "lists of ids": Refused('src,dst\n1,"2,3"\n2,1\n3,"1;2"\n', ("line 2", "a line for each edge"),
                            words="--ids compact"),
    "tuples": Refused("(0,1)\n(1,2)\n", ("line 1", "parentheses"), "part-00000"),
    "dictionaries": Refused("0 1 {'weight': 1.5}\n1 2 {}\n", ("write_weighted_edgelist",), "g.edgelist"),
    "lines of neighbors": Refused("0 1 3 2\n1 2\n2\n", ("read_adjlist",), "g.adjlist"),
    "GML": Refused("graph [\n node [\n id 0\n", ("GML", "networkx.read_gml"), "g.gml"),
    "GraphML": Refused("<?xml version='1.0'?>\n<graphml/>\n", ("GraphML", "read_graphml"), "g.graphml"),
    "GEXF": Refused('<?xml version="1.0"?>\n<gexf version="1.3"/>\n', ("GEXF", "read_gexf"), "g.gexf"),
    "Pajek": Refused("*Vertices 2\n1 a\n2 b\n*arcs\n1 2\n", ("Pajek", "read_pajek"), "g.net"),
    "JSON": Refused('{"directed": false, "nodes": []}', ("JSON", "node_link_graph"), "g.json"),
    "HTML": Refused("<!DOCTYPE html><html><body>404</body></html>", ("HTML",), "e.txt"),
    "N-Triples": Refused("<http://x/a> <http://x/p> <http://x/b> .\n", ("RDF", "--format ntriples"), "g.txt"),
    "N-Triples, cut off": Refused("<http://x/a> <http://x/p> <http://x/b> .\n<http://x/a> <htt", ("line 2",), "g.nt"),
    "triples": Refused("a\tlikes\tb\nb\tlikes\tc\n", ("--columns 1,3",), "kg.tsv", "--ids names --extra-columns"),
    "a tar archive": Refused(tar(), ("tar",), "e.tgz"),
    "a zip of two": Refused(archived("two"), ("edges.txt", "readme.txt"), "e.zip"),
    "DIMACS, capacities": Refused("c by hand\np max 3 1\na 1 2 5\n", ("DIMACS", "awk"), "g.txt"),
    "DIMACS, another letter": Refused("p sp 3 1\ne 1 2 5\n", ("line 2", "`a 1 2 7`"), "g.gr"),
    "DIMACS, the id 0": Refused("p edge 3 2\ne 1 2\nc 0\ne 0 3\n", ("line 4", "start from 1"), "g.col"),
    "DIMACS, an id too large": Refused("p edge 3 2\ne 1 2\ne 3 4\n", ("line 3", "not below"), "g.col"),
    "DIMACS, cut off": Refused("p edge 3 2\ne 1 2\n", ("1 edge,", "2"), "g.col"),
    "DIMACS, two sizes": Refused("p sp 3 1\np sp 3 1\na 1 2 5\n", ("line 2",), "g.gr"),
    "DIMACS, a tree decomposition": Refused("p tw 3 1\n1 2\n", ("line 1", "`p sp VERTICES ARCS`"), "g.gr"),
    "DIMACS, weights without a direction": Refused("p col 3 1\ne 1 2 5\n", ("`--undirected`",), "g.col", "--weights"),
    "DIMACS without weights": Refused("p col 3 1\ne 1 2\n", ("`--weights`",), "g.col", "--weights"),
    "METIS as text": Refused("4 4\n2 4\n1 3\n2 4\n1 3\n", ("--format metis",), "ring.txt"),
    "METIS, not symmetric": Refused("3 2\n2\n1 3\n\n", ("vertex 2",), "g.graph"),
    "METIS, decimal ids": Refused("2 1 1\n2.5 1\n1 1\n", ("line 2", "integer"), "g.graph", "--weights"),
    "Neo4j, vertices and edges": Refused(
        '"_id","_labels","name","_start","_end","_type"\n"0",":P","ann",,,\n,,,"0","1","KNOWS"\n',
        ("Neo4j", "--columns _start,_end"), words="--header --ids names"),
    "an empty file": Refused("", ("empty",)),
    "a byte order mark alone": Refused(b"\xef\xbb\xbf", ("empty",)),
    "one column": Refused("1\n2\n", ("line 1", "two vertex ids"), "e.txt"),
    "a matrix without titles": Refused("0,1,1\n1,0,0\n1,0,0\n",
                                       ("matrix", "numpy.loadtxt(file, delimiter=',')", "`--columns 1,2`")),
    "a matrix of zeros and ones": Refused("0 1 0 1\n0 0 1 0\n1 0 0 1\n0 0 0 0\n", ("matrix",), "m.txt",
                                          "--weights --extra-columns"),
    "a matrix with titles alone": Refused("a,b,c\n0,1,0\n1,0,2\n0,2,0\n", ("matrix",), words="--extra-columns"),
    "a matrix with a title over the names": Refused("node,a,b,c\na,0,5,0\nb,1,0,1\nc,0,1,0\n", ("matrix",),
                                                    words="--extra-columns --ids compact"),
    "a matrix beyond the first lines": Refused("".join(" ".join("01"[(i * j) % 7 == 3] for j in range(260)) + "\n"
                                                       for i in range(260)), ("matrix",), "m.txt", "--extra-columns"),
    "lines of neighbors by name": Refused("ann bo cy\nbo cy\ncy ann\n", ("line 1", "neighbors", "`--columns 1,2`"),
                                          "e.txt", "--ids names --extra-columns"),
    "lines of as many neighbors": Refused("ann bo cy\nbo cy ann\ncy ann bo\n", ("line 1", "neighbors"), "e.txt",
                                          "--ids names --extra-columns"),
    "lines of neighbors between tabs": Refused("a\tpp\tb\tc\nb\tpp\tc\n", ("line 1", "neighbors"), "g.sif",
                                               "--ids names --extra-columns"),
    "neighbors by the name of the file": Refused("0 1 2\n1 2 3\n2 3 0\n3 0 1\n", ("read_adjlist",), "g.adjlist"),
    "neighbors after a colon": Refused("0: 1\n1: 2\n2: 0\n", ("line 1", "colon"), "e.txt", "--ids compact"),
    "lines of several lines": Refused("0 2\n1 {}\n2 {}\n1 1\n2 {}\n2 0\n", ("line 2", "multiline_adjlist"), "g.txt",
                                      "--ids compact"),
    "a list of vertices above the edges": Refused("1 a\n2 b\n#\n1 2\n2 1\n", ("line 3", "sed"), "g.tgf",
                                                  "--ids compact"),
    "numbers as Java writes them": Refused("src,dst\n1.0E7,2.5E7\n2.5E7,1.0E7\n", ("line 2", "scientific"),
                                           words="--ids compact"),
    "a number as R writes it": Refused("src,dst\n100000,2\n1e+05,3\n2,100000\n", ("line 3", "scientific")),
    "decimals for ids": Refused("src,dst\n1.5,2.25\n2.5,1.5\n", ("line 2", "--columns"), words="--ids compact"),
    "ids in single quotes": Refused("src,dst\n'1','2'\n'2','3'\n", ("line 2", "single quotes"), words="--ids compact"),
    "a first column that is empty": Refused(",0,1\n,1,2\n", ("line 1", "missing"), words="--extra-columns"),
    "UTF-16 without a mark": Refused("src,dst\n0,1\n".encode("utf-16-le"), ("iconv",), words="--ids compact"),
    "UTF-32": Refused("src,dst\n0,1\n".encode("utf-32"), ("iconv",), words="--ids compact"),
    "UTF-16, compressed": Refused(gzip.compress("src,dst\n0,1\n".encode("utf-16")), ("iconv",), "e.csv.gz"),
    "carriage returns, compressed": Refused(gzip.compress(b"0,1\r1,2\r"), ("carriage returns",), "e.csv.gz"),
    "compressed twice": Refused(gzip.compress(bz2.compress(b"0,1\n")), ("within another",), "e.csv.gz"),
    "a dump of MySQL": Refused("-- MySQL dump 10.19\n--\nINSERT INTO `links` VALUES (1,2),(2,3);\n", ("SQL", "--batch"),
                               "links.sql", "--header --ids compact"),
    "a dump of SQLite": Refused("PRAGMA foreign_keys=OFF;\nCREATE TABLE e(a,b);\n", ("SQL",), "e.txt"),
    "a pointer of Git LFS": Refused("version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 1\n",
                                    ("git lfs pull",), words="--header --ids compact"),
    "the message of a server": Refused("404: Not Found", ("server",), "e.txt", "--ids compact"),
    "a header again": Refused("src,dst\nann,bo\nbo,cy\nsrc,dst\ncy,ann\n", ("line 4", "awk"), words="--ids compact"),
    "a header again, beyond the first lines": Refused(
        "from,to,w\r\n" + "ann,bo,1\r\n" * 9999 + " from,to,w \r\nbo,cy,2\r\n", ("line 10,001", "awk"),
        words="--ids names --extra-columns"),
    "a note that goes on in the next line": Refused('src,dst,note\n1,2,"so\n3,4,far"\n2,3,x\n', (
        "line 2", "double quote"), words="--extra-columns"),
    "a note of names that goes on": Refused('src;note;dst\nann;"a ""b""\ncy;d";bo\n', ("line 2", "double quote"),
                                            words="--columns src,dst --ids names"),
    "a row after a carriage return": Refused("src,dst,note\n1,2,a\r3,4,b\n2,3,c\n", ("line 2", "carriage return"),
                                             words="--extra-columns"),
    "a header with carriage returns": Refused("0,1\r1,2\r\n2,3\r\n", ("line 1", "carriage return"),
                                              words="--header --ids names"),
    "a blank that does not break": Refused("src,dst\nann\u00a0,bo\nbo,ann\n", ("line 2", "U+00A0"),
                                            words="--ids names"),
    "a joiner at the end": Refused("src,dst\nann,bo\nbo\u200b,ann\n", ("line 3", "U+200B"), words="--ids names"),
    "a byte order mark between joined files": Refused("\ufeffann,bo\nbo,cy\n\ufeffann,cy\n", ("line 3", "U+FEFF"),
                                                      words="--ids names --no-header"),
    "a zero byte in a name": Refused("ann,bo\nbo,c\0\n", ("line 2", "U+0000"),
                                     words="--format snap --ids names --no-header"),
    "a blank within quotes": Refused('src,dst\n"ann ",bo\nbo,ann\n', ("line 2", "U+0020"), words="--ids names"),
    "a cell without a value": Refused("src,dst\nann,bo\nbo,#N/A\n", ("line 3", "missing"), words="--ids compact"),
    "a pivot table without a value": Refused("src,dst\nann,bo\n(blank),ann\n", ("line 3", "missing"),
                                             words="--ids compact"),
    "a sign for a missing id": Refused("src,dst\nann,bo\nbo,-\n", ("line 3", "missing", "--ids names"),
                                       words="--ids compact"),
    "a comment of another program": Refused("!gaf 2\nann bo\nbo ann\n", ("line 1", "--no-header"), "e.txt",
                                            "--ids compact"),
    "GDF": Refused("nodedef>name VARCHAR,label VARCHAR\na,A\nedgedef>node1 VARCHAR,node2 VARCHAR\na,b\n", ("GDF",),
                   "g.gdf", "--header --ids compact"),
    "DL": Refused("DL\nN=3\nFORMAT = EDGELIST1\nDATA:\n1 2\n", ("UCINET",), "g.txt"),
    "Ligra": Refused("AdjacencyGraph\n3\n2\n0\n1\n2\n1\n2\n", ("Ligra", "csr_matrix"), "g.adj"),
    "MATLAB": Refused(b"MATLAB 5.0 MAT-file, Platform: GLNXA64" + bytes(90), ("loadmat",), "g.mat"),
    "an Arrow stream": Refused(b"\xff\xff\xff\xff\x10\0\0\0", ("pyarrow.ipc",), "e.arrow"),
    "R": Refused(gzip.compress(b"X\n\0\0\0\2"), ("write.csv",), "e.rds"),
    "DuckDB": Refused(bytes(8) + b"DUCK" + bytes(40), ("DuckDB", "COPY"), "e.db"),
    "a table of vertices": Refused(",id,x\n0,8,8.5\n1,11,11.5\n", (
        "gnnloom features g", ":x --by-id", "`--columns id,x`")),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_is_refused_with_the_remedy_and_nothing_is_left(tmp_path: Path, case: str) -> None:
    want = REFUSED[case]
    result = ingest_content(tmp_path, want.name, want.content, want.words)
    assert result.exit_code == 1
    assert isinstance(result.exception, GnnloomError)
    message = str(result.exception)
    assert want.name in message
    assert "\n" not in message
    assert [word for word in want.says if word not in message] == []
    assert not [each for each in (tmp_path / "catalog").rglob("*") if each.is_file()]


def test_parts_without_a_header_are_not_read_in_another_order(tmp_path: Path) -> None:
    for name, text in (("p0.csv", "dst,src\n0,1\n1,2\n"), ("p1.csv", "2,0\n")):
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in ("p0.csv", "p1.csv")]
    assert "`--columns 2,1`" in str(ingest(tmp_path, *files).exception)
    assert ingest(tmp_path, *files, "--columns", "2,1").exit_code == 0
    edges = Catalog(tmp_path / "catalog").dataset("g").graph().to_scipy().tocoo()
    assert {(int(column), int(row)) for row, column in zip(*edges.coords, strict=True)} == {(1, 0), (2, 1), (0, 2)}


@pytest.mark.parametrize("key", ["src", "source_id"])
def test_ends_in_names_of_folders_are_not_left_out(tmp_path: Path, key: str) -> None:
    other = "dst" if key == "src" else "target_id"
    for number in (1, 2):
        (tmp_path / f"e/{key}={number}").mkdir(parents=True)
        (tmp_path / f"e/{key}={number}/part-0.csv").write_text(f"{other},weight\n3,1\n4,1\n")
    assert "folder" in str(ingest(tmp_path, str(tmp_path / "e/*/*.csv"), "--extra-columns").exception)
    assert "'" in (message := str(ingest(tmp_path, str(tmp_path / "e")).exception))
    assert "**" in message


def test_a_zip_archive_of_macos_is_one_file_and_an_encrypted_one_is_named(tmp_path: Path) -> None:
    def written(name: str, *, encrypted: bool) -> str:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("e.csv", "0,1\n1,2\n")
            archive.writestr("__MACOSX/._e.csv", b"\0\1")
        content = bytearray((tmp_path / name).read_bytes())
        for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            content[content.index(mark) + at] |= encrypted
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    assert "encrypted" in str(ingest(tmp_path, written("b.zip", encrypted=True)).exception)
    assert ingest(tmp_path, written("a.zip", encrypted=False)).exit_code == 0


def test_a_column_is_one_end(tmp_path: Path) -> None:
    result = ingest_content(tmp_path, "e.csv", "u,v\n1,2\n", "--columns v,v")
    assert "v is there twice" in str(result.exception)


def pictures() -> list[tuple[str, str]]:
    """The tables of the manual, and a command that it has for each."""
    manual = (Path(__file__).parents[3] / "docs/how-to/sources.md").read_text()
    section = manual.partition("## Your table looks like this")[2].partition("\n## ")[0]
    found = []
    for block in section.split("```text\n")[1:]:
        text, _, after = block.partition("```\n")
        found += [(text, command) for command in re.findall(r"`(gnnloom ingest [^`]+)`", after.partition("```")[0])]
    return found


@pytest.mark.parametrize(("text", "command"), pictures())
def test_the_tables_of_the_manual_are_read_by_their_commands(tmp_path: Path, text: str, command: str) -> None:
    _, _, name, file, *words = command.split()
    content = gzip.compress(text.encode()) if file.endswith(".gz") else text.encode()
    (tmp_path / file).write_bytes(content)
    arguments = ["ingest", name, str(tmp_path / file), *words, "--workers", "0", "--json"]
    result = CliRunner().invoke(cli, ["--catalog", str(tmp_path / "catalog"), *arguments])
    assert result.exit_code == 0, result.exception
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    has_header = "--no-header" not in words and not any(character.isdigit() for character in lines[0])
    assert json.loads(result.stdout)["edges_in"] == len(lines) - has_header


@pytest.mark.long
def test_proposed_commands_lead_from_tables_of_r_to_predictions(tmp_path: Path) -> None:
    edges = [(f'"{k + 1}"', k % 20, (7 * k + 1) % 20, k % 3 + 0.5) for k in range(60)]
    parts = ("train", "train", "valid", "test")
    people = [(f'"{k + 1}"', k, 20 + k, f'"{"ab"[k % 2]}"', f'"{parts[k % 4]}"') for k in range(20)]
    for name, head, rows in (
        ("calls", ("from", "to", "weight"), edges),
        ("people", ("id", "age", "y", "split"), people),
    ):
        lines = [" ".join(f'"{word}"' for word in head), *(" ".join(map(str, row)) for row in rows)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    proposed = [
        json.loads(CliRunner().invoke(cli, ["look", str(tmp_path / name), "--json"]).stdout)["command"]
        for name in ("calls", "people")
    ]
    commands = [f"{command.replace('NAME', 'r')} --workers 0" for command in proposed]
    assert [each.rpartition(str(tmp_path))[2] for each in proposed] == [
        "/calls --columns from,to,weight", "/people:split --by-id",
    ]  # fmt: skip
    commands += ["gnnloom partition r --parts 2 --method random --workers 0", "gnnloom shard r --parts 2 --workers 0"]
    commands += ["gnnloom train r/run --ranks 2 --epochs 2 --hidden 4 --threads 1", "gnnloom predict r/run"]
    travel(tmp_path, commands)
    assert len(list((tmp_path / "catalog").rglob("*prediction*"))) > 0


@pytest.mark.skipif(not CASES.exists(), reason="the files of the cases are not there")
def test_every_file_of_the_cases_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    calls: list[Callable[[str], Result]] = [
        lambda path: CliRunner().invoke(cli, ["look", path, "--json"]),
        lambda path: ingest(tmp_path, path, "--ids", "compact", "--plan"),
    ]
    for path in sorted(each for each in CASES.rglob("*") if each.is_file() or any(each.glob("*.*"))):
        for call in calls:
            result = call(str(path))
            if result.exit_code:
                assert isinstance(result.exception, GnnloomError), (path, result.exception)
                assert "\n" not in str(result.exception), path
            else:
                json.loads(result.stdout)
