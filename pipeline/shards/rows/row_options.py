"""The choices of row shards, without what makes the shards: the command line reads them whenever it starts."""

from __future__ import annotations

from typing import Final

from gnnloom.storage.option import Group, Option

#: Orders of a rank's rows: by vertex id, or by degree, largest first.
REORDERS: Final = ("none", "degree")
REORDER: Final = Option(
    "reorder",
    str,
    "Row shards: order of a rank's rows; degree, largest first, makes products of skewed graphs faster. Results stay in"
    " the order of the vertices.",
    "none",
    group=Group.SHARDS,
    choices=REORDERS,
)
