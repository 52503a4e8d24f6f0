"""Recognizes a first line that names the columns of a text file of edges."""

from __future__ import annotations

import csv
import re

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.text_layout import first_data_line, is_number, separator_of
from gnnloom.storage.errors import InputError

#: Pairs of words that name the two ends of an edge, without what follows them in a column's name.
_PAIRS = frozenset(
    {
        ("source", "target"),
        ("source", "destination"),
        ("src", "dst"),
        ("src", "dest"),
        ("src", "tgt"),
        ("from", "to"),
        ("head", "tail"),
        ("tail", "head"),
        ("start", "end"),
        ("sender", "receiver"),
        ("follower", "followee"),
        ("caller", "callee"),
        ("citing", "cited"),
    }
)
#: What may follow or precede such a word: FromNodeId, source_id, src_node.
_EXTRAS = re.compile(r"(node|vertex|user|id|name|idx|index)+$")


def begins_with_header(file: SourceFile, weights: bool) -> bool:
    """Whether the first line that is not a comment names the columns, as far as that is certain.

    It is if its first two fields are a pair of words such as ``source,target``. With weights, it also is if the third
    field is not a number and the first two are not both numbers: such a line is not an edge.
    """
    try:
        line = first_data_line(file).decode("utf-8", "replace").strip()
        separator = chr(separator_of(file))
    except InputError:
        # A file that cannot be read is reported by whoever reads its edges.
        return False
    try:
        fields = line.split() if separator == " " else next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        # Such as a carriage return within a line, or a field of megabytes: no names of columns.
        return False
    if len(fields) < 2:
        return False
    first, second, *others = (field.strip().strip('"') for field in fields)
    if (_word(first), _word(second)) in _PAIRS:
        return True
    return weights and bool(others) and not is_number(others[0]) and not (first.isdigit() and second.isdigit())


def _word(field: str) -> str:
    letters = re.sub(r"[^a-z]", "", field.lower())
    return _EXTRAS.sub("", letters)
