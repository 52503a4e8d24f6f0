"""The first lines of a text file, and its layout: its byte order mark, its separator and its header."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.coding import without_suffix
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import BLOCK_BYTES, whole_lines
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VertexArray

#: Bytes of the rows at the beginning of a file that are looked at, up to the end of a line.
SAMPLE_BYTES: Final = 1 << 16
#: Rows of a sample, at least, unless they have more bytes.
_FEWEST_ROWS: Final = 4
_WIDE_BYTES: Final = 1 << 22
_MARK: Final = "\ufeff"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: Separators of files by their suffix.
_USUAL = {".csv": b",", ".tsv": b"\t"}
#: A number with a decimal comma; a field in double quotes, and such a number among bytes.
DECIMAL_COMMA: Final = re.compile(r"[-+]?\d+,\d+", re.ASCII)
_QUOTED, _DECIMAL = re.compile(rb'"(?:[^"]|"")*"'), re.compile(rb"\s*[-+]?\d+,\d+\s*")
#: Numbers with colons between them.
_NUMBERS = re.compile(rb"\d+(:[-+.\d]+)+")
#: A first line that names the separator; and a number with a sign between each three digits, perhaps with decimals.
_EXCEL = re.compile(r'"?sep=(.)"?', re.IGNORECASE | re.ASCII)
_GROUPED = re.compile(r"[-+]?\d{1,3}([ ,.'\u2019\u00a0\u202f])\d{3}(\1\d{3})*((?!\1)[.,]\d+)?", re.ASCII)
#: Maximum number of characters between fields.
_MOST_DELIMITER: Final = 8
#: A number with three decimals, or with a point that separates thousands.
_POINTED = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}", re.ASCII)
#: Digits of a count are fewer.
_COUNT_DIGITS: Final = 19
#: The separator of ASCII that no text has.
_UNIT = "\x1f"
#: Pairs of words that name the two ends of an edge, without what follows them in a column's name.
_PAIRS = frozenset({
    ("source", "target"), ("source", "destination"), ("source", "dest"), ("departure", "arrival"),
    ("src", "dst"), ("src", "dest"), ("src", "tgt"), ("from", "to"),
    ("head", "tail"), ("tail", "head"), ("start", "end"), ("sender", "receiver"), ("follower", "followee"),
    ("caller", "callee"), ("citing", "cited"), ("sender", "recipient"), ("payer", "payee"), ("subject", "object"),
    ("parent", "child"), ("child", "parent"), ("origin", "destination"), ("origin", "dest"), ("orig", "dest"),
    ("orig", "dst"), ("originator", "beneficiary"), ("orig", "bene"), ("predecessor", "successor"), ("ego", "alter"),
    ("row", "col"), ("row", "column"), ("follower", "followed"), ("truster", "trustee"), ("trustor", "trustee"),
    ("rater", "ratee"), ("voter", "votee"), ("donor", "recipient"), ("debtor", "creditor"), ("lender", "borrower"),
})  # fmt: skip
#: Pairs that name ends only next to a word for an id (``id1,id2``, ``start_station,end_station``): other columns also
#: come in such pairs.
_PAIRS_OF_IDS = frozenset({
    ("start", "end"), ("left", "right"), ("first", "second"), ("1", "2"), ("a", "b"), ("x", "y"), ("u", "v"),
    ("i", "j"), ("pu", "do"), ("pickup", "dropoff"), ("debit", "credit"), ("input", "output"),
})  # fmt: skip
#: Pairs that may name ends, wherever they stand: ``ccode1,ccode2``, ``exporter,importer``. The user is asked.
_MARKS = _PAIRS_OF_IDS - {("x", "y")} | frozenset({
    ("o", "d"), ("q", "s"), ("query", "subject"), ("exporter", "importer"), ("reporter", "partner"),
    ("buyer", "seller"), ("winner", "loser"), ("home", "away"), ("giver", "receiver"), ("host", "guest"),
})  # fmt: skip
_END_WORDS = frozenset(word for pair in _PAIRS | _PAIRS_OF_IDS | _MARKS for word in pair)
#: Words for an id, next to a word for an end.
_ID_WORDS = frozenset({
    "id", "ids", "idx", "index", "key", "code", "node", "vertex", "user", "account", "acct", "station", "stop",
    "place", "location", "airport", "city", "person", "entity", "author", "paper", "gene", "protein", "item",
    "address", "ip", "wallet", "iban", "number", "phone",
})  # fmt: skip
#: Words for the id or the name of a thing, next to a word for the thing: ``airline,airline_id``.
_OWN_WORDS = frozenset({"id", "ids", "code", "key", "name", "title"})
#: Words for properties of an end: ``valid_from``, ``source_type``, ``dest_lat``.
_NO_ID_WORDS = frozenset({
    "time", "date", "datetime", "at", "year", "month", "day", "hour", "ts", "timestamp", "valid", "effective",
    "lat", "latitude", "lon", "lng", "long", "longitude", "x", "y", "z", "amount", "balance", "price", "value",
    "weight", "count", "type", "label", "class", "category", "currency", "score", "degree", "port", "organism", "taxon",
    "taxid", "species",
})  # fmt: skip
_LONG_NO_ID_WORDS = tuple(word for word in _NO_ID_WORDS if len(word) > 5)
#: Name of a column that pandas gives to an index without a name, in files of other kinds than text.
PANDAS_INDEX: Final = "__index_level_0__"
#: Names of a column that pandas, Arrow and others give to the numbers of rows.
_INDEXES: Final = frozenset({"", "unnamed: 0", PANDAS_INDEX})
#: Words of the name of a column, at most.
_MOST_TOKENS: Final = 8
#: The words of a column's name, between signs and where lower case letters or digits begin or end.
_TOKENS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_MARKED: Final = re.compile(r"([A-Z]{2,})([AB])")
#: Words that may follow or precede such a word: FromNodeId, source_id, src_node.
_EXTRAS = re.compile(r"(node|vertex|user|id|name|idx|index)+$")


def is_count(field: str) -> bool:
    """Whether a field is a whole number of decimal digits that int64 holds.

    >>> is_count("42"), is_count("4²"), is_count("9" * 5000)
    (True, False, False)
    """
    return field.isascii() and field.isdigit() and len(field) < _COUNT_DIGITS


def declared_names(names: Sequence[str], name: str) -> list[int]:
    """Numbers of the columns with a name, from 0; if there are none, of the columns whose names end with a type.

    >>> declared_names(["~id", "amount:float", "since:datetime"], "amount")
    [1]
    """
    exact = [number for number, each in enumerate(names) if each == name]
    return exact or [number for number, each in enumerate(names) if name and each.partition(":")[0] == name]


def separator_of(delimiter: str) -> bytes:
    """The bytes between fields that a delimiter stands for; empty for an empty one.

    Args:
        delimiter: one or more characters, or ``tab``.

    Raises:
        InputError: a file cannot have it between fields.
    """
    is_odd = not delimiter.isascii() or any(map(str.isalnum, delimiter))
    if delimiter != "tab" and (len(delimiter) > _MOST_DELIMITER or is_odd):
        raise InputError(f"delimiter {delimiter!r}: expected up to {_MOST_DELIMITER} characters such as ';', or tab")
    return b"\t" if delimiter == "tab" else delimiter.encode()


@dataclass(frozen=True)
class Stated:
    """Facts that the user states about text files.

    Attributes:
        header: whether the first row names the columns; None if the user did not say.
        columns: names of the columns of sources, targets and values, or their numbers from 1; none for the first ones.
        separator: separator of fields; empty if the first row decides.
        comment: the sign that begins comments, ``none``, or empty for ``#`` and ``%`` before the first row.
        valued: whether edges have weights or times.
        decimal: the character before the decimals of values.
        extra_columns: further columns are ignored rather than refused.
        are_edges: each row has at least two fields.
    """

    header: bool | None = None
    columns: tuple[str, ...] = ()
    separator: bytes = b""
    comment: str = ""
    valued: bool = False
    decimal: str = "."
    extra_columns: bool = False
    are_edges: bool = False

    @property
    def by_number(self) -> bool:
        """Whether the columns are chosen by their numbers."""
        return bool(self.columns) and all(map(is_count, self.columns))

    def to_json(self) -> dict[str, Any]:
        """The stated header, decimals and separator."""
        found: dict[str, Any] = {} if self.header is None else {"header": self.header}
        found |= {} if self.decimal == "." else {"decimal": self.decimal}
        return found | ({"delimiter": self.separator.decode()} if self.separator else {})


#: What a user says who states nothing.
UNSTATED: Final = Stated()


@dataclass(frozen=True)
class Row:
    """A row of a text file.

    Attributes:
        line: number of its line, from 1.
        start, stop: where the line begins and ends in the file's contents, in bytes.
        text: the line, without blanks around it.
        fields: the fields of the line.
    """

    line: int
    start: int
    stop: int
    text: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """The first rows of a text file.

    Attributes:
        comments: lines before the first row that begin with a comment sign.
        rows: the rows, without lines that are comments.
        is_whole: the file has no other rows.
        separator: separator of fields.
    """

    comments: tuple[str, ...]
    rows: tuple[Row, ...]
    is_whole: bool
    separator: bytes

    @property
    def commented_titles(self) -> tuple[str, ...]:
        """Names of columns in the last comment before the rows, if it has a field per column and no number."""
        titles = fields_of(self.comments[-1].lstrip("#% "), self.separator) if self.comments and self.rows else ()
        is_header = bool(titles) and len(titles) == len(self.rows[0].fields) and not any(map(is_number, titles))
        return titles if is_header else ()

    @classmethod
    def of(cls, file: SourceFile, stated: Stated) -> Sample:
        """Read the first lines of a file.

        Raises:
            InputError: the file cannot be read.
        """
        signs = "" if stated.comment == "none" else stated.comment or "#%"
        separator = stated.separator
        comments: list[str] = []
        rows: list[Row] = []
        number, read, is_whole = 0, 0, True
        for start, block in whole_lines(file, block_bytes=SAMPLE_BYTES):
            offset = start
            for line in block.tobytes().split(b"\n")[:-1]:
                number, begin, offset = number + 1, offset, offset + len(line) + 1
                text = line.decode("utf-8", "replace").removeprefix(_MARK if number == 1 else "")
                plain = text.strip()
                if not plain:
                    continue
                # A sign after the first row begins a comment only if the user says so.
                if plain[0] in signs and (stated.comment or not rows):
                    comments.append(plain)
                    continue
                # Excel reads such a line, and other programs write it for Excel.
                if not rows and (mark := _EXCEL.fullmatch(text.strip(" \r"))):
                    separator = separator or mark[1].encode()
                    continue
                separator = separator or likely_separator(file.location, plain.encode(), stated.decimal)
                rows.append(Row(number, begin, offset, plain, fields_of(text, separator)))
            # Comments may be longer than the sample.
            read += len(block) if rows else 0
            if read > SAMPLE_BYTES // 2 and (len(rows) >= _FEWEST_ROWS or read > _WIDE_BYTES):
                is_whole = False
                break
        found = b"" if stated.separator else _other_separator(rows, separator, are_edges=stated.are_edges)
        if found:
            separator, rows = found, [replace(row, fields=fields_of(row.text, found)) for row in rows]
        return cls(tuple(comments), tuple(rows), is_whole, separator or likely_separator(file.location, b""))


def last_rows(file: SourceFile, sample: Sample) -> tuple[Row, ...]:
    """The last rows of a local, uncompressed file, without their numbers; none if the sample has all rows."""
    found: list[Row] = []
    if sample.is_whole or not file.is_seekable or file.size is None:
        return ()
    for start, block in whole_lines(file, max(0, file.size - SAMPLE_BYTES), block_bytes=SAMPLE_BYTES):
        offset = start
        for line in block.tobytes().split(b"\n")[:-1]:
            begin, offset = offset, offset + len(line) + 1
            text = line.decode("utf-8", "replace")
            if text.strip():
                found.append(Row(0, begin, offset, text.strip(), fields_of(text, sample.separator)))
    return tuple(found)


def _other_separator(rows: Sequence[Row], found: bytes, *, are_edges: bool) -> bytes:
    """Separator of rows that the separator of the first row does not divide into fields; empty if there is none.

    Args:
        found: the separator of the first row.
    """
    if _have_colons(rows, are_edges=are_edges):
        return b":"
    if found == b" " and (mark := _between_words(rows)):
        return mark
    if found == b"|" and all("||" in row.text and "|" not in row.text.replace("||", "") for row in rows):
        return b"||"
    if not are_edges or any('"' in row.text for row in rows):
        return b""
    if found == b"\t":
        return b" " if _are_mixed(rows) else b""
    widths = {len(row.text.split()) if len(row.fields) == 1 else 0 for row in rows}
    return b" " if len(widths) == 1 and min(widths) > 1 else b""


def _are_mixed(rows: Sequence[Row]) -> bool:
    """Whether numbers of edges have tabs or blanks between them, as in files of KONECT."""
    numbers = [row.text.split() for row in rows]
    is_divided = all(len(row.fields) > 1 and " " not in row.fields[0] + row.fields[1] for row in rows)
    is_table = len({len(each) for each in numbers}) == 1 and len(numbers[0]) > 1
    return not is_divided and is_table and all(is_number(word) for each in numbers for word in each)


def _between_words(rows: Sequence[Row]) -> bytes:
    """The sign with equal counts in all rows, whose numbers of words differ; empty if there is none."""
    if len({len(row.text.split()) for row in rows}) < 2:
        return b""
    counts = {mark: {row.text.count(mark) for row in rows} for mark in ("::", ";", "|")}
    return next((mark.encode() for mark, found in counts.items() if len(found) == 1 and min(found)), b"")


def _have_colons(rows: Sequence[Row], *, are_edges: bool) -> bool:
    """Whether rows that are one field each have equally many colons, which are between fields.

    Names may have a prefix, as GO:0001, and addresses have slashes after the colon. So all first fields differ; edges,
    which need two fields, have at least two.
    """
    if len(rows) < 2 or any(len(row.fields) != 1 or "://" in row.text for row in rows):
        return False
    fields = [row.text.split(":") for row in rows]
    is_table = len({len(each) for each in fields}) == 1 and len(fields[0]) > 1 and all(each[0] for each in fields)
    num_firsts = len({each[0] for each in fields})
    return is_table and (num_firsts > 1 if are_edges else num_firsts == len(fields))


def fields_of(line: str, separator: bytes) -> tuple[str, ...]:
    """Split a line like :func:`split_fields`, but a line without fields is one field."""
    try:
        return tuple(split_fields(line, separator))
    except csv.Error:
        # A carriage return within a line, or a field of megabytes, which the reader of the rows reports.
        return (line,)


def row_blocks(
    file: SourceFile, first_row: int, start: int = 0, stop: int | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Like :func:`gnnloom.pipeline.sources.reading.lines.whole_lines`, but without byte order mark and first lines.

    Args:
        first_row: offset of the line with which the rows begin.

    Yields:
        Offset of a block in the decompressed contents, and the block, (num_bytes,) uint8; it may be empty.
    """
    for offset, block in whole_lines(file, start, stop, block_bytes):
        mark = 0 if offset else _mark_bytes(block)
        skipped = min(max(mark, first_row - offset), len(block))
        yield offset + skipped, block[skipped:]


def _mark_bytes(block: NDArray[np.uint8]) -> int:
    """Length of the byte order mark at the start of a file; 0 if there is none."""
    return len(_BYTE_ORDER_MARK) if block[: len(_BYTE_ORDER_MARK)].tobytes() == _BYTE_ORDER_MARK else 0


def likely_separator(location: str, line: bytes, decimal: str = ".") -> bytes:
    """Likely separator of a file's fields; a space stands for runs of blanks.

    The comma of a ``.csv`` and the tab of a ``.tsv`` do if the first line has one. Otherwise the separator is the first
    of the following that the first line has outside of double quotes: the control character 1, a tab, a comma that is
    not part of a number in other fields, a bar between fields, in a line without blanks a semicolon or two colons, or a
    colon between numbers; else blanks, or what is usual for the suffix if the line may be one field.

    Args:
        line: the first line that is neither blank nor a comment.
        decimal: the character before the decimals of numbers, if it is known.
    """
    usual = _USUAL.get(without_suffix(location)[-4:].lower(), b"")
    text = _QUOTED.sub(b"", line.strip())
    is_one = len(text.split()) <= 1
    # A comma is a decimal one if all are within numbers that something else separates.
    others = text.split(b";") if b";" in text else text.split()
    is_decimal = decimal == "," or (
        len(others) > 1 and all(_DECIMAL.fullmatch(each) for each in others if b"," in each)
    )
    present = {
        # Hive writes this character. No other text has it, but files of bytes do.
        b"\x01": b"\x01" in text and b"\0" not in text,
        # NCBI puts a tab on both sides of a bar.
        b"\t": b"\t" in text and b"\t|\t" not in text,
        b",": b"," in text and not is_decimal,
        b"|": b"|" in text and (is_one or b" | " in text or b"\t|\t" in text),
        b";": b";" in text and (is_one or is_decimal or usual == b","),
        b"::": b"::" in text and is_one,
        b":": _NUMBERS.fullmatch(text) is not None,
    }
    found = [separator for separator in (usual, *present) if separator and present[separator]]
    # Numbers with blanks between them are not one field, whatever the file is called.
    is_one = is_one or not all(is_number(each.decode("latin-1")) for each in text.split())
    return found[0] if found else (usual if is_one else b"") or b" "


def split_fields(line: str, separator: bytes) -> list[str]:
    """The fields of a line, without quotes and blanks around them.

    Args:
        separator: see :func:`likely_separator`.

    Raises:
        csv.Error: a field is too long.
    """
    if separator == b" ":
        text, mark = line.replace("\t", " ").strip(), " "
    else:
        text, mark = line.strip("\r\n" if separator == b"\t" else " \t\r\n"), separator.decode("latin-1")
        if len(separator) > 1:
            text, mark = text.replace(mark, _UNIT), _UNIT
    fields = next(csv.reader([text], delimiter=mark, skipinitialspace=True), [])
    return [field.strip(" \t\r\n") for field in fields]


def is_number(field: str) -> bool:
    """Whether Python reads a field as a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def is_grouped(field: str) -> bool:
    """Whether a field is a number with separators of thousands, or may be one.

    >>> [is_grouped(field) for field in ("1,234", "1.234,50", "1 234", "1.234", "12,5")]
    [True, True, True, False, False]
    """
    return _GROUPED.fullmatch(field) is not None and not is_number(field)


def doubt_of_points(separator: bytes, cells: Sequence[str]) -> str:
    """A sentence on numbers between semicolons whose points may separate thousands; empty for other cells.

    >>> doubt_of_points(b";", ["1.500", "12.750"]), doubt_of_points(b";", ["1.500", "0.750"])
    ("'1.500' is read as 1.5; if points separate thousands, remove them", '')
    """
    known = [cell for cell in cells if cell]
    if separator != b";" or not known or not all(map(_POINTED.fullmatch, known)):
        return ""
    return f"{known[0]!r} is read as {float(known[0]):g}; if points separate thousands, remove them"


def has_names(cells: Sequence[str], array: VertexArray) -> bool:
    """Whether cells of a line name columns: one is neither empty nor a number, nor a word that the array knows."""
    return any(cell and not is_number(cell) and cell.lower() not in array.words for cell in cells)


def names_ids(cell: str) -> bool:
    """Whether the name of a column ends like a name of ids: node, user_id, Index."""
    return _EXTRAS.search(re.sub(r"[^a-z]", "", cell.lower())) is not None


def numbers_rows(name: str) -> bool:
    """Whether a column of this name numbers the rows, as the index of a data frame does in a file."""
    return name.lower() in _INDEXES


def names_ends(first: str, second: str) -> bool:
    """Whether two names of columns name the ends of an edge, as ``source`` and ``target`` do.

    >>> names_ends("FromNodeId", "ToNodeId"), names_ends("account_from", "account_to"), names_ends("user", "item")
    (True, True, False)
    """
    return (_word(first), _word(second)) in _PAIRS or find_ends((first, second)) == [(0, 1)]


def find_ends(names: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of columns that a header names as source and target of an edge, in any position.

    >>> find_ends(["txn", "sender", "receiver", "amount"]), find_ends(["dst", "src"]), find_ends(["id", "start", "end"])
    ([(1, 2)], [(1, 0)], [])

    Returns:
        Numbers of the columns from 0, of the source first. Pairs of columns that are called ids, if there are some.
    """
    columns = _columns_by_end(tuple(names))
    found = set[tuple[int, int]]()
    for rest, words in columns.items():
        for first, second in _PAIRS if _ID_WORDS.isdisjoint(rest) else _PAIRS | _PAIRS_OF_IDS:
            is_clear = (first, second) not in _PAIRS_OF_IDS or not _ID_WORDS.isdisjoint(rest)
            if is_clear and first in words and second in words:
                found.add((words[first], words[second]))
    for columns_of_word in _columns_by_word(names).values():
        if len(columns_of_word) == 2:
            found.add((columns_of_word[0], columns_of_word[1]))
    # Head or tail, parent or child may be the source: the first column is.
    pairs = sorted(pair for pair in found if pair[0] < pair[1] or pair[::-1] not in found)
    called_ids = [pair for pair in pairs if all(names_ids(names[end]) for end in pair)]
    return called_ids or pairs


def marked_ends(names: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of columns whose names differ only by a mark such as 1 and 2, and so may name the ends of an edge.

    >>> marked_ends(["year", "ccode1", "ccode2"]), marked_ends(["t", "i", "j"]), marked_ends(["id", "lat1", "lat2"])
    ([(1, 2)], [(1, 2)], [])
    """
    found = [
        (words, pair)
        for words in _columns_by_end(tuple(names)).values()
        for pair in _MARKS
        if words.keys() >= set(pair)
    ]
    pairs = sorted({(words[first], words[second]) for words, (first, second) in found})
    # In x1, x2 and x3, the marks count columns.
    called = [name.lower() for name in names]
    return [pair for pair in pairs if "2" not in called[pair[1]] or called[pair[1]].replace("2", "3") not in called]


def columns_by_thing(names: Sequence[str]) -> list[tuple[int, ...]]:
    """Numbers of the columns with the id and the name of each thing that a header calls by an id; ids come first.

    >>> columns_by_thing(["user", "user_id", "item_id", "itemTitle", "shop_id", "age"]), columns_by_thing(["id"])
    ([(1, 0), (2, 3), (4,)], [])
    """
    columns: dict[tuple[str, ...], list[tuple[bool, int]]] = {}
    for number, name in enumerate(names):
        tokens = [token.lower() for token in _TOKENS.findall(name)]
        thing = tuple(token for token in tokens if token not in _OWN_WORDS)
        if 0 < len(thing) <= _MOST_TOKENS:
            columns.setdefault(thing, []).append(("id" not in tokens, number))
    found = (sorted(group) for group in columns.values())
    return [tuple(number for _, number in group) for group in found if not group[0][0]]


def related_columns(names: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of columns with ids of one kind, as the end of the second one's name is the name of the first.

    >>> related_columns(["tweet_id", "user_id", "retweeted_user_id"]), related_columns(["id", "order_id"])
    ([(1, 2)], [])
    """
    tokens = [tuple(token.lower() for token in _TOKENS.findall(name)) for name in names]
    known = {each: number for number, each in enumerate(tokens) if not _OWN_WORDS.issuperset(each)}
    return [
        (known[each[at:]], number)
        for number, each in enumerate(tokens)
        for at in range(1, len(each) if len(each) <= _MOST_TOKENS else 0)
        if each[at:] in known
    ]


@lru_cache(maxsize=8)
def _columns_by_end(names: tuple[str, ...]) -> dict[tuple[str, ...], dict[str, int]]:
    """Number of the first column with each word for an end, by the other words of the column's name, if two have these.

    A cell with many words is not a name of ids, and comparing its words takes quadratic time. Names are looked at
    several times, and there may be thousands.
    """
    columns: dict[tuple[str, ...], dict[str, int]] = {}
    for number, name in enumerate(names):
        # In capital letters, nothing else separates the mark: ENTITYA, IDB.
        marked = _MARKED.fullmatch(name)
        tokens = [token.lower() for token in (marked.groups() if marked is not None else _TOKENS.findall(name))]
        ends = [at for at, token in enumerate(tokens) if token in _END_WORDS] if len(tokens) <= _MOST_TOKENS else []
        for at in ends:
            rest = (*tokens[:at], "", *tokens[at + 1 :])
            if not any(map(_is_no_id, rest)):
                columns.setdefault(rest, {}).setdefault(tokens[at], number)
        if (word := _word(name)) in _END_WORDS:
            columns.setdefault((), {}).setdefault(word, number)
    return {rest: words for rest, words in columns.items() if len(words) > 1}


def _columns_by_word(names: Sequence[str]) -> dict[str, list[int]]:
    """Numbers of the columns that are called by one word for an id; pandas adds ``.1`` to the second name."""
    found: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        word = name.strip().lower().removesuffix(".1")
        if word in _ID_WORDS:
            found.setdefault(word, []).append(number)
    return found


def _is_no_id(token: str) -> bool:
    """Whether a word names a property of an end and not its id: ``balance``, or ``newbalance``."""
    return token in _NO_ID_WORDS or token.endswith(_LONG_NO_ID_WORDS)


def _word(field: str) -> str:
    letters = re.sub(r"[^a-z]", "", field.lower())
    return _EXTRAS.sub("", letters)
