"""Small inputs of graphs with types, and simple readers of them that share no code with gnnloom's.

A reader takes a file literally: the csv module splits lines, headers name columns, words are compared as they are. It
gives a graph as sets that do not depend on how types are called, or nothing if it cannot make sense of the file.
"""

from __future__ import annotations

import csv
import json
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import gnnloom
from gnnloom.storage import TypedGraph

#: Cells without a value.
_MISSING = {"", "na", "n/a", "<na>", "nan", "null", "none", "?", "\\n"}
_RETURN = "\ue000"
_WORD = re.compile(r"[^:]*:(ID|START_ID|END_ID|TYPE|LABEL)(?:\(([^)]*)\))?(?:\{.*\})?", re.IGNORECASE)
_NEPTUNE = {"~id": "ID", "~from": "START_ID", "~to": "END_ID", "~label": "LABEL"}


class UnreadableError(Exception):
    """The simple reader cannot make sense of a file."""


@dataclass
class Graph:
    """A graph without names of types.

    Attributes:
        kinds: the type of each vertex, which stands for the vertices that share it.
        edges: how often each edge occurs: word of the relation, both ends, values.
    """

    kinds: dict[Any, Any] = field(default_factory=dict)
    edges: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def alike(self) -> tuple[set[frozenset[Any]], Counter[tuple[Any, ...]]]:
        """What two equal graphs share: sets of vertices of one type, and edges."""
        found: dict[Any, set[Any]] = {}
        for vertex, kind in self.kinds.items():
            found.setdefault(kind, set()).add(vertex)
        return {frozenset(each) for each in found.values()}, self.edges


@dataclass(frozen=True)
class TypedInput:
    """An input that is valid before it is damaged.

    Attributes:
        files: text by name.
        read: the simple reader.
        how: arguments of ``gnnloom.ingest``, in whose texts ``DIR`` stands for the folder.
        values: arrays of edges that are compared.
        by_space: vertices are called by their types, too, as ids of several types are alike.
    """

    files: Mapping[str, str]
    read: Callable[[Path], Graph]
    how: Mapping[str, Any]
    values: tuple[str, ...] = ()
    by_space: bool = False

    def write(self, folder: Path) -> None:
        """Write the files into a folder."""
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def compare(self, folder: Path) -> None:
        """Store the files of a folder as a graph, and compare it with the simple reader's.

        Raises:
            GnnloomError: gnnloom refuses the files.
            AssertionError: gnnloom's graph differs.
        """
        with tempfile.TemporaryDirectory() as catalog:
            how = {"merge": "keep", "workers": 0, "catalog": catalog, **_within(self.how, folder)}
            dataset = gnnloom.ingest("g", **how)
            found = self._stored(dataset.typed_graph())
        try:
            wanted = self.read(folder)
        except (UnreadableError, IndexError, ValueError, csv.Error) as error:
            raise AssertionError(
                f"the simple reader refuses the files ({error}), and gnnloom stores {found}"
            ) from error
        if found.alike() != wanted.alike():
            raise AssertionError(f"stored {found}, the files have {wanted}")

    def _stored(self, graph: TypedGraph) -> Graph:
        found, names = Graph(), {}
        for each in graph.types:
            ids = graph.ids(each.name)
            own = ids.original_name() if ids.has_names else [str(number) for number in ids.original_id()]
            names[each.name] = [(each.name, vertex) if self.by_space else vertex for vertex in own]
            found.kinds |= dict.fromkeys(names[each.name], each.name)
        for relation in graph.relations:
            first = 0
            for sources, targets, single in relation.edge_blocks():
                columns = [self._column(relation, name, single, first, len(sources)) for name in self.values]
                first += len(sources)
                word = relation.facts.get("word", relation.name)
                for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
                    ends = names[relation.source.name][source], names[relation.target.name][target]
                    found.edges[word, *ends, *(column[number] for column in columns)] += 1
        return found

    @staticmethod
    def _column(relation: Any, name: str, single: Any, first: int, count: int) -> list[Any]:
        if name not in relation.edge_columns:
            return [float(each) for each in single]
        values = relation.column(name, first, first + count)
        if name == "label":
            return [relation.classes[each] if relation.classes else str(each) for each in values]
        if name == "time" and relation.time_unit:
            return [int(each) for each in values.astype(f"M8[{relation.time_unit}]").astype("M8[us]").astype(np.int64)]
        return [float(each) for each in values.reshape(count)]


def _within(value: Any, folder: Path) -> Any:
    """Arguments with the folder in their texts."""
    if isinstance(value, Mapping):
        return {key: _within(each, folder) for key, each in value.items()}
    if isinstance(value, list):
        return [_within(each, folder) for each in value]
    return value.replace("DIR", str(folder)) if isinstance(value, str) else value


# Simple readers


def _rows(path: Path, between: str = ",") -> list[list[str]]:
    """The rows of a file that are not blank."""
    # The csv module takes a return within a line for its end.
    lines = [line.rstrip("\r").replace("\r", _RETURN) for line in _lines(path)]
    found = [next(csv.reader([line], delimiter=between), []) for line in lines]
    return [[cell.strip(" \t").replace(_RETURN, "\r") for cell in row] for row in found if "".join(row).strip(" \t")]


def _pairs(path: Path) -> list[list[str]]:
    """The rows of a file of edges without a header, in which ``#`` begins a comment."""
    return [row for row in _rows(path) if not row[0].startswith("#")]


def _blanks(line: str) -> list[str]:
    """The cells of a line between blanks."""
    return [cell for cell in re.split(r"[ \t\r]+", line) if cell]


def _lines(path: Path) -> list[str]:
    """The lines of a file, with bytes that are not UTF-8 as surrogates."""
    return path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")


def _float32(cell: str, fill: float | None = None) -> float:
    if cell.lower() in _MISSING:
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
        header, *rows = _rows(path)
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
    if any(cell.lower() in _MISSING for _, cell in kinds) or not all(word for word, *_ in edges):
        raise UnreadableError("a cell is empty")
    found = Counter((word, source[1], target[1], *values) for word, source, target, *values in edges)
    return Graph({name: label for (_, name), label in kinds.items()}, found)


def _triples(path: Path) -> Graph:
    graph = Graph()
    for row in _rows(path, "\t"):
        if len(row) != 3 or any(cell.lower() in _MISSING for cell in row):
            raise UnreadableError("not a triple")
        head, relation, tail = row
        graph.edges[relation, head, tail] += 1
        graph.kinds |= {head: "entity", tail: "entity"}
    return graph


def _open_ke(path: Path) -> Graph:
    graph, lines = Graph(), [_blanks(line) for line in _lines(path)]
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
    header, *rows = _rows(folder / "pay.csv")
    (first, *_), *users = _rows(folder / "users.csv")
    listed = {row[0] for row in users}
    if first != "id":
        raise UnreadableError("another column")
    graph, at = Graph(), {name: header.index(name) for name in header}
    graph.kinds = {("user", name): "user" for name in listed}
    for row in rows:
        who, what, kind = row[at["who"]], row[at["what"]], row[at["kind"]]
        if who not in listed or {who.lower(), what.lower()} & _MISSING:
            raise UnreadableError("an end is not listed, or missing")
        values = (
            _float32(row[at["amount"]], 1.0),
            _micros(row[at["at"]]),
            _float32(row[at["fee"]], 0.0),
            "none" if kind.lower() in _MISSING else kind,
        )
        graph.kinds["shop", what] = "shop"
        graph.edges["pays", ("user", who), ("shop", what), *values] += 1
    return graph


def _micros(cell: str) -> int:
    if cell.lower() in _MISSING:
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
    graph, lines = Graph(), _lines(path)
    # The banner is Latin-1.
    banner, *kind = lines[0].replace("\udca0", " ").lower().split()
    if banner.lstrip("%") != "matrixmarket" or kind != ["matrix", "coordinate", "real", "general"]:
        raise UnreadableError("another header")
    # Numbers may have commas or semicolons between them as well.
    cells = [re.sub("[,;]", " ", line).split() for line in lines[1:] if not line.lstrip().startswith("%")]
    rows = [row for row in cells if row]
    height, width, count = (_whole(cell) for cell in rows[0])
    if count != len(rows) - 1 or height == width:
        raise UnreadableError("another number of entries")
    graph.kinds = {("user", str(each)): "user" for each in range(width)}
    graph.kinds |= {("film", str(each)): "film" for each in range(height)}
    for row, column, value in rows[1:]:
        i, j = _whole(row) - 1, _whole(column) - 1
        if not (0 <= i < height and 0 <= j < width):
            raise UnreadableError("beyond the matrix")
        graph.edges["rates", ("user", str(j)), ("film", str(i)), _float32(value)] += 1
    return graph


def _konect(path: Path) -> Graph:
    rows = [_blanks(line) for line in _lines(path) if line.strip(" \t\r") and line.lstrip(" \t")[0] not in "%#"]
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
        return [str(_whole(cell)) for cell in cells]
    except UnreadableError:
        if 2 * sum(map(str.isdigit, set(cells))) > len(set(cells)) or any(cell.lower() in _MISSING for cell in cells):
            raise
        return cells


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _ogb(raw: Path) -> Graph:
    types, counts = _rows(raw / "num-node-dict.csv")
    sizes = dict(zip(types, map(int, counts), strict=True))
    graph = Graph({(name, str(each)): name for name, count in sizes.items() for each in range(count)})
    for head, word, tail in _rows(raw / "triplet-type-list.csv"):
        folder = raw / "relations" / f"{head}___{word}___{tail}"
        rows, count = _pairs(folder / "edge.csv"), _lines(folder / "num-edge-list.csv")
        if [line.strip(" \t\r") for line in count if line.strip(" \t\r")] != [str(len(rows))]:
            raise UnreadableError("another number of edges")
        for source, target in rows:
            i, j = _whole(source), _whole(target)
            if i >= sizes[head] or j >= sizes[tail]:
                raise UnreadableError("beyond its type")
            graph.edges[word, (head, str(i)), (tail, str(j))] += 1
    return graph


#: A description in JSON of two relations, one of them in two chunks.
_CHUNKED = {
    "metadata.json": json.dumps(
        {
            "node_type": ["author", "paper"],
            "num_nodes_per_chunk": [[2, 1], [2]],
            "edge_type": ["author:writes:paper", "paper:cites:paper"],
            "num_edges_per_chunk": [[2, 1], [2]],
            "edges": {
                "author:writes:paper": {
                    "format": {"name": "csv", "delimiter": ","},
                    "data": ["writes-0.csv", "writes-1.csv"],
                },
                "paper:cites:paper": {"format": {"name": "csv", "delimiter": ","}, "data": ["cites.csv"]},
            },
        }
    ),
    "writes-0.csv": "0,0\n1,0\n",
    "writes-1.csv": "2,1\n",
    "cites.csv": "1,0\n0,1\n",
}


def _chunked(folder: Path) -> Graph:
    content = json.loads((folder / "metadata.json").read_text(encoding="utf-8-sig"))
    sizes = dict(zip(content["node_type"], map(sum, content["num_nodes_per_chunk"]), strict=True))
    graph = Graph({(name, str(each)): name for name, count in sizes.items() for each in range(count)})
    for number, ends in enumerate(content["edge_type"]):
        head, word, tail = map(str.strip, ends.split(":"))
        stated = content["num_edges_per_chunk"][number] if "num_edges_per_chunk" in content else None
        chunks = [_pairs(folder / name) for name in content["edges"][ends]["data"]]
        if stated is not None and stated != [len(rows) for rows in chunks]:
            raise UnreadableError("another number of edges")
        for source, target in (row for rows in chunks for row in rows):
            i, j = _whole(source), _whole(target)
            if i >= sizes[head] or j >= sizes[tail]:
                raise UnreadableError("beyond its type")
            graph.edges[word, (head, str(i)), (tail, str(j))] += 1
    return graph


def _whole(cell: str) -> int:
    found = re.fullmatch(r'"?(\d+)(?:\.0*)?"?', cell, re.ASCII)
    if found is None or int(found[1]) >= 1 << 63:
        raise UnreadableError(f"{cell!r} is not an id")
    return int(found[1])


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
_OGB = {
    "raw/num-node-dict.csv": "author,paper\n4,3\n",
    "raw/triplet-type-list.csv": "author,writes,paper\npaper,cites,paper\n",
    "raw/relations/author___writes___paper/edge.csv": "0,0\n1,0\n2,2\n1,0\n",
    "raw/relations/author___writes___paper/num-edge-list.csv": "4\n",
    "raw/relations/paper___cites___paper/edge.csv": "0,1\n1,2\n",
    "raw/relations/paper___cites___paper/num-edge-list.csv": "2\n",
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
    yield "ogb with types", TypedInput(_OGB, lambda folder: _ogb(folder / "raw"), {"source": "DIR"}, by_space=True)
    yield "chunks", TypedInput(_CHUNKED, _chunked, {"source": "DIR"}, by_space=True)
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
