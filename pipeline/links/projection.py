"""Projects the tasks, memory per worker and disk of links, before they are drawn."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from gnnloom.pipeline.links.baselines import BaselinePlan, copied_bytes
from gnnloom.pipeline.links.drawn_pairs import KEY_ORDER, split_phase, split_plans
from gnnloom.pipeline.links.edge_keys import TIME_BITS, EdgeKeys
from gnnloom.pipeline.links.edge_lookup import LookupPlan
from gnnloom.pipeline.links.hard_stage import (
    check_pairs,
    hard_key,
    hard_phases,
    negative_records,
    neighbors_plan,
    vertices_of,
)
from gnnloom.pipeline.links.message_graph import MessagePlan, copied_arrays
from gnnloom.pipeline.links.negative_pools import POOLED_SPLITS, PoolPlan, loop_phase
from gnnloom.pipeline.links.options import (
    RECIPROCAL_APART,
    RECIPROCAL_TOGETHER,
    DrawOptions,
    HardOptions,
    links_key,
    message_key,
)
from gnnloom.pipeline.links.pair_arrays import PairArray, array_phase, drawn_arrays
from gnnloom.pipeline.links.reciprocity import reverse_plan
from gnnloom.pipeline.links.stage import held_out_splits, times_of
from gnnloom.pipeline.links.thresholds import ROUND_BITS, round_plan
from gnnloom.pipeline.shards.shard_source import ShardSource, find_transpose
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase import Phase, count, temporary_bytes, total_tasks
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.mapped_vertices import vertices_contents
from gnnloom.storage.artifacts.typed.typed_graph import Relation
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.arrays import ArrayRecord, Piece
from gnnloom.storage.format.artifact import ArtifactWriter

#: The writer of plans that are counted and not run.
STATED: Final = ArtifactWriter(Path(), "links", "")


@dataclass(frozen=True)
class LinkProjection:
    """Expected needs of links and of the graph without them.

    Attributes:
        key: key of the links.
        message_graph: key of the graph without held-out edges.
        is_done: both exist, so nothing will run.
        pairs: approximate number of pairs of all splits: the number of loops is not known.
        tasks: approximate number of independent tasks: the number of rounds that count keys depends on the keys.
        workers: tasks at a time.
        peak_memory: bytes of the largest worker process, at the most.
        temporary_bytes: bytes of temporary files at their peak.
        output_bytes: both artifacts on disk, uncompressed, and the transpose of a directed graph.
        copy_bytes: uncompressed copies of the graphs, which tasks map to score pairs by their neighbors; 0 if no pairs
            are scored or all scores exist.
        disk_free_bytes: bytes free on the disk.
    """

    dataset: str
    key: str
    message_graph: str
    is_done: bool
    pairs: int
    tasks: int
    workers: int
    peak_memory: int
    temporary_bytes: int
    output_bytes: int
    copy_bytes: int
    disk_free_bytes: int

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        phases: Sequence[Phase],
        *,
        key: str,
        message_graph: str,
        is_done: bool,
        pairs: int,
        workers: int,
        sources: Iterable[ShardSource],
        copy_bytes: int,
    ) -> LinkProjection:
        """Project what some phases need.

        Args:
            sources: the graphs whose transposes are read, which are made if they do not exist.
            copy_bytes: of copies of graphs and vertex data, if not all is done.
        """
        counted, made = count(phases), [each for each in sources if each.transpose_tasks]
        tasks = total_tasks(counted) + sum(each.transpose_tasks for each in made)
        written = sum(task.needs.writes for phase in phases if phase.makes_arrays for task in phase.tasks)
        return cls(
            dataset=dataset.name,
            key=key,
            message_graph=message_graph,
            is_done=is_done,
            pairs=pairs,
            tasks=0 if is_done else tasks,
            workers=workers,
            peak_memory=BASE_MEMORY + max(phase.most_memory for phase in counted),
            temporary_bytes=0 if is_done else temporary_bytes(phases),
            output_bytes=0 if is_done else written + sum(each.graph.raw_bytes for each in made),
            copy_bytes=0 if is_done else copy_bytes,
            disk_free_bytes=shutil.disk_usage(dataset.path).free,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def project_links(dataset: Dataset, graph: Graph, options: DrawOptions, workers: int, memory: int) -> LinkProjection:
    """Project the links that are drawn from a graph.

    Raises:
        InputError: a split gets no pair, or edges are chosen by their times and have none.
        NotFoundError: the links do not exist, nor does the graph that is to have the times.
    """
    key = links_key(graph.artifact.key, options)
    message = message_key(graph.artifact.key, key)
    has_links, has_graph = (
        ArtifactWriter(dataset.path / kind / each, kind, each).is_complete
        for kind, each in (("links", key), ("graph", message))
    )
    if not has_links:
        times_of(dataset, graph, options)
    sizes = GraphSizes.of(graph)
    phases = link_phases(sizes, options, memory, copied_arrays(graph), has_times=options.by_time)
    # Upper bounds of the graph without held-out edges.
    kept = sizes.without_times()
    scores = options.negatives > 0
    return LinkProjection.of(
        dataset,
        phases,
        key=key,
        message_graph=message,
        is_done=has_links and has_graph,
        pairs=num_edges(sizes),
        workers=workers,
        sources=[ShardSource(each, None) for each in (kept, *known_sizes(sizes, options.reciprocal))] if scores else [],
        copy_bytes=copied_bytes(kept) if scores else 0,
    )


def known_sizes(sizes: GraphSizes, reciprocal: str | None) -> list[GraphSizes]:
    """The sizes of the graph with the reverses of its edges, as if no edge had one, if it is made."""
    if sizes.symmetric or reciprocal != RECIPROCAL_TOGETHER:
        return []
    how = sizes.num_vertices, 2 * sizes.nnz
    blocks, stored_bytes = sizes.num_blocks, sizes.stored_bytes
    return [GraphSizes.even(*how, symmetric=False, weighted=False, num_blocks=blocks, stored_bytes=stored_bytes)]


def project_hard(dataset: Dataset, links: Links, options: HardOptions, workers: int) -> LinkProjection:
    """Project the links with hard negatives of the pairs of others. The numbers of tasks are exact.

    Of a relation of a graph with types, the tasks that make the reverses of its relations, if these do not exist, are
    not counted.

    Raises:
        InputError: the pairs cannot have such negatives.
    """
    check_pairs(links)
    key, vertices = hard_key(dataset, links, options), vertices_of(dataset, links, options)
    path = dataset.path / "links" / key
    is_done = ArtifactWriter(path, "links", key).is_complete
    records = {f"{split}/pair": links.artifact.record(f"{split}/pair") for split in POOLED_SPLITS}
    records |= {each.path: each for split in POOLED_SPLITS for each in negative_records(links, split, options)}
    matrices, sources = _matrices_of(dataset, links), list[ShardSource]()
    if links.relation is None:
        graphs = [each for each in matrices if isinstance(each, Graph)]
        sources = [ShardSource.of(graph, None, find_transpose(dataset, graph)) for graph in graphs]
        sizes = [each.graph for each in sources]
    else:
        sizes = [GraphSizes.of_relation(each) for each in matrices if isinstance(each, Relation)]
    scoring = neighbors_plan(STATED, links, Path(), None, sizes[-1], records if links.relation is None else {})
    phases = [*hard_phases(links, vertices, options, STATED, scoring.neighbors, (Path(), None)), *scoring.phases()]
    phases += [] if links.relation is None else [scoring.counting()[0]]
    copied = [
        content for each in dict.fromkeys(vertices) if each is not None for content in vertices_contents(each).values()
    ]
    return LinkProjection.of(
        dataset,
        phases,
        key=key,
        message_graph=links.message_graph,
        is_done=is_done,
        pairs=sum(links.num_pairs.values()),
        workers=workers,
        sources=sources,
        copy_bytes=sum(map(copied_bytes, sizes)) + sum(each.num_bytes for each in copied),
    )


def _matrices_of(dataset: Dataset, links: Links) -> list[Graph | Relation]:
    """The graph of links and their message graph, or their relation in both; one if no edge is held out."""
    keys = dict.fromkeys((links.graph, links.message_graph))
    if links.relation is None:
        return [dataset.graph(key) for key in keys]
    return [dataset.typed_graph(key).relation(links.relation.name) for key in keys]


def num_edges(sizes: GraphSizes) -> int:
    """Approximate number of edges of a graph, as if every vertex had a loop, which ingest adds."""
    entries = max(0, sizes.nnz - sizes.num_vertices)
    return entries // 2 if sizes.symmetric else entries


def without_links(sizes: GraphSizes, options: DrawOptions) -> GraphSizes:
    """Approximate sizes of the graph without held-out edges.

    Raises:
        InputError: a split gets no pair.
    """
    held_out = options.ranks(num_edges(sizes))[-1] * (2 if sizes.symmetric else 1)
    sizes = sizes.without_times()
    share = 1 - held_out / max(1, sizes.nnz)
    block_nnz = tuple(int(nnz * share) for nnz in sizes.block_nnz)
    scaled = (int(size * share) for size in (sizes.stored_bytes, sizes.raw_bytes))
    stored_bytes, raw_bytes = scaled
    return replace(sizes, nnz=sizes.nnz - held_out, block_nnz=block_nnz, stored_bytes=stored_bytes, raw_bytes=raw_bytes)


def link_phases(
    sizes: GraphSizes,
    options: DrawOptions,
    memory: int,
    copied: Mapping[str, tuple[int, int, int]],
    *,
    has_times: bool,
) -> list[Phase]:
    """All phases with stated sizes.

    Args:
        copied: as for :class:`~gnnloom.pipeline.links.message_graph.MessagePlan`.
        has_times: whether the graph, or the other one that is named for them, has the times of the edges.

    Raises:
        InputError: a split gets no pair, or edges are chosen by their times and have none.
    """
    options.check_times("links", has_times=has_times)
    total, edges = num_edges(sizes), EdgeKeys(Path(), 0, Path() if options.by_time else None)
    ends = options.ranks(total)
    # As if directions stay apart, which has more pairs.
    looks = not sizes.symmetric and options.reciprocal != RECIPROCAL_APART
    phases = [reverse_plan(STATED, edges, sizes)[0]] if looks else []
    phases += round_phases(edges, sizes, total, ends, by_time=options.by_time)
    disjoint, kept = len(ends) == len(KEY_ORDER), sizes.without_times()
    weight_dtype = "float32" if kept.weighted else None
    plans = split_plans(STATED, sizes, None if disjoint else weight_dtype)
    phases.append(split_phase(STATED, edges, sizes, ends, plans))
    sums = np.diff([0, *ends, total])
    num_pairs = {split: int(count) for split, count in zip(KEY_ORDER, sums, strict=False)}
    # As for the number of edges: every vertex has a loop.
    pools = PoolPlan.of(STATED, Path(), sizes, sizes.block_rows, num_pairs, options.negatives, options.seed)
    known = known_sizes(sizes, options.reciprocal) if pools.pools else []
    phases += [*(loop_phase(STATED, Path(), each) for each in known), *pools.phases()]
    arrays = [*drawn_arrays(plans, num_pairs, weight_dtype, disjoint=disjoint), *pools.arrays()]
    phases.append(array_phase(STATED, arrays))
    held_out = [f"{split}/pair" for split in held_out_splits(train=disjoint)]
    records = stated_records(arrays)
    pairs = [records[path] for path in held_out]
    writer = ArtifactWriter(Path(), "graph", "")
    both = sizes.symmetric or options.reciprocal == RECIPROCAL_TOGETHER
    phases += MessagePlan(writer, Path(), pairs, Path(), sizes, copied, memory, both=both).phases()
    # The message graph is about as large as the graph.
    if options.reciprocal == RECIPROCAL_TOGETHER and not sizes.symmetric and not disjoint:
        phases += reverse_phases(kept, weight_dtype, records, memory)
    return [*phases, *BaselinePlan.of(STATED, Path(), None, kept, records).phases()]


def round_phases(edges: EdgeKeys, sizes: GraphSizes, total: int, ends: Sequence[int], *, by_time: bool) -> list[Phase]:
    """The phases that find the keys of the last edge of each split, with stated sizes.

    Args:
        total: number of edges.
        ends: as :meth:`~gnnloom.pipeline.links.options.DrawOptions.ranks` gives them.
    """
    # A round leaves one in 2^16 of the edges; of times, perhaps all.
    rounds = next(rounds for rounds in range(1, edges.key_bits) if total >> ROUND_BITS * rounds == 0)
    time_rounds = TIME_BITS // ROUND_BITS if by_time else 0
    return [
        round_plan(STATED, edges, sizes, range(len(ends) if number else 1), number * ROUND_BITS)[0]
        for number in range(min(time_rounds + rounds + 1, edges.key_bits // ROUND_BITS))
    ]


def reverse_phases(
    sizes: GraphSizes, weight_dtype: str | None, records: Mapping[str, ArrayRecord], memory: int
) -> list[Phase]:
    """The phases that write the entries of the reverses of pairs for training, with stated sizes."""
    pairs, how = {"train/pair": records["train/pair"]}, (False, memory, "train/reverse_weight")
    plan = LookupPlan(STATED, pairs, Path(), sizes, weight_dtype, *how, reverse=True)
    return [*plan.phases(), array_phase(STATED, plan.arrays())]


def stated_records(arrays: Iterable[PairArray]) -> dict[str, ArrayRecord]:
    """The records of arrays as the tasks that write them leave them, by path."""
    return {
        each.path: ArrayRecord(
            each.path,
            each.shape,
            each.dtype,
            each.dims,
            tuple(Piece(task.start, task.stop, "", "") for task in each.tasks(STATED)),
        )
        for each in arrays
    }
