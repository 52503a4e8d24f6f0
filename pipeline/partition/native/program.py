"""A native program that partitions, and the descriptor made of it; importing this loads no implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnnloom.pipeline.partition.partitioner import MethodCost, Partitioner, PartitionWorkload, Preset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gnnloom.pipeline.partition.problem import PartitionProblem


@dataclass(frozen=True)
class NativeProgram:
    """A partitioner in native code, which a child process runs.

    Attributes:
        name: of the method, for messages.
        package: Python package that holds it.
        module: with a function ``partition(request, folder)`` that reads the files of
            :mod:`gnnloom.pipeline.partition.native.request` and returns the (num_vertices,) parts.
        presets: its settings, the default first.
        bytes_per_pin: peak memory for each pin (or entry of a graph), measured.
        takes_arrays: whether it reads a graph as arrays rather than as METIS' text.
    """

    name: str
    package: str
    module: str
    presets: tuple[Preset, ...]
    bytes_per_pin: int
    takes_arrays: bool = False

    @property
    def install(self) -> str:
        """The command that installs the package."""
        return f"pip install {self.package}"

    def preset(self, name: str) -> Preset:
        """The preset of this name."""
        return next(preset for preset in self.presets if preset.name == name)

    def memory(self, preset: str, size: int, num_vertices: int, parts: int) -> int:
        """Bytes that the program peaks at, as measured on power-law graphs.

        Args:
            size: pins of the hypergraph, or entries of the graph.
        """
        return self.bytes_per_pin * size + self.preset(preset).bytes_per_gain * num_vertices * parts


def native_partitioner(
    program: NativeProgram, *, order: int, help_line: str, models: tuple[str, ...], is_baseline: bool = False
) -> Partitioner:
    """The descriptor of a native program: it runs in a child process, on any of the models.

    Args:
        help_line: one line for ``gnnloom partition --help``.
        models: ``hypergraph``, ``graph`` and ``stochastic``, or some of them, the default first.
        order, is_baseline: as in :class:`Partitioner`.
    """

    def fill(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
        from gnnloom.pipeline.partition.native.native_models import fill_natively  # noqa: PLC0415
        from gnnloom.pipeline.partition.native.native_problem import NativeProblem  # noqa: PLC0415 - the descriptor is light

        return fill_natively(NativeProblem.of(problem, program), part)

    def cost(workload: PartitionWorkload, preset: Preset) -> MethodCost:
        from gnnloom.pipeline.partition.native.native_models import native_cost  # noqa: PLC0415

        return native_cost(program, workload, preset)

    return Partitioner(
        program.name,
        order,
        help_line,
        fill,
        cost,
        models,
        program.presets,
        package=program.package,
        install=program.install,
        child_module=program.module,
        weighs_directions=models != ("graph",),
        is_baseline=is_baseline,
    )
