"""Counts the edges of a directed graph that have a reverse, and decides what this means for links.

A pass over the row blocks finds it without a sort. Both directions of an edge have the same random number. The sum of
the numbers, negative for edges whose source is the larger vertex, is zero modulo 2^64 if every edge has its reverse,
and otherwise with a probability of 2^-64 only. The share of the edges that have their reverse is taken from the edges
with the smallest numbers: all edges if they are few, otherwise about 2^18 edges, with a standard error of 0.1 %.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.links.edge_keys import Directions, EdgeKeys, pair_keys
from gnnloom.pipeline.links.options import RECIPROCAL_APART, RECIPROCAL_TOGETHER
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, records_of, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.disk.files import parsing, read_json, reading_work, write_json
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.random_numbers import stream_key

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Edges whose reverses are counted, about.
_SAMPLED: Final = 1 << 18
#: Sums of random numbers: of the pattern of the edges, of their weights, and of their times.
_SUMS: Final = ("pattern", "weight", "time")


@dataclass(frozen=True)
class Reciprocity:
    """Facts about the reverses of a directed graph's edges.

    Attributes:
        edges: edges between different vertices.
        reverse: number of edges whose reverse is an edge; an estimate for a large graph, unless every edge has its
            reverse.
        same_weights: every edge has its reverse, with the same weight.
        same_times: every edge has its reverse, with the same time; False if the times are not looked at.
        is_exact: the number is not an estimate.
    """

    edges: int
    reverse: int
    same_weights: bool
    same_times: bool
    is_exact: bool = False

    @property
    def is_full(self) -> bool:
        """Whether every edge has its reverse."""
        return self.reverse == self.edges > 0

    @property
    def share(self) -> str:
        """The share of the edges that have their reverse, for people; 100 % only if all have it."""
        percent = 100 * self.reverse / max(1, self.edges)
        return "less than 0.1 %" if percent < 0.1 else f"{min(percent, 99.9):.1f} %"


@dataclass(frozen=True)
class ReverseTask(Task):
    """Sums the random numbers of the edges of a block, and routes the smallest ones.

    Attributes:
        edges: with one random number for both directions.
        limit: the largest number that is routed.
        sampled: where the numbers go, and the lane of the task.
    """

    edges: EdgeKeys
    block: int
    limit: int
    sampled: Shuffle
    lane: Lane


def reverse_plan(writer: ArtifactWriter, edges: EdgeKeys, sizes: GraphSizes) -> tuple[Phase, ShufflePlan]:
    """The phase that looks at the reverses of the edges, and where its tasks leave random numbers."""
    plan = ShufflePlan.unmerged(writer, Shuffle("reverse", 1, (Column("number", "uint64"),), 1), sizes.num_blocks)
    limit = min((1 << 64) - 1, (_SAMPLED << 64) // max(1, sizes.nnz))
    tasks = []
    for block, nnz in enumerate(sizes.block_nnz):
        routed = 8 * min(nnz, _SAMPLED * nnz // max(1, sizes.nnz))
        # Numbers of the weights and of the times in addition to what is read.
        needs = Needs(edges.read_bytes(sizes, block), routed, memory=2 * edges.reading_bytes(writer.scratch))
        how = edges, block, limit, plan.shuffle, plan.lane(block)
        tasks.append(ReverseTask(writer, f"reverse/{block:05d}", needs, *how))
    return Phase("edges and their reverses", sum_numbers, tasks, files=(plan.files,)), plan


def sum_numbers(task: ReverseTask) -> int:
    """Sum the random numbers of a block's edges, and route the smallest; returns how many edges it has."""
    edges, sums, stream = 0, dict.fromkeys(_SUMS, 0), np.uint64(task.edges.stream)
    with task.writer.task(task.name) as output, task.sampled.routed(output, task.lane) as out:
        for found in task.edges.read(task.block, task.writer.scratch):
            edges += len(found.source)
            number, is_forward = found.words[-1], found.source < found.target
            parts = {"pattern": number}
            if found.weight is not None:
                parts["weight"] = _numbers_of(stream, number, found.weight.view(f"u{found.weight.itemsize}"))
            if task.edges.times is not None:
                parts["time"] = _numbers_of(stream, number, found.words[0])
            for name, each in parts.items():
                sums[name] += int(np.sum(each[is_forward])) - int(np.sum(each[~is_forward]))
            small = number[number <= np.uint64(task.limit)]
            if len(small):
                out.add(Index.of_offsets(np.array([0, len(small)], np.int64)), {"number": small})
        output.facts |= {"edges": edges, "sums": {name: str(total % (1 << 64)) for name, total in sums.items()}}
    return edges


def _numbers_of(stream: np.uint64, number: NDArray[np.uint64], value: NDArray[Any]) -> NDArray[np.uint64]:
    """(num_edges,) uint64 random numbers of edges and their values."""
    return pair_keys(stream, number.view(np.int64), value.astype(np.uint64, copy=False).view(np.int64))


def find_reciprocity(writer: ArtifactWriter, graph: Graph, times: Path | None, cluster: Cluster) -> Reciprocity:
    """Look for the reverses of a directed graph's edges, unless an earlier command did.

    Args:
        times: folder of the graph artifact that has the times of the edges; None to look at no times.
    """
    path = writer.work / "reciprocity.json"
    if not path.exists():
        edges = EdgeKeys(graph.artifact.path, int(stream_key(0, "links/reverse")), times, Directions.TOGETHER)
        phase, plan = reverse_plan(writer, edges, GraphSizes.of(graph))
        run([phase], cluster, writer, [plan.files])
        facts = [record.facts for record in records_of(phase, writer)]
        total = sum(int(fact["edges"]) for fact in facts)
        sums = {name: sum(int(fact["sums"][name]) for fact in facts) % (1 << 64) for name in _SUMS}
        is_full = not sums["pattern"]
        same_times = is_full and times is not None and not sums["time"]
        reverse, is_exact = (total, True) if is_full else _reverses(plan, total)
        write_json(path, asdict(Reciprocity(total, reverse, is_full and not sums["weight"], same_times, is_exact)))
        plan.shuffle.remove(writer.work)
    with reading_work(path), parsing(path, "edges and their reverses"):
        return Reciprocity(**read_json(path))


def _reverses(plan: ShufflePlan, total: int) -> tuple[int, bool]:
    """The number of edges that have their reverse, if some do not; and whether all edges were looked at."""
    work = plan.writer.work
    with OpenFiles(work) as files:
        parts = [section.read("number") for section in plan.shuffle.rows(work, files).sections(0, 1)]
    numbers = np.concatenate([np.empty(0, np.uint64), *parts])
    found = 2 * (len(numbers) - len(distinct(numbers)))
    return min(round(total * found / max(1, len(numbers))), max(0, total - 1)), len(numbers) == total


def choose_directions(found: Reciprocity | None, reciprocal: str | None, *, by_time: bool = False) -> Directions:
    """Choose how links treat the two directions of an edge, and log the choice if it matters.

    Args:
        found: None if nothing was looked for, as the graph is symmetric or its directions stay apart.
        reciprocal: what the user wants; None to decide by the graph.
        by_time: the latest edges are held out.

    Raises:
        InputError: directions are to be held out together by their times, which differ.
    """
    # In a large graph, the count may miss a few reverses.
    is_wanted = reciprocal == RECIPROCAL_TOGETHER
    if found is None or reciprocal == RECIPROCAL_APART or not (found.reverse or is_wanted):
        return Directions.APART
    if found.same_weights and (found.same_times or not by_time):
        LOGGER.warning(
            "every edge is there in both directions: links hold both out together, as for the same graph stored with"
            " --undirected; --reciprocal apart holds each direction out by itself"
        )
        return Directions.ONE_PAIR
    which = "every edge has its reverse" if found.is_full else f"{found.share} of the edges have their reverse"
    if not found.reverse:
        which = "some edges may have their reverse, as not all were looked at"
    if by_time and not found.same_times and (found.reverse or not found.is_exact):
        text = (
            f"{which}, and the times of both may differ; `gnnloom ingest --undirected --times --merge max` stores a"
            " graph whose edges have the later one"
        )
        if is_wanted:
            raise InputError(f"reciprocal {reciprocal}: by time, but {text}")
        LOGGER.warning("%s; until then, a held-out edge may have its reverse in the message graph", text)
        return Directions.APART
    if found.is_full or is_wanted:
        if found.is_full:
            LOGGER.warning(
                "every edge is there in both directions, with another weight: links hold both out together, each as a"
                " pair of its own; --reciprocal apart holds each direction out by itself"
            )
        return Directions.TOGETHER
    LOGGER.warning(
        "%s: a held-out edge may have its reverse in the message graph and in training; --reciprocal together holds"
        " out both, --reciprocal apart keeps them apart without this warning",
        which,
    )
    return Directions.APART


def reciprocity_facts(found: Reciprocity | None, directions: Directions) -> Mapping[str, Any]:
    """Facts of the manifest of links; none for a symmetric graph."""
    if found is None:
        return {}
    together = {"together": True} if directions is Directions.TOGETHER else {}
    return {"edges_of_graph": found.edges, "edges_with_reverse": found.reverse, **together}
