"""Projects the tasks, memory per worker and disk of links from files, before the files are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gnnloom.pipeline.ingest.preparation import preparation_phases
from gnnloom.pipeline.links.baselines import BaselinePlan, copied_bytes
from gnnloom.pipeline.links.drawn_pairs import split_phase, split_plans
from gnnloom.pipeline.links.edge_keys import EdgeKeys
from gnnloom.pipeline.links.edge_lookup import LookupPlan
from gnnloom.pipeline.links.given.given_ids import GivenLists, GivenPlan, counting_phase
from gnnloom.pipeline.links.given.given_stage import GivenLinks
from gnnloom.pipeline.links.message_graph import MessagePlan, copied_arrays
from gnnloom.pipeline.links.negative_pools import PoolPlan, loop_phase
from gnnloom.pipeline.links.options import RECIPROCAL_APART, message_key
from gnnloom.pipeline.links.pair_arrays import PairArray, array_phase, drawn_arrays
from gnnloom.pipeline.links.projection import (
    STATED,
    LinkProjection,
    known_sizes,
    num_edges,
    reverse_phases,
    stated_records,
)
from gnnloom.pipeline.links.reciprocity import reverse_plan
from gnnloom.pipeline.links.stage import held_out_splits
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.links import PAIR, Links
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter


def project_given(dataset: Dataset, graph: Graph, given: GivenLinks, workers: int, memory: int) -> LinkProjection:
    """Project the links that files give, as if all pairs for validation and testing were edges.

    Reads at most as much of each file as one task; the pairs of a larger file are estimated, unless it states their
    number.

    Raises:
        InputError: something in a file is not a pair, or every pair of vertices is an edge and negatives are drawn.
    """
    key = given.key(graph.artifact.key)
    path = dataset.path / "links" / key
    is_stored = ArtifactWriter(path, "links", key).is_complete
    # Whether edges are held out, and the graph is another one, is known once the links are stored.
    expected = message_key(graph.artifact.key, key) if given.holds_out else graph.artifact.key
    message = Links(Artifact(path)).message_graph if is_stored else expected
    has_graph = ArtifactWriter(dataset.path / "graph" / message, "graph", message).is_complete
    lists = GivenLists.of([graph], given.lists)
    rows = tuple(each.expected_rows(names=lists.names) for each in lists.lists)
    plan = GivenPlan(STATED, lists, tuple(lists.ranges), rows, given.kind, memory, (graph,))
    phases, sizes = given_phases(given, graph, plan, memory), GraphSizes.of(graph)
    scores = any(phase.name == "baselines" and phase.tasks for phase in phases)
    return LinkProjection.of(
        dataset,
        phases,
        key=key,
        message_graph=message,
        is_done=is_stored and has_graph,
        pairs=sum(all_pairs(given, plan, sizes).values()),
        workers=workers,
        sources=[ShardSource(each, None) for each in [*([sizes] if scores else []), *_known_sizes(sizes, given)]],
        copy_bytes=copied_bytes(sizes) if scores else 0,
    )


def given_phases(given: GivenLinks, graph: Graph, plan: GivenPlan, memory: int) -> list[Phase]:
    """All phases of :func:`~gnnloom.pipeline.links.given.given_stage.store_links`, with stated numbers of rows."""
    sizes, num_pairs = GraphSizes.of(graph), plan.num_pairs
    arrays = plan.arrays(symmetric=graph.symmetric)
    phases = [*preparation_phases(plan.given), counting_phase(STATED, plan.given), *plan.phases()]
    if not sizes.symmetric and given.holds_out and given.reciprocal != RECIPROCAL_APART:
        phases.append(reverse_plan(STATED, EdgeKeys(Path(), 0), sizes)[0])
    phases.append(array_phase(STATED, arrays))
    if given.pooled_splits:
        wanted = {split: num_pairs[split] for split in given.pooled_splits}
        # As if every vertex had a loop, as ingest adds them.
        pools = PoolPlan.of(STATED, Path(), sizes, sizes.block_rows, wanted, given.negatives, given.seed)
        (known,) = _known_sizes(sizes, given) or [sizes]
        phases += [loop_phase(STATED, Path(), known), *pools.phases(), array_phase(STATED, pools.arrays())]
        arrays += pools.arrays()
    records = stated_records(arrays)
    stored = graph.weights(0)
    dtype = None if stored is None else stored.dtype.name
    asked = {path: record for path, record in records.items() if not path.endswith("/value")}
    looking = LookupPlan(STATED, asked, Path(), sizes, dtype, given.holds_out, memory)
    phases += looking.phases()
    if entries := looking.arrays():
        phases.append(array_phase(STATED, entries))
    if given.holds_out:
        held_out = [records[f"{split}/pair"] for split in held_out_splits(train=False)]
        where = Path(), held_out, Path(), sizes, copied_arrays(graph), memory
        writer = ArtifactWriter(Path(), "graph", "")
        phases += MessagePlan(writer, *where, both=sizes.symmetric or bool(_known_sizes(sizes, given))).phases()
    if "train" not in num_pairs:
        rest = _rest_arrays(sizes, dtype, all_pairs(given, plan, sizes))
        phases += _rest(sizes, dtype, rest)
        records |= stated_records(rest)
    if _known_sizes(sizes, given):
        phases += reverse_phases(sizes, dtype, records, memory)
    # The message graph is about as large as the graph.
    scoring = BaselinePlan.of(STATED, Path(), None, sizes, records)
    return [*phases, *(scoring.phases() if given.kind == PAIR else [])]


def _known_sizes(sizes: GraphSizes, given: GivenLinks) -> list[GraphSizes]:
    return known_sizes(sizes, given.reciprocal) if given.holds_out else []


def all_pairs(given: GivenLinks, plan: GivenPlan, sizes: GraphSizes) -> dict[str, int]:
    """Approximate number of pairs of each split; without a list, the training pairs are the remaining edges."""
    held_out = sum(plan.num_pairs.values()) if given.holds_out else 0
    return {"train": max(1, num_edges(sizes) - held_out), **plan.num_pairs}


def _rest_arrays(sizes: GraphSizes, weight_dtype: str | None, num_pairs: Mapping[str, int]) -> list[PairArray]:
    """The arrays of the edges that are left, which are the pairs for training."""
    plans = {"train": split_plans(STATED, sizes, weight_dtype)["train"]}
    return drawn_arrays(plans, num_pairs, weight_dtype, disjoint=False)


def _rest(sizes: GraphSizes, weight_dtype: str | None, arrays: Sequence[PairArray]) -> list[Phase]:
    """The phases that write all edges that are left as the pairs for training."""
    plans = {"train": split_plans(STATED, sizes, weight_dtype)["train"]}
    return [split_phase(STATED, EdgeKeys(Path(), 0), sizes, (), plans), array_phase(STATED, arrays)]
