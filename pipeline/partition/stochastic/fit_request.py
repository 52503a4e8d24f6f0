"""What the process that fits parts to batches is asked, and how it is started."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from gnnloom.pipeline.partition.native.problem import NativeProblem
from gnnloom.pipeline.partition.native.program import NativeProgram
from gnnloom.pipeline.partition.native.run import last_line, run_program
from gnnloom.pipeline.partition.preset import Preset
from gnnloom.pipeline.partition.settings import PartitionSettings
from gnnloom.pipeline.partition.stochastic.merged_nets import MergedNets
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import errors
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.errors import GnnloomError, PartitionerError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.files import read_json, write_json

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Files of the (num_vertices,) int32 parts of the full-batch and of the stochastic hypergraph.
FULL, STOCHASTIC = "hypergraph.npy", "stochastic.npy"
#: The answer: facts about the parts or an error, and what was logged.
ANSWER = "answer.json"
_REQUEST = "fit.json"
_CHILD = "gnnloom.pipeline.partition.stochastic.fit"


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
        return NativeProblem(*graphs, self.options, scratch, part_path, cluster, self.writer, self.program)

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
    _, status = run_program([sys.executable, "-m", _CHILD, str(folder), str(os.getpid())], folder)
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
