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
_MESH: Final = "read it with meshio.read({!r}) in Python, and pass the pairs of points of its cells to gnnloom.ingest"
_MOLECULE: Final = "read it with RDKit in Python, and pass the bonds of a molecule to gnnloom.ingest"
_NO_EDGES: Final = "its rows are not edges; write edges that you compute from it as a table"
_CONTENT: Final = "load it in Python with {}, and pass the edges in it to gnnloom.ingest"


@dataclass(frozen=True)
class Foreign:
    """A format that is not read.

    Attributes:
        what: the format.
        remedy: how to convert a file; ``{}`` stands for its name.
        begins: pattern of the first bytes, after blanks and a byte order mark; None if names alone decide.
        suffixes: endings of names that decide if the first bytes do not.
    """

    what: str
    remedy: str
    begins: bytes | None = None
    suffixes: tuple[str, ...] = ()


#: A section of Pajek, after comments.
_PAJEK: Final = rb"((%|/\*)[^\n]*\n\s*)*\*(vertices|network|arcs|edges|arcslist|edgeslist|matrix)\b"
#: A graph of DOT, after comments.
_DOT: Final = rb"((#|//)[^\n]*\n\s*|/\*([^*]|\*(?!/))*\*/\s*)*(strict\s+)?(di)?graph\b[^\n{\[<]*\s*\{"

_FOREIGN: Final[Sequence[Foreign]] = (
    Foreign("a tar archive", "unpack it with `tar xf {}`, and name a file in it", None, (".tar", ".tgz", ".tbz")),
    Foreign("GraphML", _NETWORKX.format("read_graphml({!r})"), rb"(?s:(<[?!].*)?<graphml\b)"),
    Foreign("GEXF", _NETWORKX.format("read_gexf({!r})"), rb"(?s:(<[?!].*)?<gexf\b)"),
    Foreign(
        "an HTML page",
        "the server may have sent a message instead of the file; open it in a browser",
        rb"<(!doctype\s+)?html\b",
    ),
    Foreign("a table in HTML", _FRAME.format("read_html({!r})[0]"), rb"<(div[^>]*>\s*<)?table\b"),
    Foreign(
        "the message of a server instead of a file",
        "check the address, and fetch it again",
        rb"[45]\d\d:? (not found|forbidden|bad|internal|service|gateway|unauthorized)|(<\?xml[^>]*>\s*)?<error>",
    ),
    Foreign(
        "XML",
        "convert it to a table of edges",
        rb"<\?xml|<!(--|doctype)|(<[\w:.-]+>\s*)?<[\w:.-]+\s+[\w:.-]+\s*=\s*[\"']|<[\w.-]+>(\r?\n\s*)?<[\w/]",
    ),
    Foreign("GML", _NETWORKX.format("read_gml({!r})"), rb"((#|Creator|Version|comment)[^\n]*\n\s*)*graph\s*\["),
    Foreign(
        "the format of Network Workbench",
        "write the lines below *DirectedEdges or *UndirectedEdges as a table of edges",
        rb"((#|//)[^\n]*\n\s*)*\*nodes\b",
    ),
    Foreign("Pajek", _NETWORKX.format("read_pajek({!r})"), _PAJEK),
    Foreign("JSON lines", _FRAME.format("read_json({!r}, lines=True)"), rb'\{\s*"[^\n]*\}\s*\n\s*\{'),
    Foreign(
        "JSON",
        _NETWORKX.format("node_link_graph(json.load(open({!r})))") + ", if networkx wrote it",
        rb'(\{\s*"|\[\s*(\{|\[\s*["\d\[\]-]))',
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
    Foreign("ORC", _FRAME.format("read_orc({!r})"), rb"(?s:ORC.{0,400}?\0)", (".orc",)),
    Foreign("Avro", "write it as Parquet, for example with fastavro and pandas", rb"Obj\x01"),
    Foreign(
        "a file of R",
        "write its table with write.csv(TABLE, FILE, row.names = FALSE)",
        rb"RD[AX][23]\s|X\n\0",
        (".rds", ".rda", ".rdata"),
    ),
    Foreign("Stata", _FRAME.format("read_stata({!r})"), rb"<stata_dta>", (".dta",)),
    Foreign("SPSS", _FRAME.format("read_spss({!r})"), rb"\$FL[23]@\(#\)", (".sav", ".por")),
    Foreign("SAS", _FRAME.format("read_sas({!r})"), rb"HEADER RECORD\*{7}", (".sas7bdat", ".xpt")),
    Foreign("a symbolic link of Excel (SYLK)", "save it as CSV", rb"ID;P[A-Z]"),
    Foreign("NetCDF", "read it with xarray, and pass the edges to gnnloom.ingest", rb"CDF[\1\2\5]", (".nc",)),
    Foreign("a table of a map", "read it with geopandas.read_file({!r}) in Python", None, (".shp", ".dbf", ".shx")),
    Foreign("a map of OpenStreetMap", "osmnx and pyrosm read graphs of its roads in Python", None, (".osm.pbf",)),
    Foreign("MATLAB", "pass the matrix in scipy.io.loadmat({!r}) to gnnloom.ingest", rb"MATLAB 5"),
    Foreign("MATLAB in HDF5", "save it in MATLAB with save(FILE, '-v7'), or read it with h5py", rb"MATLAB 7"),
    Foreign("DuckDB", "write the table with COPY edges TO 'edges.parquet'", rb"(?s:.{8}DUCK)"),
    Foreign(
        "an SQL dump",
        "load it into a database, and write the table as CSV, for example with psql --csv or mysql --batch",
        rb"((--|/\*)[^\n]*\n\s*)*(/\*[^\n]*?\*/\s*)?(insert\s+into|create\s+table|drop\s+table|lock\s+tables|pragma)\b"
        rb"|set\s+\w+\s*=[^\n]*;|copy\s+[^\n]*\sfrom\s+stdin\b|(--\s*)+(mysql|mariadb|postgresql)\b",
    ),
    Foreign(
        "a script of Cypher",
        "run it in Neo4j, and export the result of MATCH (a)-->(b) RETURN a.id AS source, b.id AS target as CSV",
        rb"((//[^\n]*|:(begin|param|use|auto)\b[^\n]*)\n\s*)*"
        rb"((create|merge|match)\s*\(\w*[:)\s]|create\s+(constraint|index)\b|unwind\s*[\[$]|load\s+csv\s)",
        (".cypher", ".cql", ".cyp"),
    ),
    Foreign(
        "a script of Gremlin",
        "run it, and write the edges as a table",
        rb"(//[^\n]*\n\s*)*g\.add[VE]\(",
        (".gremlin", ".groovy"),
    ),
    Foreign(
        "a query of SPARQL",
        "run it, and write the edges as CSV",
        rb"(prefix\s+\w*:[^\n]*\n\s*)*((insert|delete)\s+data\b|(construct|ask|select)\b[^\n]*[{?])",
        (".rq", ".sparql"),
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
    Foreign("HDT", "write its triples with hdt2rdf.sh {} triples.nt, and add `--format ntriples`", rb"\$HDT[\0-\4]"),
    Foreign(
        "RDF triples",
        "add `--format ntriples` if each line is a statement of N-Triples; otherwise convert the file with"
        " `rapper -i guess -o ntriples {}`",
        rb"(#[^\n]*\n\s*)*(@prefix\b|@base\b|prefix\s+\w*:\s*<|base\s+<|graph\s+<"
        rb"|(<[^>\n]*>|_:\S+)\s+<[^>\n]*>\s+(<|_:|\").*\s\.[ \t]*\r?(\n|$)"
        rb"|(\w*:\S+[ \t]+){2}\S+[ \t]+\.[ \t]*\r?(\n|$))",
        (".ttl", ".trig", ".n3"),
    ),
    Foreign(
        "an OBJ mesh",
        _MESH,
        rb"((#|(mtllib|usemtl|[ogs])\s)[^\n]*\n\s*)*v([ \t]+[-+]?[\d.]+(e[-+]?\d+)?){3}",
        (".obj",),
    ),
    Foreign("a PLY mesh", _MESH, rb"ply\s*\nformat\s", (".ply",)),
    Foreign("an STL mesh", _MESH, rb"solid\b[^\n]*\n\s*facet\s", (".stl",)),
    Foreign("an OFF mesh", _MESH, rb"[a-z\d]{0,5}OFF\s+(#[^\n]*\n\s*)*(\d+\s+){3}", (".off",)),
    Foreign("VTK", _MESH, rb"# vtk DataFile", (".vtk",)),
    Foreign("a mesh of Gmsh", _MESH, rb"\$MeshFormat", (".msh",)),
    Foreign("a MEDIT mesh", _MESH, rb"MeshVersionFormatted\b"),
    Foreign(
        "an assembly graph (GFA)",
        "write its links as edges with awk '$1 == \"L\" {{print $2, $4}}' {}",
        rb"(#[^\n]*\n)*(H\tVN:Z:|S\t[^\t\n]+\t(\d+\t)?([ACGTUN]+|\*)\s)",
        (".gfa",),
    ),
    Foreign("FASTA", _NO_EDGES, rb">[^>\n][^\n]*\n[A-Z*-]+[ \t\r]*(\n|$)", (".fasta", ".fa", ".faa", ".fna")),
    Foreign("FASTQ", _NO_EDGES, rb"@[^\n]*\n[ACGTN]+\r?\n\+", (".fastq", ".fq")),
    Foreign("alignments (SAM)", _NO_EDGES, rb"@(HD|SQ|RG|PG|CO)\t", (".sam", ".bam", ".cram", ".paf")),
    Foreign("variants of a genome (VCF)", _NO_EDGES, rb"##fileformat=VCF|#CHROM\tPOS\t", (".bcf",)),
    Foreign(
        "intervals of a genome (BED)",
        _NO_EDGES,
        rb"((track|browser|#)[^\n]*\n\s*)*(chr[\w.]+[ \t]+\d+[ \t]+\d+\b|(fixed|variable)Step\s)",
        (".bed", ".bedgraph", ".narrowpeak", ".broadpeak", ".wig"),
    ),
    Foreign("features of a genome (GFF)", _NO_EDGES, rb"##gff-version", (".gff", ".gff3", ".gtf")),
    Foreign(
        "a tree (Newick)",
        "read it with Bio.Phylo.read({!r}, 'newick') in Python, and pass Bio.Phylo.to_networkx(tree) to gnnloom.ingest",
        rb"\([^\n]*\)[^\n()]*;\s*(\n|$)",
        (".nwk", ".newick"),
    ),
    Foreign("NEXUS", "read it with Bio.Phylo or dendropy in Python", rb"#NEXUS\b"),
    Foreign("a molecule (MOL, SDF)", _MOLECULE, rb"([^\n]*\n){0,3}[ \d]+V[23]000\s", (".sdf",)),
    Foreign("a molecule (MOL2)", _MOLECULE, rb"(#[^\n]*\n\s*)*@<TRIPOS>"),
    Foreign("molecules (SMILES, InChI)", _MOLECULE, rb"InChI=1", (".smi", ".smiles", ".inchi")),
    Foreign(
        "atoms in space (PDB, XYZ)",
        "compute the bonds, for example with MDAnalysis or RDKit in Python, and pass them to gnnloom.ingest",
        rb"(ATOM  |HETATM)[ \d]{5} |\d+\s*\n[^\n]*\n[A-Z][a-z]?([ \t]+-?\d+\.\d+){3}",
        (".pdb", ".ent", ".cif", ".mmcif"),
    ),
    Foreign("graphs of gSpan", "write the lines that begin with e as edges", rb"t[ \t]+#[ \t]+\d+[^\n]*\n\s*v\s"),
    Foreign("Tulip's TLP", "open it in Tulip, and export the edges as CSV", rb"\(tlp\s+\""),
    Foreign("GDL", "write the edges as a table", rb"graph:\s*\{"),
    Foreign(
        "a diagram of Mermaid or PlantUML",
        "write the edges as a table",
        rb"(graph|flowchart)\s+(TD|TB|LR|RL|BT);?\s*\n[^\n]*--|@startuml",
        (".mmd", ".puml"),
    ),
    Foreign("YAML", _CONTENT.format("yaml.safe_load(open({!r}))"), None, (".yaml", ".yml")),
    Foreign("TOML", _CONTENT.format("tomllib.load(open({!r}, 'rb'))"), None, (".toml",)),
    Foreign("ARFF", "write the lines below @data as a table", rb"(%[^\n]*\n\s*)*@relation\b"),
    Foreign(
        "references of articles (BibTeX, RIS, Web of Science)",
        "write a line for each pair of a citing and a cited article",
        rb"@\w+\{[^\n,]*,\s*\n|TY  - |PMID- |FN (Clarivate|Thomson|ISI)\b",
    ),
    Foreign(
        "an email",
        "write a line for each pair of a sender and a recipient",
        rb"(From \S+[^\n]*\n)?((Message-ID|Return-Path|Received|From|To|Date|Subject|MIME-Version): [^\n]*\n){2}",
    ),
    Foreign("contacts or a calendar", _NO_EDGES, rb"BEGIN:V(CARD|CALENDAR)\b"),
    Foreign("a family tree (GEDCOM)", "write a line for each pair of a parent and a child", rb"0 HEAD\s"),
    Foreign("clauses of DIMACS (CNF)", _NO_EDGES, rb"(c[^\n]*\n\s*)*p\s+w?cnf\b"),
    Foreign("TSPLIB", "read it with tsplib95 in Python", rb"NAME\s*:[^\n]*\n\s*(TYPE|COMMENT)\s*:", (".tsp",)),
    Foreign("a linear program (MPS)", _NO_EDGES, rb"NAME\b[^\n]*\n\s*ROWS\b", (".mps",)),
    Foreign(
        "LaTeX",
        "write the rows of the table with commas",
        rb"\\(documentclass|begin|usepackage|hline|toprule)\b|[^\n]*\\\\[ \t]*(\\\w+[ \t]*)?\r?\n",
        (".tex",),
    ),
    Foreign(
        "a document or an image",
        "name a file that has edges",
        rb"%PDF-|%!PS|\{\\rtf1|\x89PNG|\xff\xd8\xff|GIF8",
        (".docx", ".pptx", ".odt"),
    ),
    Foreign("a program", "name a file that has edges", rb"#!/", (".py", ".r", ".jl", ".sh")),
)  # fmt: skip
#: Where a tar archive has its mark.
_TAR: Final = slice(257, 262)

_FOLDERS: Final[Sequence[tuple[str, str, str]]] = (
    (
        "zarr.json",
        "a Zarr store",
        "a dataset of gnnloom is used by its name and --catalog; read other stores in Python, and pass the arrays on",
    ),
    (".z[ag]r*", "a Zarr store", "read its arrays with zarr.open in Python, and pass them to gnnloom.ingest"),
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
    # KONECT calls its files out.NAME; the network may have any name, such as out.r.
    is_konect = name.startswith("out.") and begin.startswith(b"%")
    for foreign in _FOREIGN:
        found = foreign.begins is not None and re.match(foreign.begins, begin, re.IGNORECASE)
        is_named = name.endswith(foreign.suffixes) and not is_konect
        if found or is_named or (is_tar and ".tar" in foreign.suffixes):
            # The name may mislead if the bytes are text.
            may_be_edges = not found and begin.isascii() and b"\0" not in begin
            edges = "; if each line is an edge, add `--format snap`" if may_be_edges else ""
            raise InputError(
                f"{file.location}: {foreign.what}, which gnnloom does not read;"
                f" {foreign.remedy.format(file.location)}{edges}"
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
