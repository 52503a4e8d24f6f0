"""The distributed algorithm of a run: its ranks, their grid, and the algorithm's own options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gnnloom.trainer.algorithms.algorithm import Algorithm
from gnnloom.trainer.algorithms.option import Option
from gnnloom.trainer.algorithms.registry import ALGORITHMS, algorithms_with_option, declared_options
from gnnloom.trainer.config.fields import Config, field_of, option
from gnnloom.trainer.config.named_options import parse_named

#: In place of an algorithm, leaves the choice to the planner; replaced before there is a configuration.
AUTO: Final = "auto"
#: Far more than the cores of any machine.
_MOST_THREADS = 4096


def shown_option(name: str) -> Option:
    """An algorithm's own option; its help text ends with the algorithms that have it."""
    declared = declared_options()[name]
    return replace(declared, help=f"{declared.help} ({', '.join(algorithms_with_option(name))})")


def _algorithm_option(name: str) -> Any:
    # Free, since algorithms and their options change a result by rounding only.
    return field_of(shown_option(name), free=True)


def _grid_help() -> str:
    axes = "; ".join(f"{algorithm.name}: {', '.join(algorithm.axes)}" for algorithm in ALGORITHMS.values())
    return f"Ranks along each axis of the process grid, such as 2x1x2; the most even grid by default ({axes})"


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Config):
    """An algorithm and its process grid.

    The options of gnnloom's own algorithms are fields. Those of other packages' algorithms, and of algorithms that
    are added later, are ``algorithm_options``, each as ``name=value``.
    """

    ranks: int = option(1, "Number of MPI ranks (and of row shards)", free=True, least=1)
    algorithm: str = option("p2p", "Distributed algorithm", free=True, choices=tuple(ALGORITHMS))
    grid: tuple[int, ...] | None = option(None, _grid_help(), free=True)
    summa_width: int = _algorithm_option("summa_width")
    aggregation_blocks: int = _algorithm_option("aggregation_blocks")
    gradient_product: str = _algorithm_option("gradient_product")
    algorithm_options: tuple[str, ...] = option(
        (), "Options of algorithms from other packages, each as name=value", free=True
    )
    threads: int = option(
        0,
        "Threads per rank; 0: the machine's cores divided among its ranks",
        free=True,
        least=0,
        most=_MOST_THREADS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid is not None:
            self.chosen_algorithm.settled_grid(self.grid, self.ranks)
        # Only a check here; `own_options` parses again, as the field keeps the texts of the stored configuration.
        _parse(self.algorithm_options)

    @property
    def chosen_algorithm(self) -> Algorithm[Any]:
        """The descriptor of the algorithm."""
        return ALGORITHMS[self.algorithm]

    def own_options(self) -> dict[str, Any]:
        """The options of the chosen algorithm by name, with defaults filled in."""
        given = _parse(self.algorithm_options)
        return {
            name: getattr(self, name) if name in _FIELDS else given.get(name, own.default)
            for name, own in self.chosen_algorithm.options.items()
        }


_FIELDS = frozenset(AlgorithmConfig.__dataclass_fields__)


def other_options() -> dict[str, Option]:
    """Options of algorithms that are not fields of the configuration: they go into ``algorithm_options``."""
    return {name: shown_option(name) for name in declared_options() if name not in _FIELDS}


def gather_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a configuration from the options of a command line.

    Args:
        values: option name to value. Options that are not fields move into ``algorithm_options``, unless they are None.
    """
    others = other_options()
    given = tuple(f"{name}={values[name]}" for name in others if values.get(name) is not None)
    fields = {name: value for name, value in values.items() if name not in others}
    return {**fields, "algorithm_options": (*fields.get("algorithm_options", ()), *given)} if given else fields


def _parse(given: tuple[str, ...]) -> dict[str, Any]:
    """Name to value; InputError if an item is wrong."""
    nothing = "name=value with a name that an installed package declares"
    return parse_named("algorithm_options", given, other_options(), nothing)
