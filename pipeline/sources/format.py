"""The descriptor of a format, from which everything that depends on the format is derived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
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
