"""The distributed algorithms: their names and the axes of their process grids."""

from __future__ import annotations

import math

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.factors import factorizations, most_square

#: Axes of the process grid of each algorithm, in the order of ``--grid``.
AXES = {
    "p2p": ("row",),
    "broadcast": ("row",),
    "replicated": ("row", "replica"),
    "summa": ("row", "column"),
    "split3d": ("row", "column", "layer"),
    "tensor3d": ("x", "y", "z"),
}


def settled_grid(algorithm: str, grid: tuple[int, ...] | None, num_ranks: int) -> dict[str, int]:
    """Axes and the ranks along them; without a ``grid`` the one whose axes differ least.

    Raises:
        InputError: the grid does not fit the algorithm or the number of ranks; the message names those that do.
    """
    axes = AXES[algorithm]
    if grid is None:
        grid = most_square(num_ranks, len(axes))
    if len(grid) != len(axes) or min(grid) < 1 or math.prod(grid) != num_ranks:
        possible = ", ".join("x".join(map(str, factors)) for factors in factorizations(num_ranks, len(axes)))
        raise InputError(
            f"grid {'x'.join(map(str, grid))}: algorithm {algorithm} on {num_ranks} ranks needs a number of ranks for"
            f" {', '.join(axes)}: one of {possible}"
        )
    return dict(zip(axes, grid, strict=True))
