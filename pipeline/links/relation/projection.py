"""Projects the tasks, memory per worker and disk of links of a relation, before they are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnloom.pipeline.links.drawn_pairs import KEY_ORDER, split_phase, split_plans
from gnnloom.pipeline.links.edge_keys import EdgeKeys, can_have_loops
from gnnloom.pipeline.links.negative_pools import PoolPlan
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.pair_arrays import array_phase, drawn_arrays
from gnnloom.pipeline.links.projection import STATED, LinkProjection, round_phases, stated_records
from gnnloom.pipeline.links.relation.kept_edges import KeptPlan
from gnnloom.pipeline.links.relation.stage import check_relation, kept_graph_key, relation_links_key
from gnnloom.pipeline.links.stage import held_out_splits
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.typed.typed_graph import Relation
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.artifact import ArtifactWriter


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
    plans = split_plans(STATED, sizes, None, has_edges=True)
    phases.append(split_phase(STATED, edges, sizes, ends, plans))
    sums, disjoint = np.diff([0, *ends, sizes.nnz]), len(ends) == len(KEY_ORDER)
    num_pairs = {split: int(count) for split, count in zip(KEY_ORDER, sums, strict=False)}
    how = [0] * sizes.num_blocks, num_pairs, options.negatives, options.seed, relation
    pools = PoolPlan.of(STATED, Path(), sizes, *how, has_loops=has_loops)
    arrays = [*drawn_arrays(plans, num_pairs, None, disjoint=disjoint, has_edges=True), *pools.arrays()]
    phases += [*pools.phases(), array_phase(STATED, arrays)]
    records = stated_records(arrays)
    held_out = [records[f"{split}/edge"] for split in held_out_splits(train=disjoint)]
    return [*phases, *KeptPlan(STATED, Path(), relation, sizes, Path(), held_out).phases()]
