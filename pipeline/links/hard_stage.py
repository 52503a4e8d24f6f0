"""The stage that gives the pairs of links hard negatives: new links with the same pairs and the same message graph."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from gnnloom.pipeline.links.baselines import BaselinePlan, Neighbors, map_matrix, map_transpose
from gnnloom.pipeline.links.hard_negatives import VERTEX_BYTES, HardTask, write_hard
from gnnloom.pipeline.links.message_graph import CopyTask, copy_rows
from gnnloom.pipeline.links.options import HardOptions
from gnnloom.pipeline.links.stage import check_memory, written_arrays
from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.shards.shard_source import find_vertices
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.memory import WRITING_BYTES
from gnnloom.pipeline.tasks.phase import Needs, Phase, repairing, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.links import PAIR, Links
from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.typed.typed_graph import Relation
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ArrayRecord, create_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.format.schema import FORMAT_VERSION, LINK_SPLITS, TYPED_VERSION
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.storage.shards.known_pairs import PAIR_BYTES

#: Splits whose pairs get negatives; a task has the pairs of one chunk.
_JUDGED: Final = ("valid", "test")
TASK_PAIRS: Final = 256
#: Vertex data with features of the possible sources and of the possible targets.
EndVertices = tuple[Vertices | None, Vertices | None]


@repairing
def draw_hard_negatives(dataset: Dataset, links: Links, options: HardOptions, cluster: Cluster) -> Links:
    """Store links with the pairs of others, and hard negatives of each pair for validation and testing.

    See :mod:`gnnloom.pipeline.links.hard_negatives`. Finds links that exist; resumes what an earlier run left.

    Raises:
        InputError: the pairs have values, or negatives of their own, or too few vertices can replace an end.
        BudgetError: the memory per worker is too small.
    """
    check_pairs(links)
    vertices = vertices_of(dataset, links, options)
    cluster = for_few(cluster, message_matrix(dataset, links).nnz)
    begun = dataset.path, "links", _parameters(options), _inputs(links, vertices), cluster.scratch, _version(links)
    with ArtifactWriter.begin(*begun) as writer:
        if writer.is_complete:
            return Links(Artifact(writer.path))
        try:
            return _draw(dataset, links, vertices, options, writer, cluster)
        except InputError:
            # These links with these options never give negatives, so nothing is left to finish.
            writer.discard()
            raise


def check_pairs(links: Links) -> None:
    """Check that the pairs of links can have hard negatives.

    Raises:
        InputError: they have values, or negatives of their own.
    """
    if links.kind != PAIR or any(links.num_negatives(split) for split in _JUDGED):
        raise InputError(f"{links.artifact.path}: expected pairs without values and without negatives of their own")


def hard_key(dataset: Dataset, links: Links, options: HardOptions) -> str:
    """The key of the artifact that :func:`draw_hard_negatives` makes or finds."""
    inputs = _inputs(links, vertices_of(dataset, links, options))
    return artifact_key("links", _parameters(options), inputs, _version(links))


def _version(links: Links) -> int:
    return FORMAT_VERSION if links.relation is None else TYPED_VERSION


def _parameters(options: HardOptions) -> dict[str, Any]:
    # The links that the pairs come from have the relation.
    return {"method": "hard", **{name: value for name, value in asdict(options).items() if name != "relation"}}


def _inputs(links: Links, vertices: EndVertices) -> dict[str, str]:
    source, target = vertices
    found = {"graph": links.graph, "links": links.artifact.key}
    if links.can_be_loops:
        return found | ({} if target is None else {"vertices": target.artifact.key})
    found |= {} if source is None else {"source_vertices": source.artifact.key}
    return found | ({} if target is None else {"target_vertices": target.artifact.key})


def vertices_of(dataset: Dataset, links: Links, options: HardOptions) -> EndVertices:
    """The vertex data with features of the possible sources and targets, if these are wanted and there."""
    if not options.features:
        return None, None
    if links.relation is not None:
        of_types = dataset.vertices_of_types(links.graph)
        source, target = (of_types.get(name) for name in (links.relation.source, links.relation.target))
        return _with_features(source, links.source_vertices), _with_features(target, links.target_vertices)
    found = _with_features(find_vertices(dataset, links.graph), links.num_vertices)
    return found, found


def _with_features(found: Vertices | None, num_vertices: int) -> Vertices | None:
    fits = found is not None and "feature" in found.names and found.num_vertices == num_vertices
    return found if fits else None


def message_matrix(dataset: Dataset, links: Links) -> Graph | Relation:
    """The message graph, or the relation of the pairs in it."""
    if links.relation is None:
        return dataset.graph(links.message_graph)
    return dataset.typed_graph(links.message_graph).relation(links.relation.name)


def neighbors_plan(
    writer: ArtifactWriter, links: Links, message: Path, transpose: Path | None, sizes: GraphSizes, arrays: Any
) -> BaselinePlan:
    """The plan that counts the neighbors of the pairs' ends.

    Args:
        message, transpose: folders of the message graph and its transpose or reverses.
        sizes: of the message graph, or of the relation in it.
        arrays: of pairs and negatives to score.
    """
    relation = "" if links.relation is None else links.relation.name
    return BaselinePlan.of(writer, message, transpose, sizes, arrays, relation, links.first_target)


def _draw(
    dataset: Dataset,
    links: Links,
    vertices: EndVertices,
    options: HardOptions,
    writer: ArtifactWriter,
    cluster: Cluster,
) -> Links:
    paths = [(dataset.path / "graph" / key, _transpose(dataset, links, key, cluster)) for key in _graphs(links)]
    (graph, of_graph), (message, of_message) = paths
    matrix = message_matrix(dataset, links)
    sizes = GraphSizes.of(matrix) if isinstance(matrix, Graph) else GraphSizes.of_relation(matrix)
    # The pairs to score are known once they are written; the neighbors are the same.
    plan = neighbors_plan(writer, links, message, of_message, sizes, {})
    copying, hard = hard_phases(links, vertices, options, writer, plan.neighbors, (graph, of_graph))
    check_memory([copying, hard], cluster)
    relation = plan.neighbors.relation
    # Here, before the tasks: the first use of the uncompressed copies makes them, and would keep workers waiting.
    copies = [plan.prepare(cluster), map_matrix(graph, relation)]
    copies += [] if of_graph is None else [map_transpose(of_graph, relation)]
    mapped = [map_vertices(each) for each in vertices if each is not None]
    _create(links, options, writer)
    names = run([copying, hard], cluster, writer)
    if links.relation is None:
        scoring = neighbors_plan(writer, links, message, of_message, sizes, written_arrays(writer, names))
        check_memory(scoring.phases(), cluster)
        names += scoring.run(cluster)
    del copies, mapped
    facts = {name: fact for name, fact in links.artifact.facts.items() if name not in ("num_pooled", "non_edges")}
    return Links(writer.commit(names, {"vertex": links.num_vertices}, facts))


def _graphs(links: Links) -> tuple[str, str]:
    return links.graph, links.message_graph


def _transpose(dataset: Dataset, links: Links, key: str, cluster: Cluster) -> Path | None:
    """Folder of the transpose of a graph, or of the reverses of its relations; None for a symmetric graph."""
    if links.relation is not None:
        return reverse_relations(dataset, dataset.typed_graph(key), cluster).artifact.path
    graph = dataset.graph(key)
    return None if graph.symmetric else transpose_graph(dataset, graph, cluster).artifact.path


def hard_phases(
    links: Links,
    vertices: EndVertices,
    options: HardOptions,
    writer: ArtifactWriter,
    neighbors: Neighbors,
    graph: tuple[Path, Path | None],
) -> tuple[Phase, Phase]:
    """The phases that copy pairs and that find negatives.

    Args:
        graph: folders of the graph and, if it is directed, of its transpose; its edges are never negatives.
    """
    tasks = []
    source, target = (None if each is None else each.artifact.path for each in vertices)
    # Every task reads the pairs of the splits that have some which are not edges.
    others = sum(count for split, count in links.num_pairs.items() if links.num_other_pairs(split))
    for split in _JUDGED:
        stream = int(stream_key(options.seed, f"links/hard/{split}"))
        for number, start in enumerate(range(0, links.num_pairs[split], TASK_PAIRS)):
            stop = min(start + TASK_PAIRS, links.num_pairs[split])
            num_bytes = 8 * options.negatives * (stop - start)
            memory = VERTEX_BYTES * links.num_ends + num_bytes + WRITING_BYTES
            needs = Needs(16 * (stop - start + others), num_bytes, 0, memory + (PAIR_BYTES if others else 0))
            how = links.artifact.path, neighbors, *graph, (source, target), split, stream
            name = f"hard/{split}/{number:05d}"
            tasks.append(HardTask(writer, name, needs, *how, options.counts, start, stop))
    return _copies(links, writer), Phase("hard negatives", write_hard, tasks, "pairs", makes_arrays=True)


def _copies(links: Links, writer: ArtifactWriter) -> Phase:
    """The phase that copies the pairs and the weights."""
    tasks = []
    for path in _copied(links):
        reader = links.artifact.array(path)
        for number, start in enumerate(range(0, max(1, len(reader)), reader.chunk_rows)):
            stop = min(start + reader.chunk_rows, len(reader))
            num_bytes = reader.dtype.itemsize * int(np.prod(reader.shape[1:])) * (stop - start)
            needs = Needs(num_bytes, num_bytes, 0, WRITING_BYTES)
            tasks.append(CopyTask(writer, f"copy/{path}/{number:05d}", needs, links.artifact.path, path, start, stop))
    return Phase("copy pairs", copy_rows, tasks, "pairs", makes_arrays=True)


def _copied(links: Links) -> list[str]:
    pairs = [f"{split}/pair" for split in LINK_SPLITS]
    if links.relation is None:
        return [*pairs, "train/weight", *(["train/reverse_weight"] if links.excludes_reverse else [])]
    edges = (f"{split}/{name}" for split in LINK_SPLITS for name in ("edge", "held_out"))
    return pairs + [path for path in edges if path in links.artifact]


def negative_records(links: Links, split: str, options: HardOptions) -> list[ArrayRecord]:
    """The arrays of a split's negatives, before they are written."""
    names = ("negative", "negative_source"), ("negative", "replaced")
    return [
        ArrayRecord(f"{split}/{name}", (links.num_pairs[split], count), "int64", ("pair", dim), ())
        for name, dim, count in zip(*names, options.counts, strict=True)
    ]


def _create(links: Links, options: HardOptions, writer: ArtifactWriter) -> None:
    """Create the arrays that several tasks write."""
    for path in _copied(links):
        record, rows = links.artifact.record(path), links.artifact.array(path).chunk_rows
        create_array(writer.path, path, record.shape, record.dtype, record.dims, rows)
    for split in _JUDGED:
        for record in negative_records(links, split, options):
            create_array(writer.path, record.path, record.shape, record.dtype, record.dims, TASK_PAIRS)
