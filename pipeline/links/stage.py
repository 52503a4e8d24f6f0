"""The stage that draws links from a graph: pairs by split, and the graph without the held-out edges."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnloom.pipeline.ingest.stage import discarding
from gnnloom.pipeline.links.baselines import BaselinePlan
from gnnloom.pipeline.links.drawn_pairs import KEY_ORDER, split_phase, split_plans
from gnnloom.pipeline.links.edge_keys import Directions, EdgeKeys
from gnnloom.pipeline.links.edge_lookup import LookupPlan
from gnnloom.pipeline.links.message_graph import MessagePlan, copied_arrays
from gnnloom.pipeline.links.negative_pools import PoolPlan, loop_phase
from gnnloom.pipeline.links.options import RECIPROCAL_APART, DrawOptions, link_inputs
from gnnloom.pipeline.links.pair_arrays import array_phase, drawn_arrays
from gnnloom.pipeline.links.reciprocity import Reciprocity, choose_directions, find_reciprocity, reciprocity_facts
from gnnloom.pipeline.links.thresholds import find_thresholds
from gnnloom.pipeline.matrix_sort.transpose import both_directions, transpose_graph
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, MIB, working_memory
from gnnloom.pipeline.tasks.phase import Phase, missing_tasks, records_of, repairing, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.block_matrix import block_path
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.links import PAIR, Links
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.files import parsing, read_json, reading_work, write_json
from gnnloom.storage.errors import BudgetError, InputError
from gnnloom.storage.format.arrays import ArrayRecord
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.format.task_record import merge_pieces
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.storage.wording import shell_command


@dataclass(frozen=True)
class WrittenPairs:
    """Pairs that are written and not published.

    Attributes:
        tasks: names of the tasks that wrote the arrays.
        num_pairs: pairs of each split.
        facts: facts of the manifest about them.
        directions: relation between the two directions of an edge of a directed graph.
    """

    tasks: Sequence[str]
    num_pairs: Mapping[str, int]
    facts: Mapping[str, Any]
    directions: Directions


@repairing
def draw_links(dataset: Dataset, graph: Graph, options: DrawOptions, cluster: Cluster) -> Links:
    """Draw links from a graph, or find them; resumes what an earlier run left.

    An edge's key is a random number that depends on the seed and on its ends. The edges with the smallest keys are the
    test pairs, and the edges with the next keys the valid pairs, followed by the training pairs if these are disjoint
    from the graph that the model reads. So the splits do not depend on the number of workers, and if edges are added to
    a graph, equal splits keep most of their pairs. By time, the latest edges have the smallest keys, which begin with
    the time.

    If every edge of a directed graph has its reverse, both directions are one pair, as in a symmetric graph.

    Links that exist are found without the graph that had the times.

    Raises:
        InputError: a split gets no pair, or edges are chosen by their times, and have none or all the same.
        NotFoundError: the graph that is to have the times does not exist.
        BudgetError: the memory per worker is too small.
    """
    inputs = link_inputs(graph.artifact.key, options)
    cluster = for_few(cluster, graph.nnz)
    with ArtifactWriter.begin(dataset.path, "links", options.parameters, inputs, cluster.scratch) as writer:
        if writer.is_complete:
            links = Links(Artifact(writer.path))
            check_reciprocal(dataset, graph, links, options.reciprocal, cluster)
            return with_message_graph(dataset, graph, links, cluster)
        with discarding(writer):
            written = _draw(dataset, writer, graph, times_of(dataset, graph, options), options, cluster)
        return publish(dataset, graph, writer, written, cluster)


def times_of(dataset: Dataset, graph: Graph, options: DrawOptions) -> Graph | None:
    """The graph that has the times by which edges are chosen; None if they are chosen at random.

    Raises:
        InputError: it has no times, or other edges than the graph, or only a part of its key is given.
        NotFoundError: it does not exist.
    """
    if not options.by_time:
        return None
    found = graph if options.times is None else dataset.graph(options.times)
    if options.times not in {None, found.artifact.key}:
        # The key of the links depends on it.
        raise InputError(f"times {options.times}: expected the whole key, {found.artifact.key}")
    options.check_times(found.artifact.path, has_times=found.has_times)
    if (found.block_rows, found.block_nnz, found.symmetric) != (graph.block_rows, graph.block_nnz, graph.symmetric):
        raise InputError(
            f"{found.artifact.path}: has other edges than {graph.artifact.path}; ingest both from the same edges, with"
            " the same options but for --merge"
        )
    return found


def _draw(
    dataset: Dataset,
    writer: ArtifactWriter,
    graph: Graph,
    times: Graph | None,
    options: DrawOptions,
    cluster: Cluster,
) -> WrittenPairs:
    stream = int(stream_key(options.seed, "links"))
    working_memory(cluster.memory)
    path = None if times is None else times.artifact.path
    # Directions that stay apart in any case need not be looked at.
    looks = not graph.symmetric and options.reciprocal != RECIPROCAL_APART
    found = find_reciprocity(writer, graph, path, cluster) if looks else None
    directions = choose_directions(found, options.reciprocal, by_time=options.by_time)
    edges, sizes = EdgeKeys(graph.artifact.path, stream, path, directions), sizes_of_pairs(graph, directions)
    thresholds = find_thresholds(writer, edges, sizes, options, cluster)
    disjoint = len(thresholds) == len(KEY_ORDER)
    stored = graph.weights(0)
    weight_dtype = None if stored is None else stored.dtype.name
    plans = split_plans(writer, sizes, None if disjoint else weight_dtype)
    first = split_phase(writer, edges, sizes, thresholds, plans)
    check_memory([first], cluster)
    num_pairs = counted_pairs(writer, first, plans, cluster)
    known = known_edges(dataset, graph, found, directions, cluster) if options.negatives else graph
    loops = (
        counted_in_blocks(writer, first, plans, cluster, "loops")
        if known is graph
        else count_all_loops(writer, known, cluster)
    )
    how = loops, num_pairs, options.negatives, options.seed
    pools = PoolPlan.of(writer, known.artifact.path, GraphSizes.of(known), *how)
    arrays = [*drawn_arrays(plans, num_pairs, weight_dtype, disjoint=disjoint), *pools.arrays()]
    for array in arrays:
        array.create(writer)
    names = run([first, *pools.phases(), array_phase(writer, arrays)], cluster, writer)
    facts = {"kind": PAIR, "num_classes": 0, "train_held_out": disjoint, **reciprocity_facts(found, directions)}
    return WrittenPairs(names, num_pairs, {**facts, **pools.facts}, directions)


def sizes_of_pairs(graph: Graph, directions: Directions) -> GraphSizes:
    """The sizes of a graph, as of a symmetric one if its pairs stand for both directions."""
    return replace(GraphSizes.of(graph), symmetric=graph.symmetric or directions is Directions.ONE_PAIR)


def known_edges(
    dataset: Dataset, graph: Graph, found: Reciprocity | None, directions: Directions, cluster: Cluster
) -> Graph:
    """The graph whose edges are never drawn as negatives: with the reverses, if both directions are held out together.

    Args:
        found: facts about the reverses; None if directions are apart.

    Raises:
        BudgetError: the memory per worker is too small.
    """
    if directions is not Directions.TOGETHER or found is None or found.is_full:
        return graph
    return both_directions(dataset, graph, cluster)


def count_all_loops(writer: ArtifactWriter, graph: Graph, cluster: Cluster) -> list[int]:
    """The loops of each row block, where no other task reads the edges.

    Raises:
        BudgetError: the memory per worker is too small.
    """
    counting = loop_phase(writer, graph.artifact.path, GraphSizes.of(graph))
    check_memory([counting], cluster)
    run([counting], cluster, writer)
    return [record.facts["loops"] for record in records_of(counting, writer)]


def check_reciprocal(dataset: Dataset, graph: Graph, links: Links, reciprocal: str | None, cluster: Cluster) -> None:
    """Check that stored links hold both directions of each edge out together if every edge has its reverse.

    Links of earlier versions, which did not look at reverses, held the directions out one by one.

    Raises:
        InputError: the links do not hold both directions out together.
    """
    facts = links.artifact.facts
    if graph.symmetric or reciprocal is not None or "edges_of_graph" in facts or links.message_graph == links.graph:
        return
    inputs = {"graph": graph.artifact.key, "links": links.artifact.key}
    with ArtifactWriter.begin(dataset.path, "links", {"method": "reverse"}, inputs, cluster.scratch) as writer:
        found = find_reciprocity(writer, graph, None, cluster)
        writer.discard()
    if found.is_full and found.same_weights:
        remove = ("gnnloom", "catalog", "rm", dataset.name, "--artifact", f"links/{links.artifact.key}")
        raise InputError(
            f"{links.artifact.path}: made by an earlier version, which left the reverses of held-out edges in the"
            " graph, and every edge has its reverse; remove the links"
            f" (`{shell_command(*remove)}`) and make them again, or keep them with `--reciprocal apart`"
        )


def counted_pairs(
    writer: ArtifactWriter, routing: Phase, plans: Mapping[str, ShufflePlan], cluster: Cluster
) -> dict[str, int]:
    """Route the pairs of all splits, unless an earlier command did; returns how many each has."""
    path = writer.work / "pairs.json"
    if not path.exists():
        run([routing], cluster, writer, [plan.files for plan in plans.values()])
        records = records_of(routing, writer)
        counts = {split: sum(runs.num_rows for runs in plan.shuffle.recorded(records)) for split, plan in plans.items()}
        # From here on, pairs that are lost are routed again only if they are needed.
        write_json(path, {"num_pairs": counts})
    with reading_work(path), parsing(path, "numbers of pairs"):
        return {split: int(count) for split, count in read_json(path)["num_pairs"].items()}


def counted_in_blocks(
    writer: ArtifactWriter, routing: Phase, plans: Mapping[str, ShufflePlan], cluster: Cluster, name: str
) -> list[int]:
    """Return the counts of the tasks that route the pairs, which read a row block each.

    Args:
        name: ``loops``, with parallel edges but the first, or ``classes``: one more than the largest class of an edge.

    Returns:
        A number for each row block.
    """
    path = writer.work / f"{name}.json"
    if not path.exists():
        run([routing], cluster, writer, [plan.files for plan in plans.values()])
        write_json(path, {name: [record.facts[name] for record in records_of(routing, writer)]})
    with reading_work(path), parsing(path, f"numbers of {name}"):
        return [int(count) for count in read_json(path)[name]]


def publish(
    dataset: Dataset,
    graph: Graph,
    writer: ArtifactWriter,
    written: WrittenPairs,
    cluster: Cluster,
) -> Links:
    """Make the graph without the held-out pairs, and publish it and then the links.

    The order ensures that links do not exist without their graph.
    """
    arrays = written_arrays(writer, written.tasks)
    held_out = held_out_splits(train=written.facts["train_held_out"])
    pairs = [arrays[f"{split}/pair"] for split in held_out]
    message = make_message_graph(dataset, graph, writer.path, writer.key, pairs, written.directions, cluster)
    return commit_links(dataset, graph, message, writer, written, cluster)


def written_arrays(writer: ArtifactWriter, tasks: Sequence[str]) -> dict[str, ArrayRecord]:
    """The arrays that finished tasks wrote, by path."""
    recorded = writer.recorded_of(tasks)
    return {record.path: record for record in merge_pieces(a for each in recorded.values() for a in each.arrays)}


def write_entries(
    writer: ArtifactWriter, message: Graph, name: str, cluster: Cluster, pairs: ArrayRecord, *, reverse: bool = False
) -> list[str]:
    """Write the entries of pairs for training, or of their reverses, in the graph that models read.

    Args:
        name: of the array.

    Returns:
        The names of the tasks.

    Raises:
        BudgetError: the memory per worker is too small.
    """
    weights, sizes, of_graph = message.weights(0), GraphSizes.of(message), message.artifact.path
    dtype = None if weights is None else weights.dtype.name
    how = sizes, dtype, False, cluster.memory, name, f"-{name.rpartition('/')[2]}", reverse
    plan = LookupPlan(writer, {"train/pair": pairs}, of_graph, *how)
    phases, arrays = plan.phases(), plan.arrays()
    check_memory(phases, cluster)
    for array in arrays:
        array.create(writer)
    return run([*phases, array_phase(writer, arrays)], cluster, writer)


def commit_links(
    dataset: Dataset, graph: Graph, message: Graph, writer: ArtifactWriter, written: WrittenPairs, cluster: Cluster
) -> Links:
    """Score the pairs and their negatives by their neighbors, unless they have values, and publish the links.

    Args:
        message: the graph without the held-out edges.

    Raises:
        BudgetError: the memory per worker is too small.
    """
    tasks = [*written.tasks]
    if written.directions is Directions.TOGETHER and not written.facts["train_held_out"]:
        train = written_arrays(writer, tasks)["train/pair"]
        tasks += write_entries(writer, message, "train/reverse_weight", cluster, train, reverse=True)
    if written.facts["kind"] == PAIR:
        tasks += write_baselines(dataset, message, writer, written_arrays(writer, tasks), cluster)
    facts = {
        "num_pairs": dict(written.num_pairs),
        "message_graph": message.artifact.key,
        "symmetric": graph.symmetric or written.directions is Directions.ONE_PAIR,
        "held_out_entries": graph.nnz - message.nnz,
        **written.facts,
    }
    return Links(writer.commit(tasks, {"vertex": graph.num_vertices}, facts))


def write_baselines(
    dataset: Dataset, message: Graph, writer: ArtifactWriter, arrays: Mapping[str, ArrayRecord], cluster: Cluster
) -> list[str]:
    """Score the pairs and negatives of splits that have negatives; returns the names of the tasks.

    Args:
        arrays: of pairs and negatives by path; they need not be published.

    Raises:
        BudgetError: the memory per worker is too small.
    """
    sizes = GraphSizes.of(message)
    plan = BaselinePlan.of(writer, message.artifact.path, None, sizes, arrays)
    if not plan.scored:
        return []
    if not message.symmetric:
        transpose = transpose_graph(dataset, message, cluster).artifact.path
        plan = BaselinePlan.of(writer, message.artifact.path, transpose, sizes, arrays)
    check_memory(plan.phases(), cluster)
    return plan.run(cluster)


def held_out_splits(*, train: bool) -> list[str]:
    """The splits whose pairs are no edges of the graph that the model reads."""
    return [split for split in LINK_SPLITS if split != "train" or train]


def with_message_graph(dataset: Dataset, graph: Graph, links: Links, cluster: Cluster) -> Links:
    """The links, whose graph is made again if it was removed."""
    if links.message_graph != links.graph:
        splits = held_out_splits(train=links.artifact.facts["train_held_out"])
        pairs = [links.artifact.record(f"{split}/pair") for split in splits]
        directions = Directions.TOGETHER if links.together else Directions.APART
        directions = Directions.ONE_PAIR if links.symmetric and not graph.symmetric else directions
        make_message_graph(dataset, graph, links.artifact.path, links.artifact.key, pairs, directions, cluster)
    return links


def make_message_graph(
    dataset: Dataset,
    graph: Graph,
    links: Path,
    links_key: str,
    pairs: Sequence[ArrayRecord],
    directions: Directions,
    cluster: Cluster,
) -> Graph:
    """Make the graph without held-out pairs as another graph of the dataset, or find it; it has no times.

    Args:
        links: folder of the links, which need not be published.
        pairs: the arrays of pairs that are held out.
        directions: relation between the two directions of an edge of a directed graph.

    Raises:
        BudgetError: the memory per worker is too small.
    """
    inputs = {"graph": graph.artifact.key, "links": links_key}
    with ArtifactWriter.begin(dataset.path, "graph", {}, inputs, cluster.scratch) as writer:
        if writer.is_complete:
            return Graph(Artifact(writer.path))
        sizes = sizes_of_pairs(graph, directions)
        where = graph.artifact.path, sizes, copied_arrays(graph), cluster.memory
        plan = MessagePlan(writer, links, pairs, *where, both=sizes.symmetric or directions is Directions.TOGETHER)
        phases = plan.phases()
        with discarding(writer):
            check_memory(phases, cluster)
        plan.create_arrays(graph)
        blocks = next(phase for phase in phases if phase.name == "message graph")
        # A block without a record may be complete, or damaged by a crash of the machine: it is made again.
        for task in missing_tasks(blocks, writer):
            shutil.rmtree(writer.path / task.name, ignore_errors=True)
        names = run(phases, cluster, writer)
        recorded = writer.recorded_of(block_path(number) for number in range(graph.num_blocks))
        found = [recorded[block_path(number)].facts for number in range(graph.num_blocks)]
        facts = {
            "nnz": sum(each["nnz"] for each in found),
            "symmetric": sizes.symmetric,
            "weighted": graph.weighted,
            "block_rows": graph.block_rows,
            "block_nnz": [each["nnz"] for each in found],
            "held_out": sum(each["held_out"] for each in found),
        }
        return Graph(writer.commit(names, {"vertex": graph.num_vertices}, facts))


def check_memory(phases: Sequence[Phase], cluster: Cluster) -> None:
    """Check that every task fits the memory of a worker.

    Raises:
        BudgetError: one does not.
    """
    most = max((task.needs.memory for phase in phases for task in phase.tasks), default=0)
    if most > working_memory(cluster.memory):
        raise BudgetError(
            f"a task needs {(most + BASE_MEMORY) // MIB:,} MiB, and {cluster.memory // MIB:,} MiB per worker are"
            " allowed; increase --memory"
        )
