"""The distributed algorithm of a run: its ranks, their grid, and the algorithm's own options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gnnloom.storage.option import Group, Option, option_field, option_fields
from gnnloom.trainer.algorithms.algorithm import Algorithm
from gnnloom.trainer.algorithms.registry import ALGORITHMS, declared_options
from gnnloom.trainer.config.fields import Config, option, other_values, own_values, shared_option

#: In place of an algorithm, leaves the choice to the planner; replaced before there is a configuration.
AUTO: Final = "auto"
#: Far more than the cores of any machine.
_MOST_THREADS = 4096


_option = partial(option, group=Group.DISTRIBUTION)


def _shown(name: str) -> Option:
    return shared_option(ALGORITHMS, "algorithm", name, Group.DISTRIBUTION)


def _algorithm_option(name: str) -> Any:
    # Free, since algorithms and their options change a result by rounding only.
    return option_field(_shown(name), free=True)


def _grid_help() -> str:
    axes = "; ".join(f"{algorithm.name}: {', '.join(algorithm.axes)}" for algorithm in ALGORITHMS.values())
    return f"Ranks along each axis of the process grid, such as 2x1x2; the most even grid by default ({axes})"


def _numbers_of_axes() -> tuple[int, int]:
    """Fewest and most axes of a process grid."""
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
        # Only a check here; `own_options` parses again, as the field keeps the texts of the stored configuration.
        _parse(self.algorithm_options)

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
        given = _parse(self.algorithm_options)
        return own_values(self, self.kind.options, given)


def other_algorithm_options() -> dict[str, Option]:
    """Options of algorithms that are not fields of the configuration: they go into ``algorithm_options``."""
    return {name: _shown(name) for name in declared_options() if name not in option_fields(AlgorithmConfig)}


def _parse(given: tuple[str, ...]) -> dict[str, Any]:
    """Name to value; InputError if an item is wrong."""
    return other_values("algorithm_options", given, other_algorithm_options())
