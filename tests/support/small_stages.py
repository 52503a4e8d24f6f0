"""Every stage of the pipeline on little data, with limits that make many tasks, files and levels of merges of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

import gnnloom
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph
from gnnloom.pipeline.ingest.typed.table import parse_relations, parse_vertices
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.links.given.given_stage import GivenLinks
from gnnloom.pipeline.links.hard_stage import draw_hard_negatives
from gnnloom.pipeline.links.options import DrawOptions, FileOptions, HardOptions
from gnnloom.pipeline.links.relation.given import store_relation_links
from gnnloom.pipeline.links.relation.stage import draw_relation_links
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.partition.partitioner import LevelSteps
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.grid.typed_grid_stage import shard_typed_grid
from gnnloom.pipeline.shards.rows.row_routed import RowSteps
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.shards.rows.typed_stage import shard_typed_rows
from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.tasks.cluster import Cluster, InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format.artifact import Artifact
from support.edge_files import EdgeFiles, write_edges
from support.graphs import random_adjacency, store_graph, store_vertices
from support.partitions import random_parts, store_partition
from support.problems import problem
from support.sampled import store_for_sampling
from support.typed_tables import TypedProblem, random_problem

_NAME: Final = "g"
_VERTICES, _EDGES, _PARTS = 3000, 6000, 4
_SMALL_STEPS: Final = RowSteps(vertex_chunks=1)
_LEVEL_STEPS: Final = LevelSteps(few_pins=0, rounds=2, read_entries=1000)

#: Sizes of the row blocks of graphs; and of temporary files, for the cluster on which a stage runs.
_SMALL_BLOCKS: Final = Scratch(block_entries=2000, read_edges=125)
SMALL_FILES: Final = replace(
    _SMALL_BLOCKS,
    files=3,
    page_bytes=1000,
    sources=3,
    source_bytes=1 << 30,
    spill_files=2,
    range_bytes=40_000,
    step_entries=400,
    routed_bytes=8000,
    bucket_bytes=4000,
    task_pieces=2,
)

_HERE: Final = InProcessCluster(scratch=_SMALL_BLOCKS)

#: Limits by module and name.
_LIMITS: Final[Mapping[tuple[str, str], Any]] = {
    ("pipeline.sources.vertex_data.keyed_rows", "_LEAST_BYTES"): 4000,
    ("pipeline.sources.vertex_data.keyed_rows", "_MOST_BYTES"): 4000,
    ("pipeline.links.message_graph", "HELD_ENTRIES"): 20,
    ("pipeline.links.baselines", "CHUNKS_PER_TASK"): 1,
    ("pipeline.links.baselines", "STEP_ROWS"): 50,
    ("pipeline.links.hard_stage", "TASK_PAIRS"): 50,
    ("pipeline.links.pair_arrays", "CHUNKS_PER_TASK"): 1,
    ("storage.format.arrays", "CHUNK_BYTES"): 2000,
}


def make_small(put: Callable[[Any, str, Any], None]) -> None:
    """Make many tasks of little data; a cluster with ``SMALL_FILES`` makes many files and merges.

    Args:
        put: sets an attribute of a module; a test gives a function that restores it.
    """
    for (module, name), limit in _LIMITS.items():
        put(importlib.import_module(f"gnnloom.{module}"), name, limit)


@dataclass(frozen=True)
class Stage:
    """A stage, and what it needs.

    Attributes:
        prepare: stores what the stage needs in a catalog; given the catalog, and a folder for sources.
        finish: runs the stage on the dataset; given the dataset, the folder of the sources, and a cluster.
    """

    prepare: Callable[[Dataset, Path], object]
    finish: Callable[[Dataset, Path, Cluster], Artifact]

    def run(self, catalog: Catalog, folder: Path, cluster: Cluster) -> Artifact:
        """Run the stage on a catalog that is prepared."""
        return self.finish(catalog[_NAME], folder, cluster)


def _ids(count: int) -> Any:
    return np.random.default_rng(7).integers(0, count, (2, _EDGES))


def _write_numbers(_: Dataset, folder: Path) -> None:
    write_edges(folder / "edges", *_ids(_VERTICES))


def _ingest_numbers(dataset: Dataset, folder: Path, cluster: Cluster, ids: str = "keep") -> Artifact:
    source = EdgeFiles(folder / "edges", range_edges=1000)
    return ingest_graph(dataset, source, IngestOptions(ids=ids), cluster).artifact


def _ingest_compact(dataset: Dataset, folder: Path, cluster: Cluster) -> Artifact:
    return _ingest_numbers(dataset, folder, cluster, "compact")


def _write_names(_: Dataset, folder: Path) -> None:
    lines = (f"v{a:05d} w{b:05d}\n" for a, b in _ids(_VERTICES).T.tolist())
    (folder / "names.txt").write_text("".join(lines))


def _ingest_names(dataset: Dataset, folder: Path, cluster: Cluster) -> Artifact:
    source = cast("Any", open_edges(None, [str(folder / "names.txt")]))
    return ingest_graph(dataset, replace(source, range_bytes=12_000), IngestOptions(ids="compact"), cluster).artifact


def _typed_problem() -> TypedProblem:
    return random_problem(5, edges=1500, unknown="drop")


def _write_typed_tables(_: Dataset, folder: Path) -> None:
    _typed_problem().write(folder)


def _ingest_typed(dataset: Dataset, folder: Path, cluster: Cluster) -> Artifact:
    tables = _typed_problem().write(folder)
    relations = [replace(each, edges=replace(cast("Any", each.edges), range_bytes=6000)) for each in tables.relations]
    how = IngestOptions(), TypedOptions("drop"), cluster
    return ingest_typed_graph(dataset, replace(tables, relations=tuple(relations)), *how).artifact


def _write_typed_rows(_: Dataset, folder: Path) -> None:
    rng = np.random.default_rng(8)
    ids, kinds = rng.permutation(400), rng.choice(["town", "river"], 400)
    lines = (f"{vertex},{kind}\n" for vertex, kind in zip(ids.tolist(), kinds.tolist(), strict=True))
    (folder / "places.csv").write_text("id,kind\n" + "".join(lines))
    for number in range(3):
        ends, words = rng.integers(0, 410, (2, 700)).tolist(), rng.choice(["near", "in"], 700).tolist()
        rows = zip(*ends, words, rng.integers(0, 99, 700).tolist(), strict=True)
        lines = (f"{source},{target},{word},{value}\n" for source, target, word, value in rows)
        (folder / f"facts-{number}.csv").write_text("from,to,word,value\n" + "".join(lines))


def _ingest_typed_rows(dataset: Dataset, folder: Path, cluster: Cluster) -> Artifact:
    """Two relations that rows name, between two types that rows name; and one with columns."""
    facts = folder / "facts-*.csv"
    relations = parse_relations([
        f"*,*,*={facts}:from,to,word as relation,value as weight",
        f"a,has,b={facts}:from,to,value as weight,value as feature,word as label",
    ])  # fmt: skip
    tables = TypedTables.open(relations, parse_vertices([f"*={folder / 'places.csv'}:id,kind as type"]), {})
    return ingest_typed_graph(dataset, tables, IngestOptions(merge="keep"), TypedOptions("drop"), cluster).artifact


def _store_numbers(dataset: Dataset, folder: Path) -> None:
    _write_numbers(dataset, folder)
    _ingest_compact(dataset, folder, _HERE)


def _transpose(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    return transpose_graph(dataset, dataset.graph(), cluster).artifact


def _write_table(dataset: Dataset, folder: Path) -> None:
    _store_numbers(dataset, folder)
    rng, ids = np.random.default_rng(8), dataset.graph().original_id()
    values = rng.integers(-99, 99, (len(ids), 4)).tolist()
    rows = (",".join(map(str, [ids[k], *values[k]])) for k in rng.permutation(len(ids)))
    (folder / "table.csv").write_text("\n".join(rows))


def _ingest_table(dataset: Dataset, folder: Path, cluster: Cluster) -> Artifact:
    source = open_vertices("keyed", (), {"feature": str(folder / "table.csv")}, dataset.graph())
    return ingest_vertices(dataset, source, cluster).artifact


def _store_graph(dataset: Dataset, _: Path) -> None:
    store_graph(dataset, random_adjacency(600, 4000, 1, symmetric=False), symmetric=False, num_blocks=3)


def _partition_multilevel(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    options = PartitionOptions(70, "multilevel", preset="flat", imbalance=0.1)
    return partition_graph(dataset, dataset.graph(), options, cluster, steps=_LEVEL_STEPS).artifact


def _partition_stochastic(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    options = PartitionOptions(_PARTS, model="stochastic", imbalance=0.05, batches="walk", batch_rate=0.3)
    return partition_graph(dataset, dataset.graph(), options, cluster).artifact


def _store_parts(dataset: Dataset, _: Path) -> None:
    count = 400
    adjacency = random_adjacency(count, 3000, 0, symmetric=False)
    graph = store_graph(dataset, adjacency, symmetric=False, num_blocks=9)
    store_partition(dataset, graph, random_parts(count, _PARTS, 1), _PARTS)
    store_vertices(dataset, np.random.default_rng(1).normal(size=(count, 2)), np.arange(count) % 4, None)
    transpose_graph(dataset, graph, _HERE)


def _shard_rows(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    return shard_rows(dataset, dataset.partition(_PARTS), cluster, steps=_SMALL_STEPS).artifact


def _shard_grid(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    return shard_grid(dataset, dataset.graph(), GridOptions((3, 2), "double"), cluster).artifact


def _shard_by_part(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    options = GridOptions((3, 2), "partition")
    return shard_grid(dataset, dataset.graph(), options, cluster, partition=dataset.partition(_PARTS)).artifact


def _store_typed_parts(dataset: Dataset, folder: Path) -> None:
    _store_typed_rows(dataset, folder)
    options = PartitionOptions(_PARTS, "random", reverse=True, replicate=("a",))
    partition_graph(dataset, dataset.typed_graph(), options, _HERE)


def _shard_typed_rows(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    return shard_typed_rows(dataset, dataset.partition(_PARTS), cluster, steps=_SMALL_STEPS).artifact


def _shard_typed_grid(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    return shard_typed_grid(dataset, dataset.typed_graph(), GridOptions((3, 2), "double"), cluster).artifact


def _store_problem(dataset: Dataset, _: Path) -> None:
    given = replace(problem(_NAME, 300, 1500, symmetric=False))
    store_for_sampling(Catalog(dataset.path.parent), given, 3, shards=False)


def _sample(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    options = SampleOptions(fanout=(4, 3), batch_size=7, epochs=2, seed=5, ranks=3, cache_memory=800)
    return write_samples(dataset, dataset.graph(), dataset.partition(3), options, cluster, segment_bytes=1).artifact


def _store_symmetric(dataset: Dataset, _: Path) -> None:
    store_graph(dataset, random_adjacency(600, 4000, 2, symmetric=True), symmetric=True, num_blocks=3)


def _draw_links(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    # After a kill, the dataset may have the graph without links as well.
    (ingested,) = dataset.ingested_graphs()
    return draw_links(
        dataset, dataset.graph(ingested.key), DrawOptions(disjoint=0.2, negatives=9, seed=5), cluster
    ).artifact


def _draw_hard_negatives(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    # What is left of a killed command may not say what it was made from.
    (info,) = (info for info in dataset.artifacts("links") if info.state == "complete" and "links" not in info.inputs)
    links = Links(dataset.find("links", info.key))
    return draw_hard_negatives(dataset, links, HardOptions(negatives=20), cluster).artifact


def _store_directed_links(dataset: Dataset, folder: Path) -> None:
    _store_graph(dataset, folder)
    _draw_links(dataset, folder, _HERE)


def _hold_links_out(dataset: Dataset, folder: Path, cluster: Cluster) -> Artifact:
    return dataset.graph(Links(_draw_links(dataset, folder, cluster)).message_graph).artifact


def _store_typed_rows(dataset: Dataset, folder: Path) -> None:
    _write_typed_rows(dataset, folder)
    _ingest_typed_rows(dataset, folder, _HERE)


def _draw_relation_links(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    (ingested,) = (info for info in dataset.ingested_graphs() if info.state == "complete")
    relation, options = dataset.typed_graph(ingested.key).relation("has"), DrawOptions(relation="has", disjoint=0.2)
    return draw_relation_links(dataset, relation, options, cluster).artifact


def _write_pairs(folder: Path) -> dict[str, Path]:
    """Files with some edges of relation ``has``, each for one split."""
    lines = (line.split(",")[:2] for line in (folder / "facts-0.csv").read_text().splitlines()[1:])
    distinct = list(dict.fromkeys(map(tuple, lines)))
    files = {name: folder / f"{name}.csv" for name in ("valid", "test")}
    for path, pairs in zip(files.values(), (distinct[:40], distinct[40:120]), strict=True):
        if not path.exists():
            path.write_text("".join(f"{source},{target}\n" for source, target in pairs))
    return files


def _read_relation_links(dataset: Dataset, folder: Path, cluster: Cluster) -> Artifact:
    (ingested,) = (info for info in dataset.ingested_graphs() if info.state == "complete")
    files: dict[str, Any] = {name: str(path) for name, path in _write_pairs(folder).items()}
    options = FileOptions(relation="has", header=False, negatives=2, **files)
    relation = dataset.typed_graph(ingested.key).relation("has")
    return store_relation_links(dataset, relation, GivenLinks.of(options), cluster).artifact


def _store_towns(dataset: Dataset, folder: Path) -> None:
    """Towns and rivers with features, and towns with labels and a split."""
    _store_typed_rows(dataset, folder)
    rng, graph = np.random.default_rng(9), dataset.typed_graph()
    for name, width in (("town", 3), ("river", 2)):
        # Rows of data are numbered as the ids of the towns and rivers are.
        count = int(graph.original_id(name).max()) + 1
        arrays: dict[str, Any] = {"feature": rng.normal(size=(count, width)).astype(np.float32)}
        if name == "town":
            arrays |= {"label": rng.integers(0, 3, count), "split": rng.choice(["train", "test"], count)}
        gnnloom.features(dataset, of_type=name, **arrays)


def _sample_towns(dataset: Dataset, _: Path, cluster: Cluster) -> Artifact:
    options = SampleOptions(
        of_type="town", fanout=(4, 3), batch_size=20, epochs=2, seed=5, ranks=3, cache_memory=400, reverse=True
    )
    return write_samples(dataset, dataset.typed_graph(), None, options, cluster, segment_bytes=1).artifact


def _hold_relation_links_out(dataset: Dataset, folder: Path, cluster: Cluster) -> Artifact:
    return dataset.typed_graph(Links(_draw_relation_links(dataset, folder, cluster)).message_graph).artifact


STAGES: Final[Mapping[str, Stage]] = {
    "ingest of numbers": Stage(_write_numbers, _ingest_numbers),
    "ingest of compact ids": Stage(_write_numbers, _ingest_compact),
    "ingest of names": Stage(_write_names, _ingest_names),
    "ingest of tables with types": Stage(_write_typed_tables, _ingest_typed),
    "ingest of rows with types": Stage(_write_typed_rows, _ingest_typed_rows),
    "transpose": Stage(_store_numbers, _transpose),
    "table": Stage(_write_table, _ingest_table),
    "multilevel": Stage(_store_graph, _partition_multilevel),
    "stochastic": Stage(_store_graph, _partition_stochastic),
    "row shards": Stage(_store_parts, _shard_rows),
    "grid shards": Stage(_store_parts, _shard_grid),
    "grid shards by part": Stage(_store_parts, _shard_by_part),
    "row shards of types": Stage(_store_typed_parts, _shard_typed_rows),
    "grid shards of types": Stage(_store_typed_parts, _shard_typed_grid),
    "samples": Stage(_store_problem, _sample),
    "samples of a type": Stage(_store_towns, _sample_towns),
    "links": Stage(_store_symmetric, _draw_links),
    "directed links": Stage(_store_graph, _draw_links),
    "hard negatives": Stage(_store_directed_links, _draw_hard_negatives),
    "graph without links": Stage(_store_symmetric, _hold_links_out),
    "links of a relation": Stage(_store_typed_rows, _draw_relation_links),
    "links of a relation from files": Stage(_store_typed_rows, _read_relation_links),
    "graph without links of a relation": Stage(_store_typed_rows, _hold_relation_links_out),
}
