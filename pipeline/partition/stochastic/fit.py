"""Fits parts to batches: ``python -m gnnloom.pipeline.partition.stochastic.fit FOLDER PARENT``.

A process of its own holds the whole hypergraph, for a native program and for annealing, which do not work in pieces.
FOLDER has the request.  PARENT is the number of the process that waits for the result; when it ends, this process ends
as well.  Parts that are found are kept in sealed files, so that a run that was interrupted begins with the next, and
finds damaged ones again.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import fill_empty_parts
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph, column_net_hypergraph, net_matrices, vertex_weights
from gnnloom.pipeline.partition.native.child import die_first, die_with_parent
from gnnloom.pipeline.partition.native.guard import check_memory
from gnnloom.pipeline.partition.native.run import NativeProblem
from gnnloom.pipeline.partition.stochastic.annealing import IMPROVING, POLISHING, anneal, annealing_memory
from gnnloom.pipeline.partition.stochastic.batch_partition import ANSWER, FULL, STOCHASTIC, FitRequest
from gnnloom.pipeline.partition.stochastic.uniform_batches import BatchNets, net_owners, uniform_hypergraph
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector, write_vector
from gnnloom.storage.disk.files import write_json
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.wording import counted

LOGGER = logging.getLogger("gnnloom.pipeline")

#: (num_vertices,) int32 parts, and facts about them.
_Found = tuple[NDArray[np.int32], Mapping[str, Any]]


def main(folder: Path, parent: int) -> None:
    """Fit the parts that the request in ``folder`` asks for, and leave them there with an answer."""
    # Before anything slow: from here on a killed parent takes this process with it.
    die_with_parent(parent)
    die_first()
    said = _Said()
    LOGGER.addHandler(said)
    LOGGER.setLevel(logging.INFO)
    request = FitRequest.read(folder)
    try:
        answer: dict[str, Any] = {"facts": fit(request, folder)}
    except GnnloomError as error:
        answer = {"error": [type(error).__name__, *map(str, error.args)]}
    write_json(folder / ANSWER, answer | {"said": said.messages})


class _Said(logging.Handler):
    """Keeps what is logged for the process that waits."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append((record.levelno, record.getMessage()))


def fit(request: FitRequest, folder: Path) -> dict[str, Any]:
    """Find the parts of the full-batch and of the stochastic hypergraph, in the files ``FULL`` and ``STOCHASTIC``.

    Returns:
        Facts about the parts; see :func:`gnnloom.pipeline.partition.stochastic.batch_partition.partition_for_batches`.

    Raises:
        BudgetError: the partitioner or the annealing would need more memory than there is.
        PartitionerError: the partitioner failed or took too long.
    """
    problem = request.problem(folder)
    options, writer = problem.options, request.writer
    if request.nets is not None:
        nets = request.nets
        weight = vertex_weights(problem.graph, options.weighing)
        _kept(writer, folder / STOCHASTIC, lambda: (_native(problem, nets.load(weight)), {}))
        _kept(writer, folder / FULL, lambda: (problem.native(_full(problem)), {}))
        return {}
    full = BatchNets(
        _full(problem),
        net_owners(net_matrices(problem.graph, problem.transpose, options.directions)),
        options.batch_rate,
    )
    _, facts = _kept(writer, folder / STOCHASTIC, lambda: _partition_uniform(problem, full, folder))
    found, _ = _kept(writer, folder / FULL, lambda: (problem.native(full.full), {}))
    return {**facts, "batch_volume_full_expected": full.expected_volume(found, options.parts)}


def _partition_uniform(problem: NativeProblem, nets: BatchNets, folder: Path) -> _Found:
    """Find parts for batches of uniform vertices; facts are the closed form of their volume, and what ended it."""
    options, full = problem.options, nets.full
    check_memory(
        f"model stochastic: counting the pins of {counted(full.num_nets, 'net')} in {counted(options.parts, 'part')}",
        annealing_memory(full.num_vertices, full.num_nets, full.num_pins, options.parts),
        options.memory_limit,
        "use fewer parts or model hypergraph",
    )
    first, again = _starts(problem, nets, folder)
    schedules = {POLISHING: again, IMPROVING: first}
    deadline = time.monotonic() + (options.time_limit or math.inf)
    part, finished = anneal(nets, schedules, options.parts, options.imbalance, options.seed, deadline)
    fill_empty_parts(part, full.vertex_weight, options.parts)
    facts = {"batch_volume_expected": nets.expected_volume(part, options.parts)}
    return part, facts | {"annealing_stopped_by": "passes" if finished else "time"}


def _starts(problem: NativeProblem, nets: BatchNets, folder: Path) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the parts that annealing begins with.

    The first ones, which it may leave for better ones; and the same, improved once more, which it polishes.
    """
    chords = uniform_hypergraph(nets.full, nets.owner, nets.rate, problem.options.parts)
    first, _ = _kept(problem.writer, folder / "first", lambda: (_native(problem, chords), {}))
    again, _ = _kept(problem.writer, folder / "again", lambda: (problem.native(chords, first), {}))
    return first, again


def _kept(writer: ArtifactWriter, path: Path, find: Callable[[], _Found]) -> _Found:
    """Parts from a mapped vector, and the facts of their record; found and stored if they are missing.

    Raises:
        DamagedWorkError: the file is damaged.
    """
    task = f"fit/{path.name}"
    if not path.exists() or not writer.recorded_of([task]):
        with writer.task(task) as output:
            part, facts = find()
            output.facts = dict(facts)
            write_vector(path, [part])
    return np.array(map_vector(path)), writer.recorded_of([task])[task].facts


def _full(problem: NativeProblem) -> Hypergraph:
    options = problem.options
    return column_net_hypergraph(problem.graph, problem.transpose, options.weighing, options.directions)


def _native(problem: NativeProblem, hypergraph: Hypergraph) -> NDArray[np.int32]:
    if not hypergraph.num_nets:
        LOGGER.warning("model stochastic: batches exchange no rows; the parts are balanced and nothing else")
    problem.check_memory(hypergraph.num_pins)
    return problem.native(hypergraph)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
