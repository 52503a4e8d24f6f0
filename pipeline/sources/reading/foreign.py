"""Names files and folders in formats that gnnloom does not read, with what converts them.

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
        "a graph has one kind of edge; write the subjects and objects of one relation as a table of two columns",
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
    """What a folder of another program is, and what to do; empty if it is not known."""
    for pattern, what, remedy in _FOLDERS:
        if next(path.glob(pattern), None) is not None:
            return f"{what}, which gnnloom does not read as a folder; {remedy.replace('FOLDER', str(path))}"
    return ""
