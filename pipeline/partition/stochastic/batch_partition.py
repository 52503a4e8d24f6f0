"""The stochastic model: parts for training on mini-batches, which exchange different rows than the whole graph does.

A batch exchanges the rows that its induced subgraph needs.  For batches of uniform vertices at rate q, a drawn vertex
j sends 1 - (1-q)^c rows on average to a part that holds c of the other pins of net j: one row for q = 1, which makes
the connectivity cut, and about c times q for small q, which makes the edge cut.  A chord of that curve is a full net
and one 2-pin net for each of its pins, so this hypergraph needs no sampling; its partition is then improved on the
curve itself.  For other batches, the nets of many drawn batches are merged.

Tasks draw the batches, restrict and merge their nets, and measure the parts; a process of its own fits the parts to the
nets.  The client holds a few numbers of each task and batch.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import net_matrices
from gnnloom.pipeline.partition.native.program import NativeProgram
from gnnloom.pipeline.partition.native.run import NativeProblem, child_command, last_line, run_program
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS, Preset
from gnnloom.pipeline.partition.settings import PartitionSettings
from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchDrawer
from gnnloom.pipeline.partition.stochastic.batch_volume import fresh_volumes, num_fresh, volume_phases
from gnnloom.pipeline.partition.stochastic.drawn_batches import expected_merging, merge_batches, most_batches
from gnnloom.pipeline.partition.stochastic.merged_nets import MergedNets
from gnnloom.pipeline.partition.stochastic.restricted_nets import DrawnProblem, net_pieces
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage import errors
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import GnnloomError, PartitionerError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Names of the full-batch and of the stochastic hypergraph, and of the mapped vectors of their (num_vertices,) int32
#: parts.
FULL, STOCHASTIC = "hypergraph", "stochastic"
#: The answer: facts about the parts or an error, and the log.
ANSWER = "answer.json"
_REQUEST = "fit.json"
_CHILD = "gnnloom.pipeline.partition.stochastic.fit"


def partition_for_batches(problem: NativeProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    """Fill ``part`` with the better of two partitions: of the stochastic and of the full-batch hypergraph.

    Both are compared on batches that the model has not seen, and reported on yet other batches.

    Args:
        problem: the graph, the options, and where to work.
        part: (num_vertices,) int32.

    Returns:
        ``batch_volume``: rows sent per batch and product, on average, with these parts; ``batch_volume_full``: with the
        parts of the full-batch hypergraph; ``batch_gain``: share by which the first is smaller; ``batch_model``: the
        parts that were kept, the full-batch ones if both are equal.

        For uniform batches also ``batch_volume_expected`` and ``batch_volume_full_expected``: the volume of the
        stochastic and of the full-batch parts by the closed form; and ``annealing_stopped_by``: ``passes`` or
        ``time``.  For other batches also
        :meth:`~gnnloom.pipeline.partition.stochastic.drawn_batches.MergedBatches.facts`.

    Raises:
        BudgetError: the partitioner or the annealing would need more memory than there is.
    """
    options, folder = problem.options, problem.writer.work / "fit"
    # A native partitioner takes more per pin than the 80 bytes that weighing the nets of batches takes.
    problem.check_memory(problem.num_pins)
    graph, matrices = problem.graph, net_matrices(problem.graph, problem.transpose, options.directions)
    drawn = _drawn_problem(
        problem.writer, options, graph.artifact.path, [(each.artifact.path, GraphSizes.of(each)) for each in matrices]
    )
    nets: MergedNets | None = None
    facts: dict[str, Any] = {}
    if options.batches != "vertex":
        merged = merge_batches(drawn, problem.cluster, time.monotonic() + (options.time_limit or math.inf))
        nets, facts = merged.nets, merged.facts()
    facts |= fit_apart(problem, nets, folder)
    # A tie goes to the full-batch parts, which come first.
    found = {name: folder / name for name in (FULL, STOCHASTIC)}
    # The batches that choose the better parts would flatter them, so the report uses others.
    deciding, volume = fresh_volumes(drawn, found, options.parts, graph.nnz, problem.cluster)
    best = min(deciding, key=lambda name: deciding[name])
    part[:] = map_vector(found[best])
    gain = 1 - volume[best] / volume[FULL] if volume[FULL] else 0.0
    LOGGER.info("stochastic model: %.1f %% fewer rows per batch than the full-batch partition", 100 * gain)
    facts |= {"batch_volume": volume[best], "batch_volume_full": volume[FULL], "batch_gain": gain}
    return facts | {"batch_model": best}


def _drawn_problem(
    writer: ArtifactWriter, options: PartitionSettings, graph_path: Path, matrices: list[tuple[Path, GraphSizes]]
) -> DrawnProblem:
    """The batches to draw, and the nets of the rows of some matrices."""
    num_vertices = matrices[0][1].num_vertices
    drawer = BatchDrawer.of(options.batches, graph_path, num_vertices, options.batch_rate, options.seed)
    return DrawnProblem(writer, net_pieces(matrices), drawer)


def expected_phases(graph: GraphSizes, transpose: GraphSizes, options: PartitionSettings) -> list[Phase]:
    """The phases of the model for a graph of these sizes, to be counted.

    How many batches are drawn depends on the data: the phases are for the maximum number of batches.

    Args:
        transpose: sizes of the transpose; the graph's sizes if it is undirected.
    """
    both = options.directions == "both" and not graph.symmetric
    matrices = [(Path(), sizes) for sizes in ((transpose, graph) if both else (transpose,))]
    drawn = _drawn_problem(ArtifactWriter(Path(), "partition", ""), options, Path(), matrices)
    # Uniform batches need not be drawn to make the model, only to measure its parts.
    merging = [] if options.batches == "vertex" else expected_merging(drawn, most_batches(drawn.rate))
    return [*merging, *volume_phases(drawn, (Path(), Path()), options.parts, num_fresh(graph.nnz))]


@dataclass(frozen=True)
class FitRequest:
    """A request for the parts of the full-batch and of the stochastic hypergraph.

    Attributes:
        graph, transpose: folders of the graph and of its transpose.
        nets: of drawn batches; None for uniform batches, whose nets need no drawing.
        writer: of the partition; keeps the checksums of parts that were found.
    """

    graph: Path
    transpose: Path
    options: PartitionSettings
    program: NativeProgram
    nets: MergedNets | None
    writer: ArtifactWriter

    def problem(self, scratch: Path) -> NativeProblem:
        """The problem to partition, which no task works on."""
        graphs = Graph(Artifact(self.graph)), Graph(Artifact(self.transpose))
        part_path, cluster = scratch / "part.npy", InProcessCluster()
        return NativeProblem(*graphs, self.options, scratch, part_path, cluster, self.writer, LEVEL_STEPS, self.program)

    def write(self, folder: Path) -> None:
        """Leave the request in a folder."""
        content = {
            "graph": str(self.graph),
            "transpose": str(self.transpose),
            "options": asdict(self.options),
            "program": asdict(self.program),
            "nets": None if self.nets is None else self.nets.to_json(),
            "writer": asdict(self.writer) | {"path": str(self.writer.path)},
        }
        write_json(folder / _REQUEST, content)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what :meth:`write` left."""
        found = read_json(folder / _REQUEST)
        program: dict[str, Any] = found["program"]
        presets = tuple(Preset(**preset) for preset in program["presets"])
        nets: dict[str, Any] | None = found["nets"]
        writer = ArtifactWriter(**found["writer"] | {"path": Path(found["writer"]["path"])})
        return cls(
            Path(found["graph"]),
            Path(found["transpose"]),
            PartitionSettings(**found["options"]),
            NativeProgram(**program | {"presets": presets}),
            None if nets is None else MergedNets.of(writer.work, **nets),
            writer,
        )


def fit_apart(problem: NativeProblem, nets: MergedNets | None, folder: Path) -> dict[str, Any]:
    """Find the parts ``FULL`` and ``STOCHASTIC`` in ``folder``, in a process of its own; returns facts about them.

    Args:
        nets: of drawn batches; None for uniform batches.

    Raises:
        BudgetError: the partitioner or the annealing would need more memory than there is.
        DamagedWorkError: a file with the nets is damaged.
        PartitionerError: the partitioner failed or took too long, or the process ended.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Of an earlier run, which may have had another limit.
    (folder / ANSWER).unlink(missing_ok=True)
    graphs = problem.graph.artifact.path, problem.transpose.artifact.path
    FitRequest(*graphs, problem.options, problem.program, nets, problem.writer).write(folder)
    _, status = run_program(child_command(_CHILD, str(folder)), folder)
    if not (folder / ANSWER).exists():
        raise PartitionerError(
            f"model stochastic: the process that fits the parts ended with status {status}; last line of its output:"
            f" {last_line(folder)}"
        )
    answer = read_json(folder / ANSWER)
    for level, message in answer["said"]:
        LOGGER.log(level, "%s", message)
    if "error" in answer:
        name, *arguments = answer["error"]
        kind: type[GnnloomError] = getattr(errors, name)
        raise kind(*arguments)
    facts: dict[str, Any] = answer["facts"]
    return facts
