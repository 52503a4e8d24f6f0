"""Refuses files and folders in formats that gnnloom does not read, and names what converts them.

Their lines could be read as edges, or fail with a message about separators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.name_ids import is_id
from gnnloom.pipeline.sources.reading.text_layout import SAMPLE_BYTES, Row, Sample, Stated, is_count, is_number
from gnnloom.pipeline.sources.reading.times import find_times
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import shell_command

#: Rows at the beginning of a file that show whether it is something else than a list of edges.
_LOOKED_AT: Final = 1000
#: Fields of a triple.
_TRIPLE: Final = 3

#: Bytes of a file that are looked at.
_FIRST_BYTES: Final = 4096
_NETWORKX: Final = "gnnloom.ingest(NAME, networkx.{}) reads it in Python"
_FRAME: Final = "gnnloom.ingest(NAME, pandas.{}) reads it in Python"


@dataclass(frozen=True)
class Foreign:
    """A format that is not read.

    Attributes:
        what: the format.
        remedy: what converts a file; ``{}`` stands for its name.
        begins: pattern of the first bytes, after blanks and a byte order mark; None if names decide.
        suffixes: endings of names that decide.
    """

    what: str
    remedy: str
    begins: bytes | None = None
    suffixes: tuple[str, ...] = ()


_FOREIGN: Final[Sequence[Foreign]] = (
    Foreign("a tar archive", "unpack it with `tar xf {}`, and name a file in it", None, (".tar", ".tgz", ".tbz")),
    Foreign("GraphML", _NETWORKX.format("read_graphml({!r})"), rb"(?s:(<\?xml.*)?<graphml\b)"),
    Foreign("GEXF", _NETWORKX.format("read_gexf({!r})"), rb"(?s:(<\?xml.*)?<gexf\b)"),
    Foreign(
        "an HTML page",
        "the server may have sent a message instead of the file; open it in a browser",
        rb"<(!doctype\s+)?html\b",
    ),
    Foreign("XML", "convert it to a table of edges", rb"<\?xml"),
    Foreign("GML", _NETWORKX.format("read_gml({!r})"), rb"((#|Creator|Version|comment)[^\n]*\n\s*)*graph\s*\["),
    Foreign("Pajek", _NETWORKX.format("read_pajek({!r})"), rb"\*(vertices|network|arcs|edges)\b"),
    Foreign("JSON lines", _FRAME.format("read_json({!r}, lines=True)"), rb'\{\s*"[^\n]*\}\s*\n\s*\{'),
    Foreign(
        "JSON",
        _NETWORKX.format("node_link_graph(json.load(open({!r})))") + ", if networkx wrote it",
        rb'(\{\s*"|\[\s*[\[{])',
    ),
    Foreign("an Excel workbook", _FRAME.format("read_excel({!r})"), rb"\xd0\xcf\x11\xe0"),
    Foreign("an Excel workbook", _FRAME.format("read_excel({!r})"), None, (".xlsx", ".xlsm", ".ods")),
    Foreign("Feather", _FRAME.format("read_feather({!r})"), rb"ARROW1|FEA1"),
    Foreign("graph6", _NETWORKX.format("read_graph6({!r})"), rb">>graph6<<"),
    Foreign("graph6", _NETWORKX.format("read_graph6({!r})"), None, (".g6",)),
    Foreign("sparse6", _NETWORKX.format("read_sparse6({!r})"), rb">>sparse6<<"),
    Foreign("sparse6", _NETWORKX.format("read_sparse6({!r})"), None, (".s6",)),
    Foreign("DOT", _NETWORKX.format("nx_pydot.read_dot({!r})"), rb'(strict\s+)?(di)?graph\b[^\n{\[]*\{'),
    Foreign(
        "a network of DIMACS with capacities",
        "write its arcs as edges with awk '$1 == \"a\" {{print $2, $3, $4}}' {}",
        rb"(c[^\n]*\n\s*)*p\s+(max|min|asn|mat)\s+\d+\s+\d+",
    ),
    Foreign("HDF5", _FRAME.format("read_hdf({!r})") + ", if pandas wrote it", rb"\x89HDF\r\n"),
    Foreign("SQLite", _FRAME.format("read_sql('select ...', 'sqlite:///{}')"), rb"SQLite format 3\0"),
    Foreign(
        "a pickle, which can run code when it is read",
        "load it in Python if you trust it, and pass what it holds to gnnloom.ingest",
        None,
        (".pkl", ".pickle", ".gpickle"),
    ),
    Foreign("a 7z or RAR archive", "unpack it, and name a file in it", rb"7z\xbc\xaf\x27\x1c|Rar!\x1a\x07"),
    Foreign(
        "RDF triples",
        "add `--format ntriples` if each line is a statement of N-Triples; otherwise convert the file with"
        " `rapper -i guess -o ntriples {}`",
        rb"(#[^\n]*\n\s*)*(@prefix\b|@base\b|(<[^>\n]*>|_:\S+)\s+<[^>\n]*>\s+(<|_:|\").*\s\.[ \t]*\r?(\n|$))",
    ),
)  # fmt: skip
#: What may be between two ids, a longer one first.
_ARROWS: Final = ("-->", "->", "=>", "<-", "--", "~")
#: A line below the names of columns in a table that is drawn.
_LINE: Final = re.compile(r"[-+=|: ]*(--|==)[-+=|: ]*")
#: Where a tar archive has its mark.
_TAR: Final = slice(257, 262)

_FOLDERS: Final[Sequence[tuple[str, str, str]]] = (
    ("meta.yaml", "a CSV dataset of DGL", "ingest its edges.csv, then give nodes.csv to `gnnloom features --by-id`"),
    ("metadata.yaml", "a dataset of GraphBolt", "ingest the file of one of its kinds of edges"),
    ("metadata.json", "a chunked graph of DGL", "ingest the files of one of its kinds of edges"),
    ("*_graph_indicator.txt", "a TU dataset of many graphs", "load one graph with PyG, and pass it to gnnloom.ingest"),
    ("*_A.txt", "a TU dataset", "load it with PyG, and pass the graph to gnnloom.ingest"),
    ("*-G.json", "a dataset of GraphSAGE", "pass networkx.node_link_graph(json.load(open(FILE))) to gnnloom.ingest"),
    ("adj_full.npz", "a dataset of GraphSAINT", "ingest adj_full.npz, then give feats.npy to `gnnloom features`"),
    ("out.*", "a dataset of KONECT", "give its file FOLDER/out.NAME"),
    ("part-*", "a table in parts, as Spark writes them", "name the parts, in quotes: 'FOLDER/part-*'"),
)


def first_bytes(file: SourceFile) -> bytes:
    """The first bytes of a file, after a byte order mark and blanks; none if it cannot be decoded."""
    try:
        with file.open() as stream:
            return stream.read(_FIRST_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except InputError:
        return b""


def refuse_foreign(file: SourceFile, begin: bytes) -> None:
    """Refuse a local file of a format that is not read.

    Args:
        begin: its first bytes.

    Raises:
        InputError: the file is of such a format, which the message names, with what converts it.
    """
    name = file.path.name.lower()
    is_tar = begin[_TAR] == b"ustar"
    for foreign in _FOREIGN:
        found = foreign.begins is not None and re.match(foreign.begins, begin, re.IGNORECASE)
        if found or name.endswith(foreign.suffixes) or (is_tar and ".tar" in foreign.suffixes):
            raise InputError(
                f"{file.location}: {foreign.what}, which gnnloom does not read; {foreign.remedy.format(file.location)}"
            )


def name_folder(path: Path) -> str:
    """Describe a folder of another program, with the remedy; empty if the folder is not recognized."""
    for pattern, what, remedy in _FOLDERS:
        if next(path.glob(pattern), None) is not None:
            return f"{what}, which gnnloom does not read as a folder; {remedy.replace('FOLDER', str(path))}"
    return ""


def refuse_drawn(file: SourceFile, sample: Sample) -> None:
    """Refuse a table that is drawn with lines for people.

    Raises:
        InputError: one of the first rows is a line.
    """
    line = next((row for row in sample.rows[:3] if _LINE.fullmatch(row.text)), None)
    if line is not None:
        raise bad_line(
            file,
            line.start,
            "a table drawn for people, as psql, MySQL and Markdown have; write one with commas, for example with"
            " psql --csv, COPY ... TO ... CSV HEADER, or mysql --batch",
        )


def refuse_marked(file: SourceFile, sample: Sample) -> None:
    """Refuse a file whose first comment says that it is of another format.

    Raises:
        InputError: the file is in the format of MatrixMarket.
    """
    first = sample.comments[0] if sample.comments else ""
    if first.lstrip("%").lower().startswith("matrixmarket"):
        raise InputError(f"{file.location}: begins as files of MatrixMarket do; give `--format mtx`")


def refuse_others(
    file: SourceFile, sample: Sample, named_ends: Sequence[tuple[int, int]], *, has_header: bool, is_valued: bool
) -> None:
    """Refuse a file that is not a list of edges, though its lines could be read as edges.

    Args:
        named_ends: pairs of columns that the header names as ends of an edge.

    Raises:
        InputError: the file is an adjacency matrix, or has tuples in parentheses, dictionaries or triples.
    """
    first, rows = sample.rows[0], sample.rows[1 if has_header else 0 :][:_LOOKED_AT]
    firsts = [row.fields[0] for row in rows]
    is_square = len(firsts) == len(first.fields) - 1 > 1 and list(first.fields[1:]) == firsts
    if is_square and all(len(row.fields) == len(first.fields) for row in rows):
        raise InputError(
            f"{file.location}: a matrix with a row and a column per vertex, not a list of edges; convert it, for"
            " example with pandas.read_csv(file, index_col=0).stack().to_csv('edges.csv')"
        )
    if rows and all(row.text[:1] + row.text[-1:] in {"()", "[]"} for row in rows):
        raise bad_line(
            file,
            rows[0].start,
            "tuples in parentheses or lists in brackets; write the ids without them, and one separator between two ids",
        )
    _refuse_one_field(file, rows)
    if rows and all("{" in row.text and row.text[-1:] == "}" for row in rows):
        raise bad_line(
            file,
            rows[0].start,
            "dictionaries after the ids, as networkx.write_edgelist writes them; write the edges with"
            " networkx.write_weighted_edgelist, or with data=False",
        )
    if {"_start", "_end"} <= set(first.fields):
        raise InputError(
            f"{file.location}: vertices and edges in one table, as APOC exports them from Neo4j; write the edges alone,"
            " for example with pandas.read_csv(file).dropna(subset='_start').to_csv('edges.csv'), and add"
            " `--columns _start,_end`"
        )
    widths = {len(row.fields) for row in rows}
    middles = {row.fields[1] for row in rows if len(row.fields) > 2}
    if widths == {_TRIPLE} and len(middles) == 1 and not any(map(str.isalnum, next(iter(middles)) or "0")):
        raise bad_line(file, rows[0].start, f"{next(iter(middles))!r} between the ids; `--columns 1,3` reads the ids")
    if not is_valued and len(widths) > 2 and all(is_id(field) for row in rows for field in row.fields):
        raise bad_line(
            file,
            rows[0].start,
            f"the lines have {min(widths)} to {max(widths)} numbers, as lines of a vertex and its neighbors have, which"
            " networkx.read_adjlist reads in Python; `--columns 1,2` takes the first two of each line for an edge",
        )
    if widths == {_TRIPLE} and not any(1 in ends for ends in named_ends):
        heads, relations, tails = ({row.fields[number] for row in rows} for number in range(_TRIPLE))
        # A relation is not a vertex, and a third column of vertices does not have weights.
        are_words = not any(is_id(word) or is_number(word) or find_times([word]) for word in (*relations, *tails))
        is_smaller = bool(heads & tails) or len(relations) < len(tails)
        if are_words and is_smaller and not relations & (heads | tails) and len(relations) < len(rows):
            raise bad_line(
                file,
                rows[0].start,
                "triples of head, relation and tail; `--format triples` stores a graph with these relations, and"
                " `--columns 1,3` reads their ends and leaves the relation out",
            )


def _refuse_one_field(file: SourceFile, rows: Sequence[Row]) -> None:
    """Refuse rows of one field that has both ids: in double quotes, or with an arrow between them.

    Raises:
        InputError: all rows are such.
    """
    if not rows or any(len(row.fields) != 1 for row in rows):
        return
    if all(row.text[:1] == '"' and any(sign in row.fields[0] for sign in ",;\t|") for row in rows):
        raise bad_line(file, rows[0].start, "the whole line is in double quotes, and is one field; remove them")
    for arrow in _ARROWS:
        if all(row.text.count(arrow) == 1 for row in rows):
            remedy = f"`{shell_command('--delimiter', arrow)}`"
            raise bad_line(file, rows[0].start, f"expected two fields, found one; add {remedy} if it separates two ids")


def refuse_counts(file: SourceFile, begin: bytes) -> None:
    """Refuse a short file whose first line counts what follows it, unless the user says what it is.

    Args:
        begin: first bytes of the file.

    Raises:
        InputError: the file may be in the format of METIS, or begin with the numbers of vertices and edges.
    """
    is_long = file.is_seekable and (file.size or 0) > SAMPLE_BYTES
    if is_long or not begin.startswith((b"#", b"%", *map(str.encode, "0123456789"))):
        return
    try:
        sample = Sample.of(file, Stated())
    except InputError:
        # The reader of the rows reports it.
        return
    if not sample.is_whole or len(sample.rows) < _TRIPLE or not all(map(is_count, sample.rows[0].fields)):
        return
    (first, *rows), counts = sample.rows, [int(field) for field in sample.rows[0].fields]
    if len(counts) < 2:
        return
    if len(rows) == counts[0] and sum(len(row.fields) for row in rows) == 2 * counts[1]:
        raise InputError(
            f"{file.location}: perhaps in the format of METIS, as line {first.line} states {counts[0]:,} vertices and"
            f" {counts[1]:,} edges; give `--format metis`, or `--format snap` if each line is an edge"
        )
    ids = {field for row in rows for field in row.fields[:2]}
    if len(counts) == 2 and len(rows) == counts[1] and str(counts[0]) not in ids:
        raise InputError(
            f"{file.location}: line {first.line} may state {counts[0]:,} vertices and {counts[1]:,} edges; add"
            " `--format snap --header` to skip it, or `--format snap` if it is an edge"
        )
