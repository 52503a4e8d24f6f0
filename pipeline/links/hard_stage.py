"""The stage that gives the pairs of links hard negatives: new links with the same pairs and the same message graph."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from gnnloom.pipeline.links.baselines import BaselinePlan, Neighbors
from gnnloom.pipeline.links.hard_negatives import VERTEX_BYTES, HardTask, write_hard
from gnnloom.pipeline.links.message_graph import CopyTask, copy_rows
from gnnloom.pipeline.links.options import HardOptions
from gnnloom.pipeline.links.stage import check_memory, written_arrays
from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.shards.shard_source import find_vertices
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.memory import WRITING_BYTES
from gnnloom.pipeline.tasks.phase import Needs, Phase, repairing, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.links import PAIR, Links
from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.artifacts.whole_graph import map_whole_graph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ArrayRecord, create_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.storage.shards.known_pairs import PAIR_BYTES

#: Splits whose pairs get negatives, and pairs of a task, which are those of a chunk.
_JUDGED: Final = ("valid", "test")
TASK_PAIRS: Final = 256


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
    inputs = _inputs(links, vertices)
    message = dataset.graph(links.message_graph)
    cluster = for_few(cluster, message.nnz)
    with ArtifactWriter.begin(dataset.path, "links", _parameters(options), inputs, cluster.scratch) as writer:
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
        InputError: they have values, or negatives of their own, or are pairs of one relation.
    """
    if links.relation is not None:
        raise InputError(
            f"{links.artifact.path}: links of relation {links.relation.name}, which have no hard negatives"
        )
    if links.kind != PAIR or any(links.num_negatives(split) for split in _JUDGED):
        raise InputError(f"{links.artifact.path}: expected pairs without values and without negatives of their own")


def hard_key(dataset: Dataset, links: Links, options: HardOptions) -> str:
    """The key of the artifact that :func:`draw_hard_negatives` makes or finds."""
    return artifact_key("links", _parameters(options), _inputs(links, vertices_of(dataset, links, options)))


def _parameters(options: HardOptions) -> dict[str, Any]:
    return {"method": "hard", **asdict(options)}


def _inputs(links: Links, vertices: Vertices | None) -> dict[str, str]:
    found = {"graph": links.graph, "links": links.artifact.key}
    return found | ({} if vertices is None else {"vertices": vertices.artifact.key})


def vertices_of(dataset: Dataset, links: Links, options: HardOptions) -> Vertices | None:
    """The vertex data with features, if these are wanted and there."""
    found = find_vertices(dataset, links.graph) if options.features else None
    fits = found is not None and "feature" in found.names and found.num_vertices == links.num_vertices
    return found if fits else None


def _draw(
    dataset: Dataset,
    links: Links,
    vertices: Vertices | None,
    options: HardOptions,
    writer: ArtifactWriter,
    cluster: Cluster,
) -> Links:
    graph, message = dataset.graph(links.graph), dataset.graph(links.message_graph)
    transposes = [None if each.symmetric else transpose_graph(dataset, each, cluster) for each in (graph, message)]
    of_graph, of_message = (None if each is None else each.artifact.path for each in transposes)
    where = writer, message.artifact.path, of_message, GraphSizes.of(message)
    # What is scored is known once it is written; the neighbors are the same.
    plan = BaselinePlan.of(*where, {})
    copying, hard = hard_phases(links, vertices, options, writer, plan.neighbors, (graph.artifact.path, of_graph))
    check_memory([copying, hard], cluster)
    # Here, before the tasks: the first use of the uncompressed copies makes them, and would keep workers waiting.
    copies = [plan.prepare(cluster), *(map_whole_graph(each) for each in (graph, transposes[0]) if each is not None)]
    mapped = None if vertices is None else map_vertices(vertices)
    _create(links, options, writer)
    names = run([copying, hard], cluster, writer)
    scoring = BaselinePlan.of(*where, written_arrays(writer, names))
    check_memory(scoring.phases(), cluster)
    names += scoring.run(cluster)
    del copies, mapped
    facts = {name: fact for name, fact in links.artifact.facts.items() if name not in ("num_pooled", "non_edges")}
    return Links(writer.commit(names, {"vertex": links.num_vertices}, facts))


def hard_phases(
    links: Links,
    vertices: Vertices | None,
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
    # Every task reads the pairs of the splits that have some which are not edges.
    others = sum(count for split, count in links.num_pairs.items() if links.num_other_pairs(split))
    for split in _JUDGED:
        stream = int(stream_key(options.seed, f"links/hard/{split}"))
        for number, start in enumerate(range(0, links.num_pairs[split], TASK_PAIRS)):
            stop = min(start + TASK_PAIRS, links.num_pairs[split])
            num_bytes = 8 * options.negatives * (stop - start)
            memory = VERTEX_BYTES * links.num_vertices + num_bytes + WRITING_BYTES
            needs = Needs(16 * (stop - start + others), num_bytes, 0, memory + (PAIR_BYTES if others else 0))
            what = None if vertices is None else vertices.artifact.path
            how = links.artifact.path, neighbors, *graph, what, split, stream
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
    reverse = ["train/reverse_weight"] if links.excludes_reverse else []
    return [*(f"{split}/pair" for split in LINK_SPLITS), "train/weight", *reverse]


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
