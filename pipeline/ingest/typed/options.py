"""Options of graphs with types alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gnnloom.storage.option import Group, check_options, option

#: Choices for edges whose ends are in no table of vertices of their types.
UNKNOWN: Final = ("error", "add", "drop")


@dataclass(frozen=True)
class TypedOptions:
    """Options that decide how tables of vertices and relations become a graph with types."""

    unknown: str = option(
        "error",
        "What to do with edges whose ends --vertices does not list: fail with an error, add the vertices, or drop the"
        " edges.",
        group=Group.GRAPH,
        choices=UNKNOWN,
    )

    def __post_init__(self) -> None:
        check_options(self)
