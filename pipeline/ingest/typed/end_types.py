"""Recognizes tables of edges whose rows have the types of both ends, in columns of their own or before ``::`` in ids.

PrimeKG has columns ``x_index``, ``x_type``, ``y_index`` and ``y_type``; Hetionet and DRKG have ids such as
``Gene::9021``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gnnloom.pipeline.ingest.typed.table import BY_ROW
from gnnloom.pipeline.sources.reading.text_layout import names_ends
from gnnloom.pipeline.sources.understood import Understood
from gnnloom.pipeline.sources.vertex_data.table_columns import column_list
from gnnloom.storage.artifacts.typed.typed_names import valid_name
from gnnloom.storage.wording import shell_command

#: A column with the type of an end: x_type, source_label, headKind.
_OF_TYPE: Final = re.compile(r"(.+?)_?(type|kind|label|category)", re.IGNORECASE)
#: Suffixes that turn the name of an end into the name of its column of ids. A number among all vertices comes before an
#: id, which vertices of two types may share.
_OF_ALL: Final = ("_index", "_idx")
_OF_IDS: Final = (*_OF_ALL, "_id", "id", "")
#: Names of the columns with the names of relations.
_OF_RELATIONS: Final = ("relation", "predicate", "metaedge", "rel", "edge_type", "relation_type", "interaction")
#: Separator after a type at the beginning of an id.
_SEPARATOR: Final = "::"


def relation_of_types(edges: Understood, location: str, name: str, *, joined: bool = False) -> str:
    """Value of ``--relation`` for a table of edges whose header has columns with the types of both ends; else empty.

    Ids that two types share in the first rows are joined with their types.

    Args:
        name: of the relation, if no column has its name.
        joined: join ids with their types in any case; nothing is returned for numbers among all vertices.
    """
    titles = {title.lower(): title for title in edges.columns}
    if not edges.facts.get("header", True) or len(titles) < len(edges.columns):
        return ""
    typed = {found[1]: title for title in titles if (found := _OF_TYPE.fullmatch(title)) is not None}
    for source, source_type in typed.items():
        for target, target_type in typed.items():
            ids = _ids(titles, source, target)
            if ids is None or not _are_types(edges, [titles[each] for each in ids], source_type, target_type):
                continue
            relation = next(
                (titles[each] for each in _OF_RELATIONS if each in titles and each not in typed.values()), ""
            )
            if joined and ids[0].endswith(_OF_ALL):
                return ""
            ends = [(titles[end], titles[kind]) for end, kind in zip(ids, (source_type, target_type), strict=True)]
            how = f" joined by {_SEPARATOR}" if joined or _have_shared_ids(edges, ends) else ""
            types = [f"{kind} as {role} type{how}" for (_, kind), role in zip(ends, ("source", "target"), strict=True)]
            kinds = [f"{relation} as relation"] if relation else []
            columns = column_list([titles[each] for each in ids] + kinds + types)
            return f"{BY_ROW},{BY_ROW if relation else valid_name(name)},{BY_ROW}={location}:{columns}"
    return ""


def _are_types(edges: Understood, ids: Sequence[str], source: str, target: str) -> bool:
    """Whether columns hold types rather than labels that name each vertex: vertices share types, as far as is shown."""
    if not source.endswith("label"):
        return True
    titles = [title.lower() for title in edges.columns]
    vertices = {row[edges.columns.index(each)] for row in edges.rows for each in ids}
    return len({row[titles.index(each)] for row in edges.rows for each in (source, target)}) < len(vertices)


def _have_shared_ids(edges: Understood, ends: Sequence[tuple[str, str]]) -> bool:
    """Whether one of the first rows gives an id another type than an earlier row.

    Args:
        ends: columns of the ids and of the types of both ends.
    """
    at = [(edges.columns.index(ids), edges.columns.index(kind)) for ids, kind in ends]
    vertices = {(row[ids], row[kind]) for row in edges.rows for ids, kind in at}
    return len({key for key, _ in vertices}) < len(vertices)


def _ids(titles: dict[str, str], source: str, target: str) -> tuple[str, str] | None:
    """The columns of ids whose names match the columns of types; None unless the names are two ends of an edge."""
    for end in _OF_IDS:
        found = f"{source}{end}", f"{target}{end}"
        if found[0] in titles and found[1] in titles and names_ends(*found):
            return found
    return None


def relation_of_prefixes(triples: Understood, location: str) -> str:
    """Value of ``--relation`` for triples whose ids begin with their types, as far as is shown; else empty."""
    ends = [str(triples.facts.get(end, "")).removeprefix("column ") for end in ("source", "target")]
    places = [triples.columns.index(each) for each in ends if each in triples.columns]
    cells = [row[at] for row in triples.rows for at in places]
    if len(places) < len(ends) or not cells or any(cell.find(_SEPARATOR) <= 0 for cell in cells):
        return ""
    relation = next(iter(triples.facts.get("further", ())), "")
    types = [f"{end} as {role} type before {_SEPARATOR}" for end, role in zip(ends, ("source", "target"), strict=True)]
    return f"{BY_ROW},{BY_ROW},{BY_ROW}={location}:{column_list([*ends, f'{relation} as relation', *types])}"


def words_of_ratings(edges: Understood, format_name: str | None) -> list[str]:
    """Options of ``gnnloom ingest`` that store a table of users, items, ratings and perhaps times with two types.

    Args:
        edges: the table, without a header.
        format_name: the format that the user gives.
    """
    values = ["3 as weight", "4 as time"][: len(edges.columns) - 2]
    relation = f"user,rates,item={edges.location}:{','.join(['1', '2', *values])}"
    merge = ["--merge", "keep"] if len(values) > 1 else []
    return ["--relation", relation, "--no-header", *(["--format", format_name] if format_name else []), *merge]


def notes_on_ratings(found: Sequence[Understood], dataset: str, format_name: str | None) -> list[str]:
    """A note on edges that seem to be ratings, whose users and items were stored with one numbering; or nothing."""
    if len(found) != 1 or not found[0].facts.get("ratings"):
        return []
    words = words_of_ratings(found[0], format_name)
    note = (
        "the columns seem to have users, items and ratings, and a user and an item of one number are stored as one"
        f" vertex; `{shell_command('gnnloom', 'ingest', dataset, *words)}` stores two types"
    )
    return [note]
