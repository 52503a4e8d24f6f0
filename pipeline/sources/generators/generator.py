"""The descriptor of a generator, from which the options of ``gnnloom generate`` and the keys of recipes are derived."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from gnnloom.pipeline.sources import generators as room
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option

#: The option of every generator.
SEED: Final = Option("seed", int, "Seed; equal seeds give equal graphs.", 0, least=0)

#: Largest number of edges to draw, which are millions of tasks.
_MOST_EDGES: Final = 1 << 44


def check_num_edges(name: str, num_edges: int) -> None:
    """Check that a graph can be generated.

    Raises:
        InputError: it has too many edges.
    """
    if num_edges > _MOST_EDGES:
        raise InputError(f"{name}: {num_edges:,} edges to draw, expected at most 2^44")


@dataclass(frozen=True)
class Generator:
    """A family of synthetic graphs.

    Attributes:
        name: argument of ``gnnloom generate`` and value of a recipe's key ``format``.
        order: position in lists of generators.
        help: what the graphs are, in one line.
        open_edges: takes the options as keywords.
        options: options of ``open_edges`` and ``open_vertices``.
        open_vertices: takes the same options; None if the graphs have no vertex data.
    """

    name: str
    order: int
    help: str
    open_edges: Callable[..., EdgeSource]
    options: tuple[Option, ...]
    open_vertices: Callable[..., VertexSource] | None = None


@cache
def generators() -> Mapping[str, Generator]:
    """All generators by name, including those of other packages."""
    return load_descriptors(room, "GENERATOR", "gnnloom.generators", Generator)
