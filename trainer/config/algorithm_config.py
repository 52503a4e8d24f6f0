"""The distributed algorithm of a run: its ranks, their grid, and the algorithm's own options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gnnloom.storage.option import Group
from gnnloom.trainer.algorithms.algorithm import Algorithm
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.config.fields import Config, DescriptorOptions, option

#: In place of an algorithm: the planner chooses one; replaced before a configuration is built.
AUTO: Final = "auto"
#: Far more than the cores of any machine.
_MOST_THREADS = 4096


_option = partial(option, group=Group.DISTRIBUTION)


ALGORITHM_OPTIONS = DescriptorOptions(ALGORITHMS, "algorithm", Group.DISTRIBUTION)
# Free, because algorithms and their options change a result only through rounding.
_algorithm_option = partial(ALGORITHM_OPTIONS.field, free=True)


def _grid_help() -> str:
    axes = "; ".join(f"{algorithm.name}: {', '.join(algorithm.axes)}" for algorithm in ALGORITHMS.values())
    return f"Ranks along each axis of the process grid, such as 2x1x2; the most even grid by default ({axes})"


def _numbers_of_axes() -> tuple[int, int]:
    """Minimum and maximum number of axes of a process grid."""
    numbers = [len(algorithm.axes) for algorithm in ALGORITHMS.values()]
    return min(numbers), max(numbers)


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Config):
    """An algorithm and its process grid.

    The options of gnnloom's own algorithms are fields. Options of other packages' algorithms, and of algorithms that
    are added later, are ``algorithm_options``, each as ``name=value``.
    """

    ranks: int = _option(1, "Number of MPI ranks (and of row shards)", free=True, is_common=True, least=1)
    name: str = _option(
        "p2p", "Distributed algorithm", name="algorithm", free=True, is_common=True, choices=tuple(ALGORITHMS)
    )
    grid: tuple[int, ...] | None = _option(
        None, _grid_help(), free=True, kind=tuple[int, ...], separator="x", lengths=_numbers_of_axes()
    )
    exchange: str = _algorithm_option("exchange")
    summa_width: int = _algorithm_option("summa_width")
    aggregation_blocks: int = _algorithm_option("aggregation_blocks")
    gradient_product: str = _algorithm_option("gradient_product")
    algorithm_options: tuple[str, ...] = _option(
        (),
        "Options of algorithms from other packages, each as name=value",
        free=True,
        kind=tuple[str, ...],
    )
    threads: int = _option(
        0,
        "Threads per rank; 0: an equal share of the machine's cores",
        free=True,
        least=0,
        most=_MOST_THREADS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid is not None:
            _ = self.axes
        # Only a check here; `own_options` parses again, because the field keeps the strings of the stored
        # configuration.
        ALGORITHM_OPTIONS.other_values(self)

    @property
    def kind(self) -> Algorithm[Any]:
        """The descriptor of the algorithm."""
        return ALGORITHMS[self.name]

    @property
    def axes(self) -> dict[str, int]:
        """Axes of the process grid and the ranks along them.

        Raises:
            InputError: as :meth:`~gnnloom.trainer.algorithms.algorithm.Algorithm.settled_grid`.
        """
        return self.kind.settled_grid(self.grid, self.ranks)

    def own_options(self) -> dict[str, Any]:
        """The options of the chosen algorithm by name, with defaults filled in."""
        return ALGORITHM_OPTIONS.values(self, self.kind.options)
