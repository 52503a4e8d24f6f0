"""The descriptor of a format, from which all that depends on it is derived, and the options of several descriptors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option

#: The option of every format that may store edge weights.
WEIGHTS: Final = Option("weights", bool, "Read edge weights (text and Parquet: the third column).")
#: The option of every format that may store several splits.
SPLIT_NAME: Final = Option("split", str, "Name of the split, if there are several.")


@dataclass(frozen=True)
class BundledVertices:
    """Vertex data that come along with the edges of a format.

    Attributes:
        open: takes the location or locations, as :attr:`Format.open_edges` does, and the options as keywords.
        exist: takes the location or locations; returns whether the source has any vertex data.
        options: options of ``open``.
    """

    open: Callable[..., VertexSource]
    exist: Callable[[Any], bool]
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class Format:
    """A format of edges, and perhaps of vertex data.

    Attributes:
        name: value of ``--format`` and of a recipe's key ``format``.
        order: position in lists of formats.
        help: what a source of this format holds, in one line.
        open_edges: takes a list of locations, or one location if ``one_location``, and the options as keywords.
        options: options of ``open_edges``.
        suffixes: endings of file names, without a dot, before ``.gz`` or ``.zst``.
        prefixes: beginnings of file names.
        is_folder: recognizes a local folder of this format.
        is_fallback: the format of files, or of folders if ``one_location``, that no format recognizes.
        one_location: a source is one folder, or one file, rather than a list of files.
        doubles: a file may stand for both directions of its edges; ``open_edges`` then takes the keyword
            ``undirected``, which is True if the graph will store both directions anyway.
        vertices: vertex data that come along with the edges; None if the format has none.
    """

    name: str
    order: int
    help: str
    open_edges: Callable[..., EdgeSource]
    options: tuple[Option, ...] = ()
    suffixes: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    is_folder: Callable[[Path], bool] | None = None
    is_fallback: bool = False
    one_location: bool = False
    doubles: bool = False
    vertices: BundledVertices | None = None

    @property
    def is_guessed(self) -> bool:
        """Whether some files or folders are recognized as this format without ``--format``."""
        return bool(self.suffixes or self.prefixes or self.is_folder or self.is_fallback)

    @property
    def summary(self) -> str:
        """One line for ``--help``: the suffixes and what a source holds."""
        suffixes = ", ".join(f".{suffix}" for suffix in self.suffixes)
        return f"{suffixes}{': ' if suffixes else ''}{self.help}{'' if self.is_guessed else ' (give --format)'}"


@dataclass(frozen=True)
class SharedOption:
    """An option, and the names of all descriptors that have it."""

    option: Option
    owners: tuple[str, ...]


def merge_options(
    by_owner: Mapping[str, Sequence[Option]], key: Callable[[Option], str] = lambda option: option.name
) -> dict[str, SharedOption]:
    """The union of the options of several descriptors; those that every descriptor has come last.

    Args:
        by_owner: options by the descriptor's name.
        key: what options are merged by.

    Raises:
        InputError: two descriptors give one name to options of different types.
    """
    merged: dict[str, SharedOption] = {}
    for owner, options in by_owner.items():
        for option in options:
            known = merged.setdefault(key(option), SharedOption(option, ()))
            if known.option.value_type != option.value_type:
                raise InputError(f"{owner} and {known.owners[0]}: option {option.name!r} has two types; rename one")
            merged[key(option)] = SharedOption(known.option, (*known.owners, owner))
    return dict(sorted(merged.items(), key=lambda item: len(item[1].owners) == len(by_owner) > 1))


def checked_options(owner: str, known: Sequence[Option], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given, as keywords for the function that opens a source.

    Args:
        owner: what the options belong to, for the message.
        known: options that the owner has; False for an option that it does not have counts as not given.

    Raises:
        InputError: an option is given that the owner does not have.
    """
    by_name = {option.name: option for option in known}
    unknown = sorted(
        name for name, value in options.items() if name not in by_name and value is not None and value is not False
    )
    if unknown:
        raise InputError(f"{owner} has no option {', '.join(unknown)}; it has {', '.join(by_name) or 'none'}")
    return {name: value for name, value in options.items() if name in by_name and by_name[name].is_given(value)}
