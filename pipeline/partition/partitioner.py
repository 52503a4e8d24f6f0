"""The descriptor of a partitioner: choices, help, checks and projections are all derived from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gnnloom.pipeline.partition.preset import Preset
from gnnloom.pipeline.partition.workload import Cost, Workload, cost_of_one_pass
from gnnloom.storage.option import Option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gnnloom.pipeline.partition.problem import PartitionProblem


@dataclass(frozen=True)
class Partitioner:
    """A way to partition a graph, as ``--method`` names it.

    Attributes:
        name: value of ``--method``; part of the artifact's key.
        order: position in lists of choices.
        help: one line for ``gnnloom partition --help``.
        fill: fills the (num_vertices,) int32 part vector of a problem, which the file ``problem.part_path`` backs,
            with parts in 0..P-1.  Returns facts about the partition as JSON, in addition to the measured quality.
            Imports whatever is heavy itself, so that listing the partitioners stays fast.
        cost: resources that a preset takes for a workload.
        models: what it can partition, the default first: ``hypergraph``, ``graph`` or ``stochastic``.
        presets: its settings, the default first; a single unnamed one if there is nothing to choose.
        package: Python package that it needs, beyond those that gnnloom always installs; empty for none.
        install: command that installs the package.
        child_module: module that a child process runs; empty if the work happens in this process.
        weighs_directions: whether it can also weigh what the backward pass of a directed graph sends.
        depends_on_memory: whether the parts depend on the memory of a worker, which then is part of the key.
        is_baseline: whether ``--compare`` offers it.
        options: the method's own options by name, given as ``--method-options name=value``. ``fill`` gets their values
            from ``own_options`` of :mod:`gnnloom.pipeline.partition.options`, which it imports itself.
    """

    name: str
    order: int
    help: str
    fill: Callable[[PartitionProblem, NDArray[np.int32]], dict[str, Any]]
    cost: Callable[[Workload, Preset], Cost] = cost_of_one_pass
    models: tuple[str, ...] = ("hypergraph",)
    presets: tuple[Preset, ...] = (Preset(),)
    package: str = ""
    install: str = ""
    child_module: str = ""
    weighs_directions: bool = False
    depends_on_memory: bool = False
    is_baseline: bool = False
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def preset_names(self) -> tuple[str, ...]:
        """Names of the presets, the default first; a single empty one if there is nothing to choose."""
        return tuple(preset.name for preset in self.presets)
