"""The stage that draws links from one relation of a graph with types.

Pairs are edges of the relation, and keep their positions among its edges. An edge and its reverse in a relation between
vertices of one type are in one split, unless they are to be apart. The derived reverse of the relation shares the
numbers of its edges, and so lacks the held-out ones as well.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnloom.pipeline.ingest.stage import discarding
from gnnloom.pipeline.links.drawn_pairs import KEY_ORDER, split_phase, split_plans
from gnnloom.pipeline.links.edge_keys import VALUE_COLUMNS, Directions, EdgeKeys, can_have_loops
from gnnloom.pipeline.links.negative_pools import PoolPlan
from gnnloom.pipeline.links.options import RECIPROCAL_APART, DrawOptions
from gnnloom.pipeline.links.pair_arrays import array_phase, drawn_arrays
from gnnloom.pipeline.links.relation.kept_edges import KeptPlan, codec_of
from gnnloom.pipeline.links.relation.leaks import warn_of_reverses
from gnnloom.pipeline.links.stage import (
    WrittenPairs,
    check_memory,
    counted_in_blocks,
    counted_pairs,
    held_out_splits,
    written_arrays,
)
from gnnloom.pipeline.links.thresholds import find_thresholds
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase import missing_tasks, repairing, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.links import CLASS, NUMBER, Links
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ArrayRecord
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.storage.wording import shell_command


@repairing
def draw_relation_links(dataset: Dataset, relation: Relation, options: DrawOptions, cluster: Cluster) -> Links:
    """Draw links from a relation, or find them; resumes what an earlier run left.

    Edges have the keys of :func:`~gnnloom.pipeline.links.stage.draw_links`. Random keys of parallel edges are equal, so
    that parallel edges are in one split. Negatives are pairs of a source and a target of the relation that are
    no edges, each equally likely.

    Raises:
        InputError: an option does not apply, a split gets no pair, edges are chosen by their times, which they do
            not have or which are all equal, or an edge lacks a value that its pair is to have.
        BudgetError: the memory per worker is too small.
    """
    check_relation(relation, options)
    inputs, cluster = {"graph": relation.artifact.key}, for_few(cluster, relation.nnz)
    begun = dataset.path, "links", options.parameters, inputs, cluster.scratch, TYPED_VERSION
    with ArtifactWriter.begin(*begun) as writer:
        if writer.is_complete:
            links = Links(Artifact(writer.path))
            held_out = held_out_splits(train=links.artifact.facts["train_held_out"])
            records = [links.artifact.record(f"{split}/edge") for split in held_out]
            make_kept_graph(dataset, relation, writer, records, cluster)
            return links
        with discarding(writer):
            written = _draw(writer, relation, options, cluster)
        arrays = written_arrays(writer, written.tasks)
        records = [arrays[f"{split}/edge"] for split in held_out_splits(train=written.facts["train_held_out"])]
        # In this order, so that links whose graph was never made do not exist.
        message = make_kept_graph(dataset, relation, writer, records, cluster)
        facts = {
            "num_pairs": dict(written.num_pairs),
            "message_graph": message.artifact.key,
            "symmetric": False,
            "held_out_entries": relation.nnz - message.relation(relation.name).nnz,
            **written.facts,
        }
        vertices = message.num_vertices
        links = Links(writer.commit(written.tasks, {"vertex": vertices}, facts))
    warn_of_reverses(relation, links)
    return links


def check_relation(relation: Relation, options: DrawOptions) -> None:
    """Refuse options that a relation cannot have.

    Raises:
        InputError: there is one, or edges are to be chosen by times, or to have values, that they do not have.
    """
    where, has_loops = f"{relation.artifact.path}: relation {relation.name}", can_have_loops(relation)
    if options.times is not None:
        raise InputError(f"times {options.times}: the edges of a relation are chosen by their own times")
    if options.by_time and not (relation.has_times or "time" in relation.edge_columns):
        raise InputError(
            f"{where}: by time, but its edges have no times; ingest its table with the role time for one of its columns"
        )
    if options.values is not None:
        _check_values(relation, options.values)
    if options.reciprocal is not None and not has_loops:
        raise InputError(
            f"reciprocal {options.reciprocal}: relation {relation.name} leads from {relation.source.name} to"
            f" {relation.target.name}, so that no edge has a reverse in it; leave the option out"
        )
    if options.reciprocal not in {None, RECIPROCAL_APART} and options.by_time:
        raise InputError(f"reciprocal {options.reciprocal}: by time, each edge of a relation is held out by its own")


def _check_values(relation: Relation, kind: str) -> None:
    """Check that the edges of a relation have values of a kind."""
    column = VALUE_COLUMNS[kind]
    if column not in relation.edge_columns and not (kind == NUMBER and relation.weighted):
        raise InputError(
            f"{relation.where}: values {kind}, but its edges have no {column}; ingest its table with the role"
            f" `{shell_command('as', column)}` for one of its columns"
        )


def directions_of(relation: Relation, options: DrawOptions) -> Directions:
    """Relation between an edge and the edge in the other direction that the same relation may have."""
    is_apart = not can_have_loops(relation) or options.by_time or options.reciprocal == RECIPROCAL_APART
    return Directions.APART if is_apart else Directions.TOGETHER


def _draw(writer: ArtifactWriter, relation: Relation, options: DrawOptions, cluster: Cluster) -> WrittenPairs:
    working_memory(cluster.memory)
    path, name, has_loops = relation.artifact.path, relation.name, can_have_loops(relation)
    directions, sizes = directions_of(relation, options), GraphSizes.of_relation(relation)
    stream = int(stream_key(options.seed, f"links/{name}"))
    chosen = EdgeKeys(path, stream, path if options.by_time else None, directions, name)
    thresholds = find_thresholds(writer, chosen, sizes, options, cluster)
    # Values are read once, where the edges are routed.
    edges, kind = replace(chosen, kind=options.kind), options.kind
    plans = split_plans(writer, sizes, None, has_edges=True, kind=kind)
    first = split_phase(writer, edges, sizes, thresholds, plans)
    check_memory([first], cluster)
    num_pairs = counted_pairs(writer, first, plans, cluster)
    loops = counted_in_blocks(writer, first, plans, cluster, "loops")
    classes = counted_in_blocks(writer, first, plans, cluster, "classes") if kind == CLASS else [0]
    if empty := [split for split, count in num_pairs.items() if not count]:
        raise InputError(
            f"{path}: relation {name}: no edge is left for {empty[0]}, because parallel edges are in one split; choose"
            " other fractions, or --by time"
        )
    how = loops, num_pairs, options.num_negatives, options.seed, relation.name
    pools = PoolPlan.of(writer, path, sizes, *how, has_loops=has_loops)
    disjoint = len(thresholds) == len(KEY_ORDER)
    drawn = drawn_arrays(plans, num_pairs, None, disjoint=disjoint, has_edges=True, kind=kind)
    arrays = [*drawn, *pools.arrays()]
    for array in arrays:
        array.create(writer)
    tasks = run([first, *pools.phases(), array_phase(writer, arrays)], cluster, writer)
    names = relation.classes if kind == CLASS else []
    facts: dict[str, Any] = {"kind": kind, "num_classes": max(len(names), *classes), "train_held_out": disjoint}
    facts |= pools.facts | ({"class_names": names} if names else {})
    facts["relation"] = relation_facts(relation)
    facts |= {"together": True} if directions is Directions.TOGETHER else {}
    return WrittenPairs(tasks, num_pairs, facts, directions)


def relation_facts(relation: Relation) -> dict[str, Any]:
    """The facts of the manifest of links about their relation."""
    return {
        "name": relation.name,
        "source": relation.source.name,
        "target": relation.target.name,
        "num_sources": relation.source.count,
        "num_targets": relation.target.count,
        "num_edges": relation.nnz,
    }


def make_kept_graph(
    dataset: Dataset, relation: Relation, links: ArtifactWriter, held_out: Sequence[ArrayRecord], cluster: Cluster
) -> TypedGraph:
    """Make the graph without held-out edges of a relation as another graph of the dataset, or find it.

    Args:
        links: writer of the links, which need not be published.
        held_out: their arrays of positions of held-out edges.

    Raises:
        BudgetError: the memory per worker is too small.
    """
    graph, parameters = TypedGraph(relation.artifact), {"relation": relation.name}
    inputs = {"graph": graph.artifact.key, "links": links.key}
    begun = dataset.path, "graph", parameters, inputs, cluster.scratch, TYPED_VERSION
    with ArtifactWriter.begin(*begun) as writer:
        if writer.is_complete:
            return TypedGraph(Artifact(writer.path))
        where = graph.artifact.path, relation.name, GraphSizes.of_relation(relation), Path(links.path)
        plan = KeptPlan(writer, *where, held_out)
        phases = plan.phases()
        with discarding(writer):
            check_memory(phases, cluster)
        plan.create_arrays(codec_of(graph))
        # A block without a record may be complete, or damaged by a crash of the machine: it is made again.
        for task in missing_tasks(phases[0], writer):
            shutil.rmtree(writer.path / task.name, ignore_errors=True)
        names = run(phases, cluster, writer)
        recorded = writer.recorded_of(task.name for task in phases[0].tasks)
        found = [recorded[task.name].facts for task in phases[0].tasks]
        nnz, parallel = (sum(each[name] for each in found) for name in ("nnz", "parallel"))
        own = {
            "name": relation.name,
            "nnz": nnz,
            "parallel": parallel,
            "block_rows": relation.block_rows,
            "block_nnz": [each["nnz"] for each in found],
            "held_out": relation.nnz - nnz,
        }
        facts = {"types": graph.artifact.facts["types"], "relations": [own], "nnz": graph.nnz - relation.nnz + nnz}
        return TypedGraph(writer.commit(names, {"vertex": graph.num_vertices}, facts))
