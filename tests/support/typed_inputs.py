"""Small tables and statements of graphs with types, and simple readers of them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from support.described_inputs import described_inputs
from support.simple_readers import (
    MISSING,
    Graph,
    TypedInput,
    UnreadableError,
    between_blanks,
    read_lines,
    read_rows,
    whole_number,
)

_WORD = re.compile(r"[^:]*:(ID|START_ID|END_ID|TYPE|LABEL)(?:\(([^)]*)\))?(?:\{.*\})?", re.IGNORECASE)
_NEPTUNE = {"~id": "ID", "~from": "START_ID", "~to": "END_ID", "~label": "LABEL"}


def _float32(cell: str, fill: float | None = None) -> float:
    if cell.lower() in MISSING:
        if fill is None:
            raise UnreadableError("a number is missing")
        return fill
    try:
        found = float({"true": "1", "false": "0"}.get(cell.lower(), cell))
    except ValueError as error:
        raise UnreadableError(f"{cell!r} is not a number") from error
    with np.errstate(over="ignore"):
        stored = float(np.float32(found))
    if not math.isfinite(stored):
        raise UnreadableError(f"{cell!r} is not finite")
    return stored


def _words(header: list[str]) -> tuple[dict[str, int], dict[str, str]]:
    """Number of the column of each word, and its id space."""
    words: dict[str, int] = {}
    spaces: dict[str, str] = {}
    for number, name in enumerate(header):
        match = _WORD.fullmatch(name)
        word = match[1].upper() if match else _NEPTUNE.get(name.lower(), "")
        if word in words:
            raise UnreadableError("two columns are alike")
        if word:
            words[word], spaces[word] = number, (match[2] or "").strip() if match else ""
    if len({"START_ID", "END_ID"} & words.keys()) == 1 or not {"ID", "START_ID"} & words.keys():
        raise UnreadableError("a header without words, or without an end")
    return words, spaces


def _declared(folder: Path, value: str = "") -> Graph:
    """Files whose headers are those of Neo4j or Neptune."""
    edges: list[tuple[Any, ...]] = []
    kinds: dict[tuple[str, str], str] = {}
    for path in sorted(folder.glob("*.csv")):
        header, *rows = read_rows(path)
        words, spaces = _words(header)
        kind = words.get("TYPE", words.get("LABEL"))
        column = next((at for at, name in enumerate(header) if value and name.split(":")[0] == value), None)
        for row in rows:
            word = path.stem if kind is None else row[kind]
            if "START_ID" in words:
                number = [] if column is None else [_float32(row[column])]
                ends = [(spaces[end], row[words[end]]) for end in ("START_ID", "END_ID")]
                edges.append((word, *ends, *number))
            elif kinds.setdefault((spaces["ID"], row[words["ID"]]), word.split(";")[0]) != word.split(";")[0]:
                raise UnreadableError("a vertex has two types")
    if any(end not in kinds for _, *ends in edges for end in ends[:2]):
        raise UnreadableError("an end is not listed")
    if any(cell.lower() in MISSING for _, cell in kinds) or not all(word for word, *_ in edges):
        raise UnreadableError("a cell is empty")
    found = Counter((word, source[1], target[1], *values) for word, source, target, *values in edges)
    return Graph({name: label for (_, name), label in kinds.items()}, found)


def _triples(path: Path) -> Graph:
    graph = Graph()
    for row in read_rows(path, "\t"):
        if len(row) != 3 or any(cell.lower() in MISSING for cell in row):
            raise UnreadableError("not a triple")
        head, relation, tail = row
        graph.edges[relation, head, tail] += 1
        graph.kinds |= {head: "entity", tail: "entity"}
    return graph


def _open_ke(path: Path) -> Graph:
    graph, lines = Graph(), [between_blanks(line) for line in read_lines(path)]
    rows = [line for line in lines if line]
    is_counted = len(rows[0]) == 1
    if is_counted and rows[0] != [str(len(rows) - 1)]:
        raise UnreadableError("another number of triples")
    for row in rows[is_counted:]:
        if len(row) != 3:
            raise UnreadableError("not a triple")
        head, tail, relation = row if is_counted else (row[0], row[2], row[1])
        graph.edges[relation, head, tail] += 1
        graph.kinds |= {head: "entity", tail: "entity"}
    return graph


def _payments(folder: Path) -> Graph:
    header, *rows = read_rows(folder / "pay.csv")
    (first, *_), *users = read_rows(folder / "users.csv")
    listed = {row[0] for row in users}
    if first != "id":
        raise UnreadableError("another column")
    graph, at = Graph(), {name: header.index(name) for name in header}
    graph.kinds = {("user", name): "user" for name in listed}
    for row in rows:
        who, what, kind = row[at["who"]], row[at["what"]], row[at["kind"]]
        if who not in listed or {who.lower(), what.lower()} & MISSING:
            raise UnreadableError("an end is not listed, or missing")
        values = (
            _float32(row[at["amount"]], 1.0),
            _micros(row[at["at"]]),
            _float32(row[at["fee"]], 0.0),
            "none" if kind.lower() in MISSING else kind,
        )
        graph.kinds["shop", what] = "shop"
        graph.edges["pays", ("user", who), ("shop", what), *values] += 1
    return graph


def _micros(cell: str) -> int:
    if cell.lower() in MISSING:
        return 0
    try:
        found = datetime.fromisoformat(cell)
    except ValueError as error:
        raise UnreadableError(f"{cell!r} is not a time") from error
    if found.tzinfo is not None:
        raise UnreadableError("a zone")
    since = found.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def _matrix(path: Path) -> Graph:
    graph, lines = Graph(), read_lines(path)
    # The banner is Latin-1.
    banner, *kind = lines[0].replace("\udca0", " ").lower().split()
    if banner.lstrip("%") != "matrixmarket" or kind != ["matrix", "coordinate", "real", "general"]:
        raise UnreadableError("another header")
    # Numbers may have commas or semicolons between them as well.
    cells = [re.sub("[,;]", " ", line).split() for line in lines[1:] if not line.lstrip().startswith("%")]
    rows = [row for row in cells if row]
    height, width, count = (whole_number(cell) for cell in rows[0])
    if count != len(rows) - 1 or height == width:
        raise UnreadableError("another number of entries")
    graph.kinds = {("user", str(each)): "user" for each in range(width)}
    graph.kinds |= {("film", str(each)): "film" for each in range(height)}
    for row, column, value in rows[1:]:
        i, j = whole_number(row) - 1, whole_number(column) - 1
        if not (0 <= i < height and 0 <= j < width):
            raise UnreadableError("beyond the matrix")
        graph.edges["rates", ("user", str(j)), ("film", str(i)), _float32(value)] += 1
    return graph


def _konect(path: Path) -> Graph:
    rows = [
        between_blanks(line) for line in read_lines(path) if line.strip(" \t\r") and line.lstrip(" \t")[0] not in "%#"
    ]
    # A first line with a word where others have a number is a header.
    rows = rows[1:] if not _is_number(rows[0][2]) else rows
    graph, ends = Graph(), [_ids([row[end] for row in rows]) for end in (0, 1)]
    for source, target, row in zip(*ends, rows, strict=True):
        graph.kinds |= {("user", source): "user", ("film", target): "film"}
        graph.edges["rates", ("user", source), ("film", target), _float32(row[2])] += 1
    return graph


def _ids(cells: list[str]) -> list[str]:
    """The ids of a column: whole numbers, or names if half of them are not numbers."""
    try:
        return [str(whole_number(cell)) for cell in cells]
    except UnreadableError:
        if 2 * sum(map(str.isdigit, set(cells))) > len(set(cells)) or any(cell.lower() in MISSING for cell in cells):
            raise
        return cells


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


#: A statement of N-Triples, and a comment after it.
_IRI = r"<((?:[^\x00-\x20<>\"\\]|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8})+)>"
_LABEL = r"(_:[\w:\u0080-\U0010FFFF](?:[\w:.\u0080-\U0010FFFF-]*[\w:\u0080-\U0010FFFF-])?)"
_TEXT = r'"(?:[^\"\\]|\\[tbnrf\"\'\\]|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8})*"'
_SUFFIX = rf"(?:@[\w:\u0080-\U0010FFFF][\w:\u0080-\U0010FFFF-]*|\^\^{_IRI})?"
_BLANK = r"[ \t\r]*"
_STATEMENT = re.compile(
    rf"(?:{_IRI}|{_LABEL}){_BLANK}{_IRI}{_BLANK}(?:{_IRI}|{_LABEL}|({_TEXT}){_SUFFIX}){_BLANK}\.{_BLANK}(?:\#.*)?",
    re.ASCII | re.DOTALL,
)
_RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


def _statements(path: Path, *, first_types: bool) -> Graph:
    """The statements between vertices; with ``first_types``, those of rdf:type are the types of vertices."""
    graph = Graph()
    for line in path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        # Statements with literals need not be UTF-8, as they are left out.
        text = line.decode("utf-8", "surrogateescape").strip(" \t\r")
        if not text or text.startswith("#"):
            continue
        found = _STATEMENT.fullmatch(text)
        if found is None:
            raise UnreadableError(f"{text!r} is not a statement")
        subject, predicate, target = found[1] or found[2], found[3], found[4] or found[5]
        names = [_unescaped(each) for each in (subject, predicate, target, found[6], found[7]) if each]
        if target is None:
            continue
        if any("\udc80" <= each <= "\udcff" for name in names for each in name):
            raise UnreadableError("not UTF-8")
        if first_types and names[1] == _RDF_TYPE:
            graph.kinds.setdefault(names[0], names[2])
        else:
            graph.edges[names[1], names[0], names[2]] += 1
    if not graph.edges:
        raise UnreadableError("no edges")
    for ends in graph.edges:
        graph.kinds |= {end: graph.kinds.get(end, "entity") for end in ends[1:]}
    return graph


def _unescaped(text: str) -> str:
    """A term whose escapes of characters are replaced."""

    def character(found: re.Match[str]) -> str:
        if not (digits := found[1] or found[2]):
            return found[0]
        number = int(digits, 16)
        if 0xD800 <= number < 0xE000 or number > 0x10FFFF:
            raise UnreadableError(f"{found[0]} is not a character")
        return chr(number)

    return re.sub(r"\\(?:u(.{4})|U(.{8})|.)", character, text, flags=re.DOTALL)


# Inputs

_NEO4J = {
    "people.csv": (
        'personId:ID(Person),name,:LABEL\nkeanu,Keanu Reeves,Actor\ncarrie,"Moss, Carrie",Actor\nana,Ana,Guest\n'
    ),
    "films.csv": "filmId:ID(Film),title,year:int,:LABEL\ntt1,The Matrix,1999,Film;Old\ntt2,Reloaded,2003,Film\n",
    "roles.csv": (
        ":START_ID(Person),role,fee:float,:END_ID(Film),:TYPE\nkeanu,Neo,0.5,tt1,ACTED_IN\n"
        "carrie,Trinity,2,tt1,ACTED_IN\nana,fan,1e2,tt2,LIKES\nkeanu,Neo,0.5,tt1,ACTED_IN\n"
    ),
}
#: Statements with IRIs, blank nodes, escapes, comments, literals of all kinds, and vertices with several types.
STATEMENTS = (
    "# A graph\n<http://x/a> <http://x/knows> <http://x/b> .\n\n<http://x/b>\t<http://x/knows>  _:b.1 . # <c>\r\n"
    "_:b.1<http://x/knows><http://x/\\u00E9\\U0001F600>.\n<http://x/é😀> <http://x#knows> <http://x/b> .\n"
    '<http://x/a> <http://x/name> "A \\"q\\" \\u00e9."@en-US .\n_:b.1 <http://x/age> "7"^^<http://x/int> .\n'
    "<http://x/a> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://x/Person> .\n"
    "<http://x/b> <http://www.w3.org/1999/02/22-rdf-syntax-ns#\\u0074ype> <http://x/Dog> .\n"
    "<http://x/b> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://x/Person> .\n"
    "<http://x/c> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://x/Dog> .\n"
)
_NEPTUNE_FILES = {
    "nodes.csv": "~id,~label,name:String,age:Int\nv1,person,marko,29\nv2,person,vadas,27\nv3,software,lop,\n",
    "edges.csv": "~id,~from,~to,~label,weight:Double\ne1,v1,v2,knows,0.5\ne2,v1,v3,made,0.25\ne3,v2,v3,made,1\n",
}
_PAY = (
    "who,what,amount,at,fee,kind\nann,s1,5,2024-01-02T03:04:05,0.5,card\nbob,s2,7,2024-01-01T00:00:00,,cash\n"
    "ann,s1,,2024-01-03T10:00:00,2,card\neve,s3,2,,1e-3,\n"
)


def typed_inputs() -> Iterator[tuple[str, TypedInput]]:
    """Inputs by name."""
    yield from described_inputs()
    both = [f"DIR/{name}" for name in sorted(_NEO4J)]
    yield (
        "neo4j",
        TypedInput(
            _NEO4J, lambda folder: _declared(folder, "fee"), {"source": both, "columns": "fee as weight"}, ("weight",)
        ),
    )
    yield "neptune", TypedInput(_NEPTUNE_FILES, _declared, {"source": ["DIR/nodes.csv", "DIR/edges.csv"]})
    facts = "/m/a\t/likes\t/m/b\n/m/b\tknows\t/m/c d\n/m/a\t/likes\t/m/c d\n/m/a\tknows\t/m/a\n"
    triples: dict[str, Any] = {"source": "DIR/facts.tsv", "format": "triples"}
    yield "triples", TypedInput({"facts.tsv": facts}, lambda folder: _triples(folder / "facts.tsv"), triples)
    counted = "4\n0 1 0\n1 2 1\n12 0 1\n3 0 0\n"
    open_ke: dict[str, Any] = {"source": "DIR/train2id.txt", "format": "triples"}
    yield "openke", TypedInput({"train2id.txt": counted}, lambda folder: _open_ke(folder / "train2id.txt"), open_ke)
    iris = {"source": "DIR/g.nt"}
    yield (
        "ntriples",
        TypedInput({"g.nt": STATEMENTS}, lambda folder: _statements(folder / "g.nt", first_types=False), iris),
    )
    yield (
        "ntriples with types",
        TypedInput(
            {"g.nt": STATEMENTS},
            lambda folder: _statements(folder / "g.nt", first_types=True),
            iris | {"rdf_type": "first"},
        ),
    )
    columns = (
        "who,what,amount as weight else 1,at as time else 1970-01-01,fee as feature else 0,kind as label else none"
    )
    tables: dict[str, Any] = {
        "relations": {("user", "pays", "shop"): f"DIR/pay.csv:{columns}"},
        "vertices": {"user": "DIR/users.csv:id"},
        "ids": "names",
    }
    users = "id,more\nann,1\nbob,2\neve,3\nzoe,4\n"
    yield (
        "typed tables",
        TypedInput(
            {"pay.csv": _PAY, "users.csv": users},
            _payments,
            tables,
            ("weight", "time", "feature", "label"),
            by_space=True,
        ),
    )
    matrix = "%%MatrixMarket matrix coordinate real general\n% films\n4 3 4\n1 1 5\n3 2 4.5\n1 2 3\n4 3 1e1\n"
    rates: dict[str, Any] = {"relations": {("user", "rates", "film"): "DIR/ratings.mtx"}, "weights": True}
    yield (
        "rectangular mtx",
        TypedInput(
            {"ratings.mtx": matrix}, lambda folder: _matrix(folder / "ratings.mtx"), rates, ("weight",), by_space=True
        ),
    )
    konect: dict[str, Any] = {"relations": {("user", "rates", "film"): "DIR/out.ratings:1,2,3 as weight"}}
    yield (
        "konect bip",
        TypedInput(
            {"out.ratings": "% bip weighted\n% 4 3 3\n1 1 5\n2 1 4\n3 2 0.5\n1 3 1\n"},
            lambda folder: _konect(folder / "out.ratings"),
            konect,
            ("weight",),
            by_space=True,
        ),
    )
