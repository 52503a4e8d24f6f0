"""Finds out whether a text file of edges says that they have no direction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.text_layout import Sample
from gnnloom.storage.errors import InputError

#: The direction of an edge, by the word in a cell; and the words, by the name of the column without signs.
_TYPES: Final = {
    "directed": "directed", "->": "directed", "-->": "directed", "=>": "directed",
    "undirected": "undirected", "<->": "undirected", "<-->": "undirected", "<=>": "undirected",
    "<-": "reversed", "<--": "reversed", "<=": "reversed",
}  # fmt: skip
_WAYS: Final = _TYPES | {
    ">": "directed", "out": "directed", "outgoing": "directed", "forward": "directed",
    "--": "undirected", "-": "undirected", "both": "undirected", "bidirectional": "undirected", "mutual": "undirected",
    "<": "reversed", "in": "reversed", "incoming": "reversed", "backward": "reversed", "reverse": "reversed",
}  # fmt: skip
_YES, _NO = ("true", "1", "1.0", "yes"), ("false", "0", "0.0", "no")
_IS_DIRECTED: Final = _WAYS | dict.fromkeys(_YES, "directed") | dict.fromkeys(_NO, "undirected")
_IS_UNDIRECTED: Final = _WAYS | dict.fromkeys(_NO, "directed") | dict.fromkeys(_YES, "undirected")
_DIRECTIONS: Final = {
    **dict.fromkeys(("type", "edgetype", "edge"), _TYPES),
    **dict.fromkeys(("direction", "dir", "arrow"), _WAYS),
    "directed": _IS_DIRECTED,
    **dict.fromkeys(("undirected", "bidirectional"), _IS_UNDIRECTED),
}


def says_undirected(file: SourceFile, sample: Sample, header: Sequence[str]) -> bool:
    """Whether a file says that its edges have no direction: in its first comment, or in a column such as Gephi's Type.

    Raises:
        InputError: only some edges have a direction, or some have the other one.
    """
    if sample.comments[:1] != () and sample.comments[0].lstrip("% ").split()[:1] == ["sym"]:
        return True
    for at, name in enumerate(header):
        words = _DIRECTIONS.get(re.sub(r"[^a-z]", "", name.lower()).removeprefix("is"), {})
        found = {words.get(row.fields[at].lower(), "") for row in sample.rows[1:] if at < len(row.fields)}
        if not found or "" in found or found == {"directed"}:
            continue
        if found == {"undirected"}:
            return True
        # Reversed ones stand alone, too, and nothing reads the columns the other way round.
        raise InputError(
            f"{file.location}: column {name} has {' and '.join(sorted(found))} edges; write a line for each edge from"
            " its source to its target, undirected ones in both directions, and add `--columns` with the columns that"
            " are read"
        )
    return False
