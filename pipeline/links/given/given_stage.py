"""The stage that stores links from files, and makes the graph without held-out edges."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnloom.pipeline.ingest.stage import discarding
from gnnloom.pipeline.links.drawn_pairs import split_phase, split_plans
from gnnloom.pipeline.links.edge_keys import Directions, EdgeKeys
from gnnloom.pipeline.links.edge_lookup import LookedUp, LookupPlan, held_out_edges
from gnnloom.pipeline.links.given.given_ids import GivenPlan, plan_lists
from gnnloom.pipeline.links.given.id_lists import IdList, PairList, TargetMatrix
from gnnloom.pipeline.links.negative_pools import POOLED_SPLITS, PoolPlan
from gnnloom.pipeline.links.options import RECIPROCAL_APART, FileOptions
from gnnloom.pipeline.links.pair_arrays import array_phase, drawn_arrays
from gnnloom.pipeline.links.reciprocity import choose_directions, find_reciprocity, reciprocity_facts
from gnnloom.pipeline.links.stage import (
    WrittenPairs,
    check_memory,
    check_reciprocal,
    commit_links,
    count_all_loops,
    counted_pairs,
    held_out_splits,
    known_edges,
    make_message_graph,
    sizes_of_pairs,
    with_message_graph,
    write_entries,
    written_arrays,
)
from gnnloom.pipeline.sources.ogb import open_ogb_splits
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase import repairing, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.links import PAIR, Links
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.format.schema import FORMAT_VERSION, TYPED_VERSION
from gnnloom.storage.wording import counted

LOGGER = logging.getLogger("gnnloom.pipeline")


def open_lists(options: FileOptions) -> list[IdList]:
    """Open the files of pairs and negatives.

    Raises:
        NotFoundError: a file does not exist.
        InputError: a file has another format, or nothing in it.
    """
    formats = {"columns": options.columns, "header": options.header, "extra_columns": options.extra_columns or None}
    formats["delimiter"] = options.delimiter
    given = {name: value for name, value in formats.items() if value is not None}
    lists: list[IdList] = []
    for split in ("train", "valid", "test"):
        location = getattr(options, split)
        if location is not None:
            has_values = options.values is not None
            lists.append(PairList.open(f"{split}/pair", str(location), options.format, given, has_values=has_values))
    for split in ("valid", "test"):
        pairs, targets = (getattr(options, f"{split}_{name}") for name in ("negatives", "targets"))
        if pairs is not None:
            lists.append(PairList.open(f"{split}/pool", str(pairs), options.format, given))
        if targets is not None:
            lists.append(TargetMatrix.open(f"{split}/negative", str(targets)))
    if options.values is not None and options.train is None:
        raise InputError("values: the training pairs need values, too; give a file of training pairs with --train")
    return lists


def open_ogb_lists(folder: str, split: str | None) -> list[IdList]:
    """Open the pairs and negatives of a folder of OGB.

    Raises:
        NotFoundError, InputError: as :func:`~gnnloom.pipeline.sources.ogb.open_ogb_splits`.
    """
    lists: list[IdList] = []
    for name, found in open_ogb_splits(folder, split).items():
        lists.append(PairList(f"{name}/pair", found.pairs, found.location))
        if found.pool is not None:
            lists.append(PairList(f"{name}/pool", found.pool, f"{found.location}, edge_neg"))
        if found.targets is not None:
            lists.append(TargetMatrix.of(f"{name}/negative", found.targets))
    return lists


@dataclass(frozen=True, kw_only=True)
class GivenLinks:
    """Links that files give.

    Attributes:
        lists: pairs and negatives by the paths of their arrays.
        values: kind of the values of the pairs, ``class`` or ``number``; None if they have none.
        allow_overlap: accept pairs that are in several splits.
        holds_out: edges that are pairs for validation or testing are held out of the graph.
        negatives: number of negatives to draw for each pair of a split without negatives.
        seed: seed of the negatives.
        reciprocal: whether a held-out edge also holds out its reverse; None to decide by the graph.
        relation: name of the relation, in a graph with types.
    """

    lists: Sequence[IdList]
    values: str | None = None
    allow_overlap: bool = False
    holds_out: bool = True
    negatives: int = 0
    seed: int = 0
    reciprocal: str | None = None
    relation: str | None = None

    @classmethod
    def of(cls, options: FileOptions) -> GivenLinks:
        """The links that some files give."""
        how: dict[str, Any] = {"allow_overlap": options.allow_overlap, "holds_out": not options.keep_edges}
        how |= {"negatives": options.negatives, "seed": options.seed, "reciprocal": options.reciprocal}
        return cls(lists=open_lists(options), values=options.values, relation=options.relation, **how)

    @classmethod
    def of_ogb(cls, folder: str, split: str | None) -> GivenLinks:
        """The links of a folder of OGB, whose edges are those to train on, even where a later split has them again."""
        return cls(lists=open_ogb_lists(folder, split), allow_overlap=True, holds_out=False)

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that determine the bytes of the links, besides the graph."""
        how = {"values": self.values, "allow_overlap": self.allow_overlap, "holds_out": self.holds_out}
        # They change nothing where no negatives are drawn.
        drawn: dict[str, Any] = {"negatives": self.negatives, "seed": self.seed} if self.pooled_splits else {}
        drawn |= {} if self.reciprocal is None else {"reciprocal": self.reciprocal}
        drawn |= {} if self.relation is None else {"relation": self.relation}
        return {"method": "file", **how, **drawn, "sources": {given.path: given.identity() for given in self.lists}}

    @property
    def kind(self) -> str:
        """Kind of the values of the pairs; ``pair`` if they have none."""
        return self.values or PAIR

    @property
    def missing_splits(self) -> list[str]:
        """Splits whose pairs are compared with negatives, but have none."""
        paths = {each.path for each in self.lists}
        needed = POOLED_SPLITS if self.kind == PAIR else ()
        return [split for split in needed if not paths & {f"{split}/pool", f"{split}/negative"}]

    @property
    def pooled_splits(self) -> list[str]:
        """Splits for which negatives are drawn."""
        return self.missing_splits if self.negatives else []

    def key(self, graph: str) -> str:
        """The key of the artifact that the stage makes or finds for the graph with this key."""
        version = FORMAT_VERSION if self.relation is None else TYPED_VERSION
        return artifact_key("links", self.parameters, {"graph": graph}, version)


@repairing
def store_links(dataset: Dataset, graph: Graph, given: GivenLinks, cluster: Cluster) -> Links:
    """Store links from files, or find them; resumes what an earlier run left.

    Files use the same ids as the source of the graph's edges. Pairs of a symmetric graph stand for both directions, and
    so do pairs of a directed graph if every edge has its reverse. Edges that are pairs for validation or testing are
    held out of the graph; if there are none, it stays as it is. Without pairs for training, these are all edges that
    are left. Negatives that the files lack are drawn from all pairs without an edge, each equally likely. If both
    directions of an edge are held out together, a pair and its reverse may not be in several splits, and the reverse of
    an edge is not a negative.

    Raises:
        InputError: a pair is not one of vertices of the graph, or a loop; pairs are in several splits; a split has no
            pairs.
        BudgetError: the memory per worker is too small.
    """
    inputs = {"graph": graph.artifact.key}
    working_memory(cluster.memory)
    cluster = for_few(cluster, graph.nnz)
    with ArtifactWriter.begin(dataset.path, "links", given.parameters, inputs, cluster.scratch) as writer:
        if writer.is_complete:
            links = Links(Artifact(writer.path))
            check_reciprocal(dataset, graph, links, given.reciprocal, cluster)
            return with_message_graph(dataset, graph, links, cluster)
        with discarding(writer):
            return _store(dataset, graph, writer, given, cluster)


def _store(dataset: Dataset, graph: Graph, writer: ArtifactWriter, given: GivenLinks, cluster: Cluster) -> Links:
    plan = plan_lists(writer, [graph], given.lists, given.kind, cluster)
    # Without held-out edges, no directions are held out together.
    looks = not graph.symmetric and given.holds_out and given.reciprocal != RECIPROCAL_APART
    reverses = find_reciprocity(writer, graph, None, cluster) if looks else None
    directions = choose_directions(reverses, given.reciprocal)
    sizes = sizes_of_pairs(graph, directions)
    names = write_lists(plan, cluster, symmetric=sizes.symmetric)
    known = known_edges(dataset, graph, reverses, directions, cluster)
    drawn, facts = list[str](), dict[str, Any]()
    if given.pooled_splits:
        loops = count_all_loops(writer, known, cluster)
        drawn, facts = draw_negatives(writer, known.artifact.path, GraphSizes.of(known), loops, given, plan, cluster)
    names += drawn
    records = written_arrays(writer, names)
    looking = _looking(writer, known, directions, records, given, cluster)
    looked_up = looking.phases()
    check_memory(looked_up, cluster)
    entries = looking.arrays()
    for array in entries if directions is not Directions.TOGETHER else ():
        array.create(writer)
    # The edges that reverses of pairs hold out are known once the message graph exists.
    if entries and directions is not Directions.TOGETHER:
        names += run([*looked_up, array_phase(writer, entries)], cluster, writer)
    else:
        run(looked_up, cluster, writer)
    found = looking.found()
    if found.shared and not given.allow_overlap:
        raise overlapping(found, (graph, graph), together=directions is not Directions.APART and not graph.symmetric)
    if not given.negatives:
        warn_of_missing_negatives(given)
    held_out = held_out_splits(train=False)
    message = graph
    # The graph that models read is symmetric if pairs stand for both directions, even if no pair is an edge.
    if given.holds_out and (held_out_edges(found, held_out) or sizes.symmetric != graph.symmetric):
        pairs = [records[f"{split}/pair"] for split in held_out]
        message = make_message_graph(dataset, graph, writer.path, writer.key, pairs, directions, cluster)
    if entries and directions is Directions.TOGETHER:
        names += write_entries(writer, message, "train/weight", cluster, records["train/pair"])
    num_pairs = plan.num_pairs
    if "train" not in num_pairs:
        rest, num_pairs["train"] = _write_rest(writer, message, cluster)
        names += rest
    facts |= {
        "kind": given.kind,
        "num_classes": plan.num_classes(),
        "train_held_out": False,
        "edges": dict(found.edges),
        "shared": found.shared,
        **reciprocity_facts(reverses, directions),
    }
    written = WrittenPairs(names, num_pairs, facts, directions)
    return commit_links(dataset, graph, message, writer, written, cluster)


def warn_of_missing_negatives(given: GivenLinks) -> None:
    """Warn that metrics depend on negatives that are not stored, and name the option that stores some."""
    without = given.missing_splits
    if without:
        options = " and ".join(f"--{split}-negatives" for split in without)
        LOGGER.warning(
            "no negatives for %s are stored: every evaluation compares each pair with a uniformly drawn target, always"
            " the same, which may be a true edge; give some with %s",
            " and ".join(without),
            options,
        )


def write_lists(plan: GivenPlan, cluster: Cluster, *, symmetric: bool) -> list[str]:
    """Write the arrays of all lists; returns the names of the tasks that wrote them.

    Args:
        symmetric: see :meth:`GivenPlan.arrays`.

    Raises:
        InputError: an id is not a vertex, or a value is not of its kind.
        BudgetError: the memory per worker is too small.
    """
    writer, arrays, phases = plan.writer, plan.arrays(symmetric=symmetric), plan.phases()
    for array in arrays:
        array.create(writer)
    writing = array_phase(writer, arrays)
    check_memory([*phases, writing], cluster)
    # Ids that are not vertices have no places: they are reported before anything is written.
    if not writer.recorded_of(task.name for task in writing.tasks):
        run(phases, cluster, writer, [each.read_files for each in plan.vertices])
        plan.check_known()
    return run([*phases, writing], cluster, writer)


def draw_negatives(
    writer: ArtifactWriter,
    graph: Path,
    sizes: GraphSizes,
    loops: Sequence[int],
    given: GivenLinks,
    plan: GivenPlan,
    cluster: Cluster,
    *,
    has_loops: bool = True,
) -> tuple[list[str], dict[str, Any]]:
    """Draw negatives for splits that have none; returns the tasks that wrote them, and facts of the manifest.

    Args:
        graph: folder of the graph artifact whose edges are never drawn.
        sizes: of the graph, or of the relation of the pairs.
        loops, has_loops: see :meth:`PoolPlan.of`.
    """
    wanted = {split: plan.num_pairs[split] for split in given.pooled_splits}
    how = loops, wanted, given.negatives, given.seed, given.relation or ""
    pools = PoolPlan.of(writer, graph, sizes, *how, has_loops=has_loops)
    for array in pools.arrays():
        array.create(writer)
    phases = [*pools.phases(), array_phase(writer, pools.arrays())]
    check_memory(phases, cluster)
    return run(phases, cluster, writer), pools.facts


def _looking(
    writer: ArtifactWriter,
    graph: Graph,
    directions: Directions,
    records: dict[str, Any],
    given: GivenLinks,
    cluster: Cluster,
) -> LookupPlan:
    # A pair and its reverse are looked up as one if they are held out together.
    sizes = replace(GraphSizes.of(graph), symmetric=graph.symmetric or directions is not Directions.APART)
    asked = {path: record for path, record in records.items() if not path.endswith("/value")}
    weights = graph.weights(0)
    dtype = None if weights is None else weights.dtype.name
    return LookupPlan(writer, asked, graph.artifact.path, sizes, dtype, given.holds_out, cluster.memory)


def overlapping(found: LookedUp, ends: tuple[SourceIds, SourceIds], *, together: bool) -> InputError:
    """The error about pairs in several splits.

    Args:
        ends: ids of the possible sources and the possible targets.
        together: a pair and its reverse are one.
    """
    text = ""
    if found.example is not None:
        source, target, first, second = found.example
        shown = [
            (ids.original_name(end, end + 1) if ids.has_names else ids.original_id(end, end + 1))[0]
            for ids, end in zip(ends, (source, target), strict=True)
        ]
        text = f"; one is ({shown[0]}, {shown[1]}) in {first.partition('/')[0]} and {second.partition('/')[0]}"
    apart = "; here, a pair and its reverse are one, unless --reciprocal apart is given" if together else ""
    return InputError(
        f"{counted(found.shared, 'pair')} in several splits{text}; remove them from all but one, or accept them with"
        f" --allow-overlap{apart}"
    )


def _write_rest(writer: ArtifactWriter, message: Graph, cluster: Cluster) -> tuple[list[str], int]:
    """Write all edges of the graph without held-out ones as the pairs for training; returns the tasks and the number.

    Raises:
        InputError: there are none.
    """
    sizes, weights = GraphSizes.of(message), message.weights(0)
    dtype = None if weights is None else weights.dtype.name
    plans = {"train": split_plans(writer, sizes, dtype)["train"]}
    routing = split_phase(writer, EdgeKeys(message.artifact.path, 0), sizes, (), plans)
    num_pairs = counted_pairs(writer, routing, plans, cluster)
    if not num_pairs["train"]:
        raise InputError("train: no edge of the graph is left to train on; give pairs with --train")
    arrays = [
        array for array in drawn_arrays(plans, num_pairs, dtype, disjoint=False) if array.path.startswith("train/")
    ]
    for array in arrays:
        array.create(writer)
    return run([routing, array_phase(writer, arrays)], cluster, writer), num_pairs["train"]
