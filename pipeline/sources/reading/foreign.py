"""Refuses files and folders in formats that gnnloom does not read, and names a converter.

Their lines could be read as edges, or fail with a message about separators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.storage.errors import InputError

#: Bytes of a file that are looked at.
_FIRST_BYTES: Final = 4096
#: Bytes of a first line that are looked at.
_LONGEST_FIRST_LINE: Final = 1 << 20
_NETWORKX: Final = "gnnloom.ingest(NAME, networkx.{}) reads it in Python"
_FRAME: Final = "gnnloom.ingest(NAME, pandas.{}) reads it in Python"


@dataclass(frozen=True)
class Foreign:
    """A format that is not read.

    Attributes:
        what: the format.
        remedy: how to convert a file; ``{}`` stands for its name.
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
    Foreign(
        "the format of Network Workbench",
        "write the lines below *DirectedEdges or *UndirectedEdges as a table of edges",
        rb"((#|//)[^\n]*\n\s*)*\*nodes\b",
    ),
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
        rb"|set\s+\w+\s*=[^\n]*;|copy\s+[^\n]*\sfrom\s+stdin\b|(--\s*)+(mysql|mariadb|postgresql)\b",
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
        "decompress it once, and name the result",
        rb"\x1f\x8b\x08|BZh[1-9]1AY|\xfd7zXZ\0|\x28\xb5\x2f\xfd",
    ),
    Foreign(
        "the properties of a graph of WebGraph",
        "write its arcs with java it.unimi.dsi.webgraph.ArcListASCIIGraph BASENAME edges.txt",
        rb"#BVGraph properties|(#[^\n]*\n\s*)*graphclass\s*=",
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
        "decompress it, for example with uncompress, xz, lz4, lzop, lzip or snzip, and name the result",
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


def first_line_of(file: SourceFile) -> bytes:
    """The first line of a file, or its beginning if it is long; empty if the file cannot be decoded."""
    try:
        with file.open() as stream:
            return stream.readline(_LONGEST_FIRST_LINE)
    except InputError:
        return b""


def refuse_foreign(file: SourceFile, begin: bytes) -> None:
    """Refuse a local file of a format that is not read.

    Args:
        begin: its first bytes.

    Raises:
        InputError: the file is of such a format; the message names the format and a converter.
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
