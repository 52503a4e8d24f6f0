"""Refuses files and folders in formats that gnnloom does not read, and names what converts them.

Their lines could be read as edges, or fail with a message about separators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gnnloom.pipeline.sources.reading.coding import without_suffix
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


#: A graph of DOT, after comments.
_DOT: Final = rb"((#|//)[^\n]*\n\s*|/\*([^*]|\*(?!/))*\*/\s*)*(strict\s+)?(di)?graph\b[^\n{\[]*\s*\{"

_FOREIGN: Final[Sequence[Foreign]] = (
    Foreign("a tar archive", "unpack it with `tar xf {}`, and name a file in it", None, (".tar", ".tgz", ".tbz")),
    Foreign("GraphML", _NETWORKX.format("read_graphml({!r})"), rb"(?s:(<[?!].*)?<graphml\b)"),
    Foreign("GEXF", _NETWORKX.format("read_gexf({!r})"), rb"(?s:(<[?!].*)?<gexf\b)"),
    Foreign(
        "an HTML page",
        "the server may have sent a message instead of the file; open it in a browser",
        rb"<(!doctype\s+)?html\b",
    ),
    Foreign(
        "the message of a server instead of a file",
        "check the address, and fetch it again",
        rb"[45]\d\d:? (not found|forbidden|bad|internal|service|gateway|unauthorized)|(<\?xml[^>]*>\s*)?<error>",
    ),
    Foreign(
        "XML",
        "convert it to a table of edges",
        rb"<\?xml|<!(--|doctype)|(<[\w:.-]+>\s*)?<[\w:.-]+\s+[\w:.-]+\s*=\s*[\"']",
    ),
    Foreign("GML", _NETWORKX.format("read_gml({!r})"), rb"((#|Creator|Version|comment)[^\n]*\n\s*)*graph\s*\["),
    Foreign("Pajek", _NETWORKX.format("read_pajek({!r})"), rb"((%|/\*)[^\n]*\n\s*)*\*(vertices|network|arcs|edges)\b"),
    Foreign("JSON lines", _FRAME.format("read_json({!r}, lines=True)"), rb'\{\s*"[^\n]*\}\s*\n\s*\{'),
    Foreign(
        "JSON",
        _NETWORKX.format("node_link_graph(json.load(open({!r})))") + ", if networkx wrote it",
        rb'(\{\s*"|\[\s*[\[{])',
    ),
    Foreign("an Excel workbook", _FRAME.format("read_excel({!r})"), rb"\xd0\xcf\x11\xe0"),
    Foreign("an Excel workbook", _FRAME.format("read_excel({!r})"), None, (".xlsx", ".xlsm", ".ods")),
    Foreign(
        "a zip archive without the ending .zip, as Excel workbooks are,",
        "pandas.read_excel({!r}) reads a workbook in Python; otherwise unpack it, and name a file in it",
        rb"PK\x03\x04",
    ),
    Foreign("Feather", _FRAME.format("read_feather({!r})"), rb"ARROW1|FEA1"),
    Foreign("an Arrow stream", "pass pyarrow.ipc.open_stream({!r}).read_all() to gnnloom.ingest", rb"\xff{4}"),
    Foreign("ORC", _FRAME.format("read_orc({!r})"), None, (".orc",)),
    Foreign("Avro", "write it as Parquet, for example with fastavro and pandas", rb"Obj\x01"),
    Foreign("a file of R", "write its table with write.csv(TABLE, FILE, row.names = FALSE)", rb"RD[AX][23]\s|X\n\0"),
    Foreign("Stata", _FRAME.format("read_stata({!r})"), rb"<stata_dta>"),
    Foreign("MATLAB", "pass the matrix in scipy.io.loadmat({!r}) to gnnloom.ingest", rb"MATLAB 5"),
    Foreign("MATLAB in HDF5", "save it in MATLAB with save(FILE, '-v7'), or read it with h5py", rb"MATLAB 7"),
    Foreign("DuckDB", "write the table with COPY edges TO 'edges.parquet'", rb"(?s:.{8}DUCK)"),
    Foreign(
        "an SQL dump",
        "load it into a database, and write the table as CSV, for example with psql --csv or mysql --batch",
        rb"((--|/\*)[^\n]*\n\s*)*(/\*[^\n]*?\*/\s*)?(insert\s+into|create\s+table|drop\s+table|lock\s+tables|pragma)\b"
        rb"|(--\s*)+(mysql|mariadb|postgresql)\b",
    ),
    Foreign("a pointer to a file that was not fetched", "fetch it with `git lfs pull`", rb"version https://git-lfs"),
    Foreign("a pointer to a file that was not fetched", "fetch it with `git annex get`", rb"/annex/objects/"),
    Foreign("GDF", "open it in Gephi, and export the table of edges as CSV", rb"nodedef\s*>"),
    Foreign("UCINET's DL", "write the lines below `data:` as a table of edges", rb"dl\b[\s,]*(n|nr|nc|nm|format)\s*="),
    Foreign("VNA", "write the lines below `*tie data` as a table of edges", rb"\*(node|tie) (data|properties)\b"),
    Foreign("LEDA", _NETWORKX.format("read_leda({!r})"), rb"LEDA\.GRAPH"),
    Foreign("LEMON's LGF", "write the lines below @arcs or @edges as a table of edges", rb"@(nodes|arcs|edges)\s"),
    Foreign(
        "the adjacency format of Ligra and GBBS",
        "pass scipy.sparse.csr_matrix((weights, targets, offsets)) of its numbers to gnnloom.ingest",
        rb"(weighted)?adjacency(hyper)?graph\s",
    ),
    Foreign(
        "a compressed file within another",
        "decompress it once, and name what comes out",
        rb"\x1f\x8b\x08|BZh[1-9]1AY|\xfd7zXZ\0|\x28\xb5\x2f\xfd",
    ),
    Foreign("graph6", _NETWORKX.format("read_graph6({!r})"), rb">>graph6<<"),
    Foreign("graph6", _NETWORKX.format("read_graph6({!r})"), None, (".g6",)),
    Foreign("sparse6", _NETWORKX.format("read_sparse6({!r})"), rb">>sparse6<<"),
    Foreign("sparse6", _NETWORKX.format("read_sparse6({!r})"), None, (".s6",)),
    Foreign("DOT", _NETWORKX.format("nx_pydot.read_dot({!r})"), _DOT),
    Foreign(
        "a network of DIMACS with capacities",
        "write its arcs as edges with awk '$1 == \"a\" {{print $2, $3, $4}}' {}",
        rb"(c[^\n]*\n\s*)*p\s+(max|min|asn|mat)\s+\d+\s+\d+",
    ),
    Foreign(
        "coordinates of DIMACS",
        "ingest the file of the arcs (.gr)",
        rb"(c[^\n]*\n\s*)*p\s+aux\b",
    ),
    Foreign("a hypergraph of hMETIS", "write a line for each pair of net and vertex, as two types", None, (".hgr",)),
    Foreign("labels of vertices", "`gnnloom features NAME --label {}:2 --by-id` stores them", None, (".node_labels",)),
    Foreign(
        "a file in another compression",
        "decompress it, for example with uncompress, xz, lz4, lzop, lzip or snzip, and name what comes out",
        rb"\x1f[\x9d\xa0]|\x04\x22\x4d\x18|\x89LZO\0|LZIP[\0\1]|\xff\x06\0\0sNaPpY|\x5d\0\0[\0\x80]",
        (".lzma", ".lz4", ".lzo", ".snappy"),
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
#: Beginning of an entry of a matrix, as MATLAB and R print it: (1,2) and [1,].
_PRINTED: Final = re.compile(r"\(\d+,\s*\d+\)\s|\[\d+,\]\s")
#: The attributes of an edge or a vertex that Python wrote.
_DICTIONARY: Final = re.compile(r"(^|\s)\{(['\"][^{}]*)?\}$")
#: The name of an attribute before its value.
_KEY: Final = re.compile(r"[A-Za-z]\w*:(?!\S*:)")
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
    (
        "*=*/*",
        "a table in partitions, as Spark, Hive and Arrow write them",
        "name the parts, in quotes: 'FOLDER/**/*.*'",
    ),
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
    if b"\0" in begin:
        raise InputError(
            f"{file.location}: bytes that are not text; if it is text in UTF-16 or UTF-32, convert it, for example with"
            " iconv -f UTF-16LE -t UTF-8, and otherwise give its format with `--format`"
        )
    if b"\r" in begin and b"\n" not in begin and file.coding:
        raise InputError(
            f"{file.location}: its lines end with carriage returns; decompress it, or write line feeds with"
            " tr '\\r' '\\n'"
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
    if _is_matrix(sample, has_header=has_header, is_named=bool(named_ends)):
        raise InputError(
            f"{file.location}: a matrix with a row and a column per vertex, not a list of edges; convert it, for"
            " example with pandas.read_csv(file, index_col=0).stack().to_csv('edges.csv'), or add `--columns 1,2` if"
            " each line is an edge"
        )
    if not has_header and len(rows) == 2 and all(len(row.fields) == 2 and {*row.fields} <= {"0", "1"} for row in rows):
        raise InputError(
            f"{file.location}: a matrix of two vertices or two edges; add `--columns 1,2` if each line is an edge, or"
            " write the nonzeros of the matrix as a list of edges"
        )
    are_printed = len(rows) > 1 and all(map(_PRINTED.match, [row.text for row in rows[1:]]))
    if are_printed or (rows and all(row.text[:1] + row.text[-1:] in {"()", "[]"} for row in rows)):
        raise bad_line(
            file,
            rows[0].start,
            "tuples in parentheses or lists in brackets; write the ids without them, and one separator between two ids",
        )
    _refuse_one_field(file, rows)
    attributes = next((row for row in rows if _DICTIONARY.search(row.text)), None)
    if attributes is not None:
        raise bad_line(
            file,
            attributes.start,
            "dictionaries after the ids, as networkx.write_edgelist and write_multiline_adjlist write them; write the"
            " edges with networkx.write_weighted_edgelist, or with write_edgelist and data=False",
        )
    _refuse_neighbors(file, rows, has_header=has_header)
    _refuse_marks(file, rows, has_header=has_header)
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
    is_called = without_suffix(file.location).endswith((".adjlist", ".adj")) and max(widths, default=0) > 2
    if not is_valued and (len(widths) > 2 or is_called) and all(is_id(field) for row in rows for field in row.fields):
        raise bad_line(
            file,
            rows[0].start,
            f"the lines have up to {max(widths)} numbers, as lines of a vertex and its neighbors have, which"
            " networkx.read_adjlist reads in Python; `--columns 1,2` takes the first two of each line for an edge",
        )
    if widths == {_TRIPLE} and not any(1 in ends for ends in named_ends):
        _refuse_triples(file, rows)
    if not (has_header or is_valued):
        _refuse_named_neighbors(file, rows, widths)


def _refuse_triples(file: SourceFile, rows: Sequence[Row]) -> None:
    """Refuse rows of three words with a relation in the middle.

    Raises:
        InputError: the rows are triples.
    """
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


def _refuse_named_neighbors(file: SourceFile, rows: Sequence[Row], widths: set[int]) -> None:
    """Refuse rows of names whose further columns have vertices.

    Raises:
        InputError: the rows are vertices with their neighbors.
    """
    beyond = [cell for row in rows for cell in row.fields[2:] if cell]
    if not beyond or any(is_id(cell) or is_number(cell) for cell in beyond):
        return
    ends = {cell for row in rows for cell in row.fields[:2]}
    found = sum(cell in ends for cell in beyond)
    if found > len(beyond) / 2 or (found and len(widths) > 1):
        raise bad_line(
            file,
            rows[0].start,
            "further columns have vertices too, as lines of a vertex and its neighbors have; write a line for each"
            " edge, or add `--columns 1,2` if the first two fields of each line are an edge",
        )


def _is_matrix(sample: Sample, *, has_header: bool, is_named: bool) -> bool:
    """Whether the rows are an adjacency matrix, with or without names of its rows and columns.

    A matrix is square. A matrix that is not whole in the sample has more columns than the sample has rows.

    Args:
        is_named: the header names the ends of edges.
    """
    first, rows = sample.rows[0].fields, sample.rows
    below = rows[1:]
    for titles in (first[1:], first):
        firsts = [row.fields[0] for row in below]
        is_wide = all(len(row.fields) == len(titles) + 1 and _are_numbers(row.fields[1:]) for row in below)
        if len(firsts) > 1 and is_wide and firsts == list(titles[: len(firsts) if not sample.is_whole else None]):
            return True
    # Three weighted edges are three rows of three numbers as well.
    cells = [row.fields for row in (below if has_header else rows)]
    size = len(cells[0]) if cells else 0
    is_square = len(cells) == size if sample.is_whole else len(cells) < size
    if is_named or size < _TRIPLE or not is_square or any(len(row) != size for row in cells):
        return False
    if not all(map(_are_numbers, cells)):
        return False
    is_symmetric = all(cells[i][j] == cells[j][i] for i in range(len(cells)) for j in range(i))
    return is_symmetric or (size > _TRIPLE and {cell for row in cells for cell in row} <= {"0", "1", "0.0", "1.0"})


def _are_numbers(cells: Sequence[str]) -> bool:
    return all(not cell or is_number(cell.replace(",", ".")) for cell in cells)


def _refuse_neighbors(file: SourceFile, rows: Sequence[Row], *, has_header: bool) -> None:
    """Refuse lines of a vertex and its neighbors that a colon separates, and lists of vertices above lists of edges.

    Raises:
        InputError: all rows are such, or a line has a number sign alone.
    """
    if rows and all(len(row.fields) > 1 and len(row.fields[0]) > 1 and row.fields[0][-1] == ":" for row in rows):
        raise bad_line(
            file,
            rows[0].start,
            "a colon after the first id, as lines of a vertex and its neighbors have; write a line for each edge,"
            " without the colon",
        )
    parting = next((row for row in rows if row.text == "#"), None)
    if parting is not None and not has_header:
        raise bad_line(
            file,
            parting.start,
            "vertices above a number sign and edges below it, as in the Trivial Graph Format; write the edges alone,"
            " for example with sed '1,/^#$/d'",
        )


def _refuse_marks(file: SourceFile, rows: Sequence[Row], *, has_header: bool) -> None:
    """Refuse edges behind a word that all lines have, and records with a line for each attribute.

    Raises:
        InputError: the rows are such.
    """
    firsts = {row.fields[0] for row in rows}
    are_behind = all(len(row.fields) > 2 and is_id(row.fields[1]) and is_id(row.fields[2]) for row in rows)
    has_word = len(firsts) == 1 and not firsts <= {""} and not any(map(is_number, firsts))
    # A header says which columns have the ids.
    if len(rows) > 1 and has_word and are_behind and not has_header:
        raise bad_line(
            file,
            rows[0].start,
            f"all lines begin with {rows[0].fields[0]!r}, and two ids follow; `--columns 2,3` reads these, and"
            " `--columns 1,2` the first two fields",
        )
    keys = [match[0] for row in rows if (match := _KEY.match(row.text)) is not None]
    is_ragged = len({len(row.fields) for row in rows}) > 1
    if is_ragged and len(keys) > len(rows) / 2 and 1 < len(set(keys)) < len(keys):
        raise bad_line(
            file,
            rows[0].start,
            f"records with a line for each attribute, such as {keys[0]!r}; write a table with a line for each edge",
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
