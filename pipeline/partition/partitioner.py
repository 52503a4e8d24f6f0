"""The descriptor of a partitioner, from which choices, help and checks are derived; its problem, and its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.storage.option import Option

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from gnnloom.pipeline.partition.settings import PartitionSettings
    from gnnloom.pipeline.tasks.cluster import Cluster
    from gnnloom.storage.artifacts.graph import Graph
    from gnnloom.storage.format.artifact import ArtifactWriter

#: Processor seconds to start interpreters and load libraries.
START_SECONDS = 2.0


@dataclass(frozen=True)
class Preset:
    """A named setting of a partitioner.

    Attributes:
        name: value of ``--preset``; empty if the partitioner has a single setting.
        help: line for the table of presets in ``gnnloom partition --help``.
        seconds: processor seconds for a million pins and 8 parts, measured on power-law graphs, which are the
            hardest (lattices take a tenth).
        parts_power: power of the number of parts that the seconds grow with.
        improves: whether the preset can also improve parts that it is given.
        bytes_per_gain: bytes that a native program caches for each vertex and part; 0 without such a cache.
        revision: raised when the preset makes other parts than before: part of the artifact's key, unless it is 0.
    """

    name: str = ""
    help: str = ""
    seconds: float = 0.01
    parts_power: float = 0.0
    improves: bool = False
    bytes_per_gain: int = 0
    revision: int = 0

    def cpu_seconds(self, num_pins: int, parts: int) -> float:
        """Processor seconds to partition ``num_pins`` pins into ``parts`` parts."""
        return float(self.seconds * num_pins / 1e6 * (parts / 8) ** self.parts_power)


@dataclass(frozen=True)
class Structure:
    """The measures of a graph that a choice of method depends on; the same on every machine.

    Attributes:
        num_pins: of the hypergraph of one direction; an upper bound, as rows may already hold their own vertex.
        pins_left: share of the pins that remain if every small cluster of vertices becomes one vertex: about 0.55 for
            meshes, 0.75 for web graphs and collaborations, and 0.9 for graphs without clusters.
        skew: nonzeros of the longest row over the average.
    """

    num_pins: int
    pins_left: float
    skew: float


@dataclass(frozen=True)
class PartitionWorkload:
    """The size of a problem, known before anything is read.

    Attributes:
        symmetric: whether the matrix is its own transpose.
        model: the model that is partitioned, one of the partitioner's models.
        num_directions: products whose exchange is weighed, 1 or 2.
        batches: kind of mini-batches, for model ``stochastic``.
        worker_memory: bytes that a worker may use.
        structure: measures that a choice of method depends on; None if the graph was not measured.
        exchange: the exchange of ranks, one of ``EXCHANGES`` of the settings.
        cover_passes: passes of cover refinement after the method.
    """

    num_vertices: int
    nnz: int
    symmetric: bool
    parts: int
    model: str
    num_directions: int
    batches: str
    worker_memory: int
    structure: Structure | None = None
    exchange: str = "rows"
    cover_passes: int = 0

    @property
    def num_pins(self) -> int:
        """Pins of the full-batch hypergraph; an upper bound, because rows may already hold their own vertex."""
        return self.num_directions * (self.nnz + self.num_vertices)

    @property
    def num_entries(self) -> int:
        """Entries of the graph model: each edge at both its ends."""
        return self.nnz if self.symmetric else 2 * self.nnz


@dataclass(frozen=True)
class MethodCost:
    """Resources that a partitioner takes.

    Attributes:
        memory: bytes at the peak, in one process.
        disk: bytes of scratch files.
        cpu_seconds: processor seconds of all threads.
        chosen: the choice of a method that chooses among others, with the reason; empty for all others.
    """

    memory: int
    disk: int
    cpu_seconds: float
    chosen: str = ""


def cost_of_one_pass(workload: PartitionWorkload, preset: Preset) -> MethodCost:
    """The cost of a method that reads the rows once and holds only the part vector."""
    part_vector = 4 * workload.num_vertices
    seconds = START_SECONDS + preset.cpu_seconds(workload.num_pins, workload.parts)
    return MethodCost(BASE_MEMORY + part_vector, part_vector, seconds)


@dataclass(frozen=True)
class LevelSteps:
    """Sizes of the steps in which the out-of-core method works on a level.

    Tests make them small, so that little data has many tasks. The number of rounds and passes, and the sizes that
    decide what runs in rounds and where coarsening ends, also decide the parts; the others only divide the work.

    Attributes:
        few_pins: maximum number of pins, and of vertices, of a level that one process clusters, places and refines.
            Rounds of tasks take 1.7 times its processor time to refine, and more on small graphs; with two workers they
            were not measured to be faster below 30 million pins.
        rounds: rounds of a pass over the vertices. Vertices of one round do not see each other's moves: with 16 rounds
            rather than one vertex after the other, R-MAT graphs send 0.1 % and soc-Slashdot0902 1.6 % more rows; with
            64, 0.0 % and 0.2 % fewer.
        cluster_passes: rounds of label propagation at each level.
        random_passes: maximum number of passes of refinement at each level, if the first parts are random.
        clusters_per_part: coarsening ends at a level with fewer clusters for each part; a cluster weighs at most the
            same share of a part.
        task_vertices: vertices of a task that reads or writes a few numbers for each: 8 MiB of weights, 4 MiB of parts.
        task_pins: pins of a task that reads all nets once, unless that makes fewer than ``NET_TASKS`` tasks: less than
            a minute's work.
        task_keys: maximum number of keys of a task that transposes, 32 MiB, so that graphs of millions of edges keep
            several workers busy.
        many_tasks: tasks that transpose get larger rather than more numerous than this, or than one for each worker if
            that is more, as far as memory allows: every bucket is read from the lanes of all tasks.
        read_entries: entries of all matrices together that a task reads at a time, or a single row.
        scan_pins: pins of a task that looks for cut nets, unless there are fewer than ``NET_TASKS`` such tasks: a few
            seconds.
        range_pins: pins for each range of a boundary; there are at most ``NET_TASKS`` ranges. Fewer pins are not worth
            a task. A boundary fits in the memory of one process, so 16 tasks suffice, and need no lanes.
    """

    few_pins: int = 1 << 25
    rounds: int = 16
    cluster_passes: int = 5
    random_passes: int = 16
    clusters_per_part: int = 20
    task_vertices: int = 1 << 20
    task_pins: int = 1 << 25
    task_keys: int = 1 << 22
    many_tasks: int = 64
    read_entries: int = 1 << 23
    scan_pins: int = 1 << 27
    range_pins: int = 1 << 24


#: The sizes of the steps outside of tests.
LEVEL_STEPS: Final = LevelSteps()


@dataclass(frozen=True)
class PartitionProblem:
    """A partitioning problem: the input, the options, and the files to use.

    Attributes:
        transpose: the transpose of ``graph``; ``graph`` itself if it is symmetric.
        options: the settings, with model and preset resolved.
        scratch: folder for temporary files, which is removed with the artifact's work folder.
        part_path: ``.npy`` file that backs the part vector, so that tasks can map it.
        cluster: runs the tasks of partitioners that have some.
        writer: of the partition; keeps the records of tasks whose results an interrupted run leaves for the next one.
        steps: sizes of the steps of the out-of-core method.
    """

    graph: Graph
    transpose: Graph
    options: PartitionSettings
    scratch: Path
    part_path: Path
    cluster: Cluster
    writer: ArtifactWriter
    steps: LevelSteps


class CheckMemory(Protocol):
    """See :attr:`Partitioner.check`."""

    def __call__(
        self, options: PartitionSettings, num_vertices: int, num_entries: int, *, is_symmetric: bool
    ) -> None: ...


@dataclass(frozen=True)
class Partitioner:
    """A way to partition a graph, as ``--method`` names it.

    Attributes:
        name: value of ``--method``; part of the artifact's key.
        order: position in lists of choices.
        help: one line for ``gnnloom partition --help``.
        fill: fills the (num_vertices,) int32 part vector of a problem, which the file ``problem.part_path`` backs,
            with parts in 0..P-1.  Returns facts about the partition as JSON, in addition to the measured quality.
            Imports heavy modules itself, so that listing the partitioners stays fast.
        cost: resources that a preset takes for a workload.
        models: models that it can partition, the default first: ``hypergraph``, ``graph`` or ``stochastic``.
        presets: its settings, the default first; a single unnamed one if there is nothing to choose.
        package: additional Python package that it needs; empty for none.
        install: command that installs the package.
        child_module: module that a child process runs; empty if the work happens in this process.
        weighs_directions: whether it can also weigh the rows that the backward pass of a directed graph sends.
        depends_on_memory: whether the parts depend on the memory of a worker, which then is part of the key.
        is_baseline: whether ``--compare`` offers it.
        check: raises BudgetError if a matrix with at least ``num_entries`` entries is too large for the memory; called
            before the matrix is made. None for methods that always fit.
        options: the method's own options by name, given as ``--method-options name=value``. ``fill`` gets their values
            from ``own_options`` of :mod:`gnnloom.pipeline.partition.options`, which it imports itself.
    """

    name: str
    order: int
    help: str
    fill: Callable[[PartitionProblem, NDArray[np.int32]], dict[str, Any]]
    cost: Callable[[PartitionWorkload, Preset], MethodCost] = cost_of_one_pass
    models: tuple[str, ...] = ("hypergraph",)
    presets: tuple[Preset, ...] = (Preset(),)
    package: str = ""
    install: str = ""
    child_module: str = ""
    weighs_directions: bool = False
    depends_on_memory: bool = False
    is_baseline: bool = False
    check: CheckMemory | None = None
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def preset_names(self) -> tuple[str, ...]:
        """Names of the presets, the default first; a single empty one if there is nothing to choose."""
        return tuple(preset.name for preset in self.presets)
