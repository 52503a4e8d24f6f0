"""Describes how a source is read, so that a wrong reading is noticed before the edges are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, runtime_checkable

from gnnloom.storage.wording import counted

#: Rows of a file that are shown.
SHOWN_ROWS: Final = 5
#: Sentence about weights in a file that are not read.
UNREAD: Final = "its weights are not read: `--weights` reads them"
#: Columns that are named, at most.
_LISTED: Final = 6


@dataclass(frozen=True)
class Understood:
    """Description of how one file is read.

    Attributes:
        location: the file.
        format: name of its format.
        facts: how it is read, as JSON; ``ignored`` has the names of the columns that are not read.
        sentences: the same for people; the first one goes on after the name of the file.
        question: a question that the first lines leave open, with the options that answer it; empty if there is none.
        columns: headings of the columns.
        rows: the first rows, with the text of each cell.
        are_names: whether the ids are names; None if that is not known.
        flags: flags of `gnnloom ingest` for this reading of the file, each with its value.
        is_stated: whether the user chose the columns.
    """

    location: str
    format: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    question: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    are_names: bool | None = None
    flags: tuple[str, ...] = ()
    is_stated: bool = False

    def to_json(self) -> dict[str, Any]:
        """All attributes but the sentences, which the facts repeat."""
        question = {"question": self.question} if self.question else {}
        return {
            "file": self.location,
            "format": self.format,
            **self.facts,
            **question,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
        }

    def lines(self) -> list[str]:
        """Lines for people."""
        first, *others = self.sentences or (f"format {self.format}",)
        return [
            f"{self.location}: {first}",
            *(f"  {each}" for each in (*others, self._left_out(), self.question) if each),
        ]

    def _left_out(self) -> str:
        """The columns that are not read; empty if all are."""
        names = self.facts.get("ignored", ())
        return f"{counted(len(names), 'column')} not read: {', '.join(names)}" if names else ""


@runtime_checkable
class Legible(Protocol):
    """A source that says how it reads its files."""

    def understood(self) -> Sequence[Understood]:
        """Describes how each file is read, judging by its beginning."""
        ...


def of_vertices(location: str, format_name: str, how: str, option: str, what: str, ids: str = "") -> Understood:
    """Describe how one array of vertex data is read.

    Args:
        how: how the file is read, for people.
        option: the option that names the file.
        what: the part of the file that holds the array, for people.
        ids: where the ids of the rows are, for people; empty if row k belongs to vertex k.
    """
    whose = f"the ids of the vertices are in {ids}" if ids else "row k belongs to vertex k"
    facts = {option: what, "ids": ids or None}
    return Understood(location, format_name, facts, (how, f"{option} from {what}", whose))


def header_in_words(has_header: bool) -> str:
    """Whether the first line of a text names its columns."""
    return "the first line names the columns" if has_header else "no header"


def columns_in_words(names: Sequence[str]) -> str:
    """Columns for people: their names, or how many there are."""
    if len(names) > _LISTED:
        return f"{len(names):,} columns, {names[0]} to {names[-1]}"
    return f"column{'s' if len(names) > 1 else ''} {', '.join(names)}"


def ids_question(name: str) -> str:
    """Question about a first column of features whose name is usual for ids."""
    return (
        f"the first feature is called {name}; add `--by-id` if it has the ids of the vertices, or `--no-by-id` if it is"
        " a feature and row k belongs to vertex k"
    )


def joined(found: Sequence[Understood]) -> list[Understood]:
    """One description of arrays of the same table, which states common facts once."""
    tables: dict[tuple[str, str, str], list[Understood]] = {}
    for each in found:
        tables.setdefault((each.location, each.sentences[0], each.sentences[-1]), []).append(each)
    together = []
    for (_, how, ids), same in tables.items():
        facts = {name: value for each in same for name, value in each.facts.items()}
        sentences = (how, *(sentence for each in same for sentence in each.sentences[1:-1]), ids)
        question = next((each.question for each in same if each.question), "")
        together.append(replace(same[0], facts=facts, sentences=sentences, question=question))
    return together


def understood_of(source: object, locations: Sequence[str], format_name: str) -> list[Understood]:
    """Descriptions of the reading of a source; only the format if the source has no others."""
    if isinstance(source, Legible):
        return list(source.understood())
    return [Understood(location, format_name) for location in locations]


def summary_lines(found: Sequence[Understood]) -> list[str]:
    """Lines for people about the files of one source. Files that are read alike are named once."""
    lines: list[str] = []
    alike: dict[tuple[Any, ...], list[Understood]] = {}
    for each in found:
        ignored = tuple(each.facts.get("ignored", ()))
        alike.setdefault((each.format, each.sentences, ignored, each.question), []).append(each)
    for first, *others in alike.values():
        head, *rest = first.lines()
        lines += [f"{head} (and {len(others)} more, read alike)" if others else head, *rest]
    return lines
