"""Options of shards: the grid and the order of the vertices, or the order of a rank's rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from gnnloom.pipeline.shards.grid.part_order import Order
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.permutation import KeyedPermutation, mix
from gnnloom.storage.option import Group, Option, check_options, option

PERMUTATIONS = ("none", "single", "double", "partition")

#: Most ranges that rows or columns are cut into: the names of cells have three digits.
MAX_GRID = 999


_option = partial(option, group=Group.SHARDS)


@dataclass(frozen=True)
class GridOptions:
    """Options that decide how to permute and cut; the shards serve any process grid.

    Permutation ``single`` moves rows and columns alike. ``double`` uses one key for rows and another for columns
    (Plexus, SC 2025, section 5), which also spreads the diagonal. ``partition`` sorts rows and columns by part.
    """

    grid: tuple[int, int] = _option(
        (16, 16),
        "Grid shards: number of blocks of rows and columns, such as 16x16.",
        separator="x",
        lengths=(2, 2),
        is_common=True,
    )
    permutation: str = _option("double", "Order of rows and columns in grid shards.", choices=PERMUTATIONS)
    seed: int = _option(0, "Seed of the permutation.", least=0)

    def __post_init__(self) -> None:
        check_options(self)
        if not all(1 <= cells <= MAX_GRID for cells in self.grid):
            raise InputError(f"grid {self.grid[0]}x{self.grid[1]}: expected 1 to {MAX_GRID} ranges each way")

    def keyed_orders(self, num_vertices: int) -> dict[str, Order | None]:
        """Return the row order Pr and the column order Pc; None if vertices stay in the order of their ids.

        Permutation ``partition`` also gives None: its order comes from the partition.
        """
        if self.permutation in {"none", "partition"}:
            return {"rows": None, "columns": None}
        # Keys are mixed, so that neighboring seeds share no key.
        keys = [int(mix(np.uint64((2 * self.seed + number) % 2**64))) for number in (1, 2)]
        rows = KeyedPermutation(num_vertices, keys[0])
        return {
            "rows": rows,
            "columns": rows if self.permutation == "single" else KeyedPermutation(num_vertices, keys[1]),
        }

    def parameters(self, parts: int | None = None, method: str | None = None) -> dict[str, Any]:
        """Return everything except the inputs that decides the bytes of the shards.

        Args:
            parts: number of parts of the partition, for permutation ``partition``.
            method: method of the partition, likewise.
        """
        chosen = {"layout": "grid", "grid": list(self.grid), "permutation": self.permutation, "seed": self.seed}
        return chosen | ({"parts": parts, "method": method} if parts is not None else {})


#: Orders of a rank's rows: by vertex id, or by degree, largest first.
REORDERS: Final = ("none", "degree")
REORDER: Final = Option(
    "reorder",
    str,
    "Row shards: order of each rank's rows. degree (largest first) makes products of skewed graphs faster; results keep"
    " the order of the vertices.",
    "none",
    group=Group.SHARDS,
    choices=REORDERS,
)


def check_typed_grid(options: GridOptions) -> None:
    """Refuse a permutation that follows a partition.

    Raises:
        InputError: the permutation does.
    """
    if options.permutation == "partition":
        raise InputError(
            "permutation 'partition': grid shards of a graph with types have a keyed order so far; choose none, single"
            " or double"
        )
