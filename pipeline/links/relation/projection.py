"""Projects the tasks, memory per worker and disk of links of a relation, before they are drawn or read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnloom.pipeline.ingest.preparation import preparation_phases
from gnnloom.pipeline.links.drawn_pairs import KEY_ORDER, split_phase, split_plans
from gnnloom.pipeline.links.edge_keys import EdgeKeys, can_have_loops
from gnnloom.pipeline.links.given.given_ids import GivenLists, GivenPlan, counting_phase
from gnnloom.pipeline.links.given.given_stage import GivenLinks
from gnnloom.pipeline.links.negative_pools import PoolPlan, loop_phase
from gnnloom.pipeline.links.options import DrawOptions, kept_graph_key, relation_links_key
from gnnloom.pipeline.links.pair_arrays import array_phase, drawn_arrays
from gnnloom.pipeline.links.projection import STATED, LinkProjection, round_phases, stated_records
from gnnloom.pipeline.links.relation.given import check_given, ends_of, given_message_key, lookup_of, rest_arrays
from gnnloom.pipeline.links.relation.kept_edges import KeptPlan
from gnnloom.pipeline.links.relation.stage import check_relation
from gnnloom.pipeline.links.stage import held_out_splits
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.typed.typed_graph import Relation
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter


def project_relation_links(dataset: Dataset, relation: Relation, options: DrawOptions, workers: int) -> LinkProjection:
    """Project the links that are drawn from a relation.

    Raises:
        InputError: an option does not apply, or a split gets no pair.
    """
    check_relation(relation, options)
    graph = relation.artifact.key
    key = relation_links_key(graph, options)
    message = kept_graph_key(graph, key, relation.name)
    is_done = all(
        ArtifactWriter(dataset.path / kind / each, kind, each).is_complete
        for kind, each in (("links", key), ("graph", message))
    )
    sizes = GraphSizes.of_relation(relation)
    return LinkProjection.of(
        dataset,
        relation_phases(sizes, options, relation.name, has_loops=can_have_loops(relation)),
        key=key,
        message_graph=message,
        is_done=is_done,
        pairs=sizes.nnz,
        workers=workers,
        sources=[],
        copy_bytes=0,
    )


def relation_phases(sizes: GraphSizes, options: DrawOptions, relation: str, *, has_loops: bool) -> list[Phase]:
    """All phases with stated sizes, as if no edge were a loop or parallel to another one.

    Raises:
        InputError: a split gets no pair.
    """
    edges = EdgeKeys(Path(), 0, Path() if options.by_time else None, relation=relation)
    ends = options.ranks(sizes.nnz)
    phases = round_phases(edges, sizes, sizes.nnz, ends, by_time=options.by_time)
    kind = options.kind
    plans = split_plans(STATED, sizes, None, has_edges=True, kind=kind)
    phases.append(split_phase(STATED, replace(edges, kind=kind), sizes, ends, plans))
    sums, disjoint = np.diff([0, *ends, sizes.nnz]), len(ends) == len(KEY_ORDER)
    num_pairs = {split: int(count) for split, count in zip(KEY_ORDER, sums, strict=False)}
    how = [0] * sizes.num_blocks, num_pairs, options.num_negatives, options.seed, relation
    pools = PoolPlan.of(STATED, Path(), sizes, *how, has_loops=has_loops)
    arrays = [*drawn_arrays(plans, num_pairs, None, disjoint=disjoint, has_edges=True, kind=kind), *pools.arrays()]
    phases += [*pools.phases(), array_phase(STATED, arrays)]
    records = stated_records(arrays)
    held_out = [records[f"{split}/edge"] for split in held_out_splits(train=disjoint)]
    return [*phases, *KeptPlan(STATED, Path(), relation, sizes, Path(), held_out).phases()]


def project_given_relation(
    dataset: Dataset, relation: Relation, given: GivenLinks, workers: int, memory: int
) -> LinkProjection:
    """Project pairs of a relation from files, as if each pair for validation and testing was an edge.

    Raises:
        InputError: an option does not apply, or something in a file is not a pair.
    """
    check_given(relation, given)
    graph = relation.artifact.key
    key = given.key(graph)
    path, expected = dataset.path / "links" / key, given_message_key(relation, key, given)
    is_stored = ArtifactWriter(path, "links", key).is_complete
    message = Links(Artifact(path)).message_graph if is_stored else expected
    has_graph = ArtifactWriter(dataset.path / "graph" / message, "graph", message).is_complete
    lists = GivenLists.of(ends_of(relation), given.lists)
    rows = tuple(each.expected_rows(names=lists.names) for each in lists.lists)
    plan = GivenPlan(STATED, lists, tuple(lists.ranges), rows, given.kind, memory, ends_of(relation))
    rest = {} if "train" in plan.num_pairs else {"train": relation.nnz}
    return LinkProjection.of(
        dataset,
        given_relation_phases(relation, given, plan, memory),
        key=key,
        message_graph=message,
        is_done=is_stored and has_graph,
        pairs=sum((plan.num_pairs | rest).values()),
        workers=workers,
        sources=[],
        copy_bytes=0,
    )


def given_relation_phases(relation: Relation, given: GivenLinks, plan: GivenPlan, memory: int) -> list[Phase]:
    """All phases of links of a relation from files, with stated numbers of rows."""
    sizes, num_pairs, name = GraphSizes.of_relation(relation), plan.num_pairs, relation.name
    arrays = plan.arrays(symmetric=False)
    phases = [*preparation_phases(plan.given), counting_phase(STATED, plan.given), *plan.phases()]
    phases.append(array_phase(STATED, arrays))
    if given.pooled_splits:
        wanted = {split: num_pairs[split] for split in given.pooled_splits}
        # As if no edge was a loop or parallel to another one.
        how = [0] * sizes.num_blocks, wanted, given.negatives, given.seed, name
        pools = PoolPlan.of(STATED, Path(), sizes, *how, has_loops=can_have_loops(relation))
        phases += [loop_phase(STATED, Path(), sizes, name), *pools.phases(), array_phase(STATED, pools.arrays())]
        arrays += pools.arrays()
    looking = lookup_of(STATED, relation, stated_records(arrays), given, memory)
    held_out = looking.held_arrays({split: num_pairs[split] for split in looking.held})
    phases += [*looking.phases(), array_phase(STATED, held_out)]
    if held_out:
        records = stated_records(held_out)
        phases += KeptPlan(STATED, Path(), name, sizes, Path(), list(records.values())).phases()
    if "train" not in num_pairs:
        plans = {"train": split_plans(STATED, sizes, None)["train"]}
        edges = EdgeKeys(Path(), 0, relation=name)
        rest = rest_arrays(plans, {"train": relation.nnz})
        phases += [split_phase(STATED, edges, sizes, (), plans), array_phase(STATED, rest)]
    return phases
