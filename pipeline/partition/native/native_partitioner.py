"""Makes the descriptor of a partitioner from a native program; importing it loads no implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnloom.pipeline.partition.native.program import NativeProgram
from gnnloom.pipeline.partition.partitioner import (
    MethodCost,
    Partitioner,
    PartitionProblem,
    PartitionWorkload,
    Preset,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gnnloom.pipeline.partition.settings import PartitionSettings


def native_partitioner(
    program: NativeProgram, *, order: int, help_line: str, models: tuple[str, ...], is_baseline: bool = False
) -> Partitioner:
    """The descriptor of a native program: it runs in a child process, on any of the models.

    Args:
        help_line: one line for ``gnnloom partition --help``.
        models: some of ``hypergraph``, ``graph`` and ``stochastic``, the default first.
        order, is_baseline: as in :class:`Partitioner`.
    """

    def fill(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
        from gnnloom.pipeline.partition.native.native_models import fill_natively  # noqa: PLC0415
        from gnnloom.pipeline.partition.native.run import NativeProblem  # noqa: PLC0415 - the descriptor is light

        return fill_natively(NativeProblem.of(problem, program), part)

    def cost(workload: PartitionWorkload, preset: Preset) -> MethodCost:
        from gnnloom.pipeline.partition.native.native_models import native_cost  # noqa: PLC0415

        return native_cost(program, workload, preset)

    def check(options: PartitionSettings, num_vertices: int, num_entries: int, *, is_symmetric: bool) -> None:
        from gnnloom.pipeline.partition.native.run import check_program_memory  # noqa: PLC0415

        # Of two directions, both have the entries; of the graph model, every edge is there at both of its ends.
        both = not is_symmetric and (options.model == "graph" or options.directions == "both")
        check_program_memory(program, num_entries * (2 if both else 1), num_vertices, options)

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
        check=check,
    )
