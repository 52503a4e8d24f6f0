"""The stage that stores pairs of one relation of a graph with types from files.

The two columns of a file are ids of the source type and of the target type of the relation. Pairs for validation and
testing hold out all edges between their ends; the derived reverse of the relation shares the numbers of its edges, and
so lacks these as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnnloom.pipeline.ingest.stage import discarding
from gnnloom.pipeline.links.drawn_pairs import split_phase, split_plans
from gnnloom.pipeline.links.edge_keys import Directions, EdgeKeys, can_have_loops
from gnnloom.pipeline.links.edge_lookup import LookupPlan, held_out_edges
from gnnloom.pipeline.links.given.given_ids import plan_lists
from gnnloom.pipeline.links.given.given_stage import (
    GivenLinks,
    draw_negatives,
    overlapping,
    warn_of_missing_negatives,
    write_lists,
)
from gnnloom.pipeline.links.negative_pools import loop_phase
from gnnloom.pipeline.links.options import RECIPROCAL_APART, kept_graph_key
from gnnloom.pipeline.links.pair_arrays import PairArray, array_phase, drawn_arrays
from gnnloom.pipeline.links.relation.leaks import warn_of_reverses
from gnnloom.pipeline.links.relation.stage import make_kept_graph, relation_facts
from gnnloom.pipeline.links.stage import WrittenPairs, check_memory, counted_pairs, held_out_splits, written_arrays
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase import missing_tasks, records_of, repairing, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.schema import TYPED_VERSION


@repairing
def store_relation_links(dataset: Dataset, relation: Relation, given: GivenLinks, cluster: Cluster) -> Links:
    """Store pairs of a relation from files, or find them; resumes what an earlier run left.

    Without pairs for training, these are all edges of the relation that are left. Negatives that the files lack are
    pairs of a source and a target without an edge, each equally likely.

    Raises:
        InputError: an option does not apply, an id is not a vertex of its type, pairs are in several splits, or a split
            has no pairs, or a value is not of its kind.
        BudgetError: the memory per worker is too small.
    """
    check_given(relation, given)
    working_memory(cluster.memory)
    cluster = for_few(cluster, relation.nnz)
    inputs = {"graph": relation.artifact.key}
    begun = dataset.path, "links", given.parameters, inputs, cluster.scratch, TYPED_VERSION
    with ArtifactWriter.begin(*begun) as writer:
        if writer.is_complete:
            links = Links(Artifact(writer.path))
            if links.message_graph != relation.artifact.key:
                held_out = [links.artifact.record(f"{split}/held_out") for split in held_out_splits(train=False)]
                make_kept_graph(dataset, relation, writer, held_out, cluster)
            return links
        with discarding(writer):
            written, found = _store(writer, relation, given, cluster)
        arrays, message = written_arrays(writer, written.tasks), TypedGraph(relation.artifact)
        # In this order, so that links whose graph was never made do not exist.
        if given.holds_out and held_out_edges(found, held_out_splits(train=False)):
            held_out = [arrays[f"{split}/held_out"] for split in held_out_splits(train=False)]
            message = make_kept_graph(dataset, relation, writer, held_out, cluster)
        num_pairs, names = dict(written.num_pairs), list(written.tasks)
        if "train" not in num_pairs:
            rest, num_pairs["train"] = _write_rest(writer, message.relation(relation.name), cluster)
            names += rest
        facts = {
            "num_pairs": num_pairs,
            "message_graph": message.artifact.key,
            "symmetric": False,
            "held_out_entries": relation.nnz - message.relation(relation.name).nnz,
            **written.facts,
        }
        links = Links(writer.commit(names, {"vertex": message.num_vertices}, facts))
    warn_of_reverses(relation, links)
    return links


def check_given(relation: Relation, given: GivenLinks) -> None:
    """Refuse options that pairs of a relation from files cannot have.

    Raises:
        InputError: there is one.
    """
    if given.reciprocal is not None and not can_have_loops(relation):
        raise InputError(
            f"reciprocal {given.reciprocal}: relation {relation.name} leads from {relation.source.name} to"
            f" {relation.target.name}, so that no edge has a reverse in it; leave the option out"
        )
    if given.reciprocal not in {None, RECIPROCAL_APART}:
        raise InputError(
            f"reciprocal {given.reciprocal}: pairs of a relation from files are held out each by itself; give the"
            " reverses of pairs in the files, too"
        )


def ends_of(relation: Relation) -> tuple[SourceIds, SourceIds]:
    """Ids of the possible sources and the possible targets of a relation."""
    graph = TypedGraph(relation.artifact)
    return graph.ids(relation.source.name), graph.ids(relation.target.name)


def given_message_key(relation: Relation, links: str, given: GivenLinks) -> str:
    """The key of the graph that models read, if a pair for validation or testing is an edge."""
    graph = relation.artifact.key
    return kept_graph_key(graph, links, relation.name) if given.holds_out else graph


def lookup_of(
    writer: ArtifactWriter, relation: Relation, records: dict[str, Any], given: GivenLinks, memory: int
) -> LookupPlan:
    """The phases that look pairs up among the edges of a relation, and find the positions of held-out edges.

    Args:
        records: arrays of pairs, pools and negatives by path; values of pairs are not looked up.
    """
    records = {path: record for path, record in records.items() if not path.endswith("/value")}
    sizes, graph = GraphSizes.of_relation(relation), relation.artifact.path
    how = None, given.holds_out, memory
    return LookupPlan(writer, records, graph, sizes, *how, relation=relation.name, has_loops=can_have_loops(relation))


def _store(writer: ArtifactWriter, relation: Relation, given: GivenLinks, cluster: Cluster) -> tuple[WrittenPairs, Any]:
    """Write everything but the pairs that files lack; returns what is written, and facts about the pairs."""
    ends, sizes, path = ends_of(relation), GraphSizes.of_relation(relation), relation.artifact.path
    plan = plan_lists(writer, ends, given.lists, given.kind, cluster)
    names, facts = write_lists(plan, cluster, symmetric=False), dict[str, Any]()
    if given.pooled_splits:
        loops = _loops(writer, relation, cluster)
        has_loops = can_have_loops(relation)
        drawn, facts = draw_negatives(writer, path, sizes, loops, given, plan, cluster, has_loops=has_loops)
        names += drawn
    looking = lookup_of(writer, relation, written_arrays(writer, names), given, cluster.memory)
    phases = looking.phases()
    check_memory(phases, cluster)
    if missing_tasks(looking.answering, writer):
        # From here on, positions that are lost are looked up again only if they are needed.
        run(phases, cluster, writer, [each.read_files for each in looking.held.values()])
    found = looking.found()
    if found.shared and not given.allow_overlap:
        raise overlapping(found, ends, together=False)
    if not given.negatives:
        warn_of_missing_negatives(given)
    arrays = looking.held_arrays(found.held_out)
    for array in arrays:
        array.create(writer)
    names += run([*phases, array_phase(writer, arrays)], cluster, writer) if arrays else []
    facts |= {
        "kind": given.kind,
        "num_classes": plan.num_classes(),
        "train_held_out": False,
        "edges": dict(found.edges),
        "shared": found.shared,
        "relation": relation_facts(relation),
    }
    return WrittenPairs(names, plan.num_pairs, facts, Directions.APART), found


def _loops(writer: ArtifactWriter, relation: Relation, cluster: Cluster) -> list[int]:
    """Entries of each row block that leave no pair out: loops, and parallel edges but the first."""
    counting = loop_phase(writer, relation.artifact.path, GraphSizes.of_relation(relation), relation.name)
    check_memory([counting], cluster)
    run([counting], cluster, writer)
    return [int(record.facts["loops"]) for record in records_of(counting, writer)]


def _write_rest(writer: ArtifactWriter, message: Relation, cluster: Cluster) -> tuple[list[str], int]:
    """Write all edges that are not held out as the pairs for training; returns the tasks and the number of pairs.

    Raises:
        InputError: there are none.
    """
    sizes = GraphSizes.of_relation(message)
    plans = {"train": split_plans(writer, sizes, None)["train"]}
    edges = EdgeKeys(message.artifact.path, 0, relation=message.name)
    routing = split_phase(writer, edges, sizes, (), plans)
    check_memory([routing], cluster)
    num_pairs = counted_pairs(writer, routing, plans, cluster)
    if not num_pairs["train"]:
        raise InputError(f"train: no edge of relation {message.name} is left to train on; give pairs with --train")
    arrays = rest_arrays(plans, num_pairs)
    for array in arrays:
        array.create(writer)
    return run([routing, array_phase(writer, arrays)], cluster, writer), num_pairs["train"]


def rest_arrays(plans: Any, num_pairs: dict[str, int]) -> list[PairArray]:
    """The array of the edges that are left, which are the pairs for training."""
    found: Sequence[PairArray] = drawn_arrays(plans, num_pairs, None, disjoint=False)
    return [each for each in found if each.path == "train/pair"]
