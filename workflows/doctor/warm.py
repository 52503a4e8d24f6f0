"""Fills the cache of compiled kernels, so that no later command has to compile.

numba compiles a kernel for each combination of argument types in its calls. Tiny examples of every stage call
all kernels of the pipeline with the types that graphs of up to 2^31 vertices use; the kernels of the trainer are called
directly. On request, each combination is also compiled with the wide ids of larger graphs. Worker processes
share the steps, because only one thread of a process compiles at a time.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.tasks.cluster import InProcessCluster, available_cores
from gnnloom.storage import Catalog, Dataset, Graph
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.kernels import Kernel
from gnnloom.workflows.doctor.finding import OK, WARNING, Verdict
from gnnloom.workflows.doctor.tiny_example import tiny_model
from gnnloom.workflows.doctor.warm_rare import call_rare, read_text

#: Bytes for a worker: compiling takes more memory than the stages themselves.
_MEMORY = 4 << 30

#: Options of the partitions of each tiny graph: one for each group of kernels. Both directions of an undirected graph
#: are the same, and batches need no second graph.
_PARTITIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "undirected": (
        {"quality": "balanced"},
        {"quality": "fast"},
        {"method": "multilevel", "preset": "streaming"},
        {"method": "block", "exchange": "cover", "cover_passes": 1},
        *(
            {"model": "stochastic", "preset": "large-k", "batches": kind}
            for kind in ("vertex", "edge", "walk", "frontier")
        ),
    ),
    "directed": (
        {"method": "metis", "exchange": "cover", "cover_passes": 1},
        {"method": "multilevel", "preset": "streaming", "directions": "both"},
    ),
}

#: A kernel, by module and name, and the types of its arguments.
Variant = tuple[str, str, tuple[Any, ...]]

#: Calls kernels; returns the names of kernels that it could not call.
Step = Callable[[], list[str]]


@dataclass(frozen=True)
class _Warmed:
    """Result of a warming step.

    Attributes:
        failed: kernels that it could not call or compile.
        variants: all variants that its process has so far compiled or found in the cache.
    """

    name: str
    seconds: float
    failed: list[str]
    variants: frozenset[Variant]


def warm_kernels(*, wide: bool = False) -> Iterator[Verdict]:
    """Compile every kernel of the pipeline and the trainer that is not in the cache yet; yield each finished step.

    Args:
        wide: compile them for graphs of more than 2^31 vertices, too.
    """
    options = ClusterOptions(workers=available_cores(), memory=_MEMORY)
    with own_folder("gnnloom-warm-") as path, open_cluster(options) as cluster:
        folder, variants = Path(path), frozenset[Variant]()
        # Kernels that several steps use come first, so that two steps never compile them at the same time.
        first: dict[str, Step] = {"graphs": partial(_store_graphs, folder), "trainer": _call_trainer}
        others: dict[str, Step] = {
            "sources": partial(_call_sources, folder),
            "partitions": partial(_call_partitions, folder, "undirected"),
            "directed partitions": partial(_call_partitions, folder, "directed"),
            "shards": partial(_call_shards, folder, "undirected"),
            "directed shards": partial(_call_shards, folder, "directed"),
        }
        for steps in (first, others):
            for done in cluster.map(_warm, list(steps.items())):
                variants |= done.variants
                yield _finding(done)
        if wide:
            # A kernel's variants share an index in the cache, which only one process should write at a time.
            compiled = sorted({variant[:2] for variant in variants})
            shares = [set(compiled[number :: cluster.workers]) for number in range(cluster.workers)]
            steps = {
                f"wide ids {number}": partial(_compile_wide, [each for each in variants if each[:2] in share])
                for number, share in enumerate(shares, 1)
            }
            for done in cluster.map(_warm, list(steps.items())):
                yield _finding(done)
    kernels = Counter(variant[:2] for variant in variants)
    # Two processes that compile a kernel at the same time may leave only one of its variants in the cache.
    for module, name, types in variants:
        if kernels[module, name] > 1:
            getattr(import_module(module), name).compile(types)
    found = f"{len(variants)} variants of {len(kernels)} kernels"
    yield Verdict("cache of kernels", OK, f"{found} in {cache_folder(_cached_kernels().values())}")


def _warm(item: tuple[str, Step]) -> _Warmed:
    name, step = item
    started = time.perf_counter()
    failed = step()
    variants = frozenset(
        (*key, signature.args) for key, kernel in _cached_kernels().items() for signature in kernel.nopython_signatures
    )
    return _Warmed(name, time.perf_counter() - started, failed, variants)


def _finding(done: _Warmed) -> Verdict:
    name, seconds = f"warm {done.name}", f"{done.seconds:.1f} s"
    if not done.failed:
        return Verdict(name, OK, seconds)
    fix = "harmless: missing kernels are compiled when they are first needed"
    return Verdict(name, WARNING, f"{seconds}; not compiled: {', '.join(done.failed)}", fix)


def cache_folder(kernels: Iterable[Any]) -> str:
    """Return the folder below which numba keeps compiled code; NUMBA_CACHE_DIR chooses another folder."""
    # The cache of each source file is in ``__pycache__`` next to the file, if that is writable.
    return str(os.path.commonpath([kernel.stats.cache_path for kernel in kernels]))


def _store_graphs(folder: Path) -> list[str]:
    """Store the tiny graphs that the other steps use."""
    from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
    from gnnloom.pipeline.ingest.vertices import ingest_vertices
    from gnnloom.pipeline.sources.generators.rmat import RmatEdges

    catalog, cluster, model = Catalog(folder / "catalog"), InProcessCluster(), tiny_model(400)
    dataset = catalog.create("undirected")
    ingest_graph(dataset, model.edges(), IngestOptions(undirected=True), cluster)
    ingest_vertices(dataset, model.vertices(), cluster)
    ingest_graph(catalog.create("directed"), RmatEdges(scale=8, edge_factor=6), IngestOptions(), cluster)
    return []


def _call_partitions(folder: Path, name: str) -> list[str]:
    """Partition a graph in every way."""
    from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph

    dataset, failed = Catalog(folder / "catalog")[name], []
    for chosen in _PARTITIONS[name]:
        try:
            partition_graph(dataset, dataset.graph(), PartitionOptions(3, **chosen), InProcessCluster())
        # A partitioner may be missing or broken; a check of `gnnloom doctor` reports that.
        except Exception as error:  # noqa: BLE001
            failed.append(f"partition {' '.join(chosen.values())} ({error})")
    return failed


def _call_shards(folder: Path, name: str) -> list[str]:
    """Shard a graph in every way."""
    from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
    from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
    from gnnloom.pipeline.shards.rows.row_stage import shard_rows

    dataset, cluster = Catalog(folder / "catalog")[name], InProcessCluster()
    graph = dataset.graph()
    # Columns of parts of consecutive ids are not looked up.
    shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(3, method="block"), cluster), cluster)
    partition = partition_graph(dataset, graph, PartitionOptions(3, method="random"), cluster)
    for order in ("none", "degree"):
        rows = shard_rows(dataset, partition, cluster, reorder=order)
    # The way in which a rank covers its blocks for the exchange of partial sums.
    rank = rows.shard(0)
    rank.covered(rank.matrix(), rank.matrix(transpose=True))
    shard_grid(dataset, graph, GridOptions((2, 2), "partition"), cluster, partition=partition)
    shards = shard_grid(dataset, graph, GridOptions((2, 2)), cluster)
    half = (0, graph.num_vertices // 2)
    for variant in ("even", "odd_transposed"):
        shards.window(variant, half, half)
    dataset.verify()
    return []


def _call_sources(folder: Path) -> list[str]:
    """Read edges, features and labels in every way, and call kernels that only large or unusual inputs reach."""
    from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph

    catalog, cluster = Catalog(folder / "catalog"), InProcessCluster()
    for name, (source, options) in _sources(folder).items():
        dataset = catalog.create(name)
        graph = ingest_graph(dataset, source, IngestOptions(**options), cluster)
        if name in {"names", "lattice"}:
            read_text(folder, dataset, graph, cluster)
        if name == "lattice":
            call_rare(folder, graph, cluster)
        if name in {"text", "weighted", "directed-weighted"}:
            _store_links(folder, dataset, graph)
    return []


def _store_links(folder: Path, dataset: Dataset, graph: Graph) -> None:
    """Hold links out of a graph: some at random, with negatives of all kinds, and some from a file."""
    from gnnloom.pipeline.links.given.given_stage import GivenLinks, store_links
    from gnnloom.pipeline.links.hard_negatives import cosines, lengths
    from gnnloom.pipeline.links.hard_stage import draw_hard_negatives
    from gnnloom.pipeline.links.options import DrawOptions, FileOptions, HardOptions
    from gnnloom.pipeline.links.stage import draw_links

    links = draw_links(dataset, graph, DrawOptions(), InProcessCluster())
    draw_hard_negatives(dataset, links, HardOptions(negatives=2), InProcessCluster())
    feature = np.ones((2, 3), np.float32)
    # Like a mapped array.
    feature.flags.writeable = False
    norm = lengths(feature)
    cosines(feature, norm, feature[0].astype(np.float64), norm[0])
    (folder / "pairs.txt").write_text("".join(f"{u} {u + 1}\n" for u in range(20)), encoding="ascii")
    pairs = str(folder / "pairs.txt")
    given = GivenLinks.of(FileOptions(valid=pairs, test=pairs, allow_overlap=True))
    store_links(dataset, graph, given, InProcessCluster())
    dataset.verify()


def _sources(folder: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return a source for each way in which edges are read, with the options of its ingest."""
    from gnnloom.pipeline.sources.format import open_edges
    from gnnloom.pipeline.sources.generators.lattice import LatticeEdges

    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 300, (900, 2))
    text, weighted, names, binary = (folder / name for name in ("edges.txt", "weights.txt", "names.txt", "edges.npy"))
    text.write_text("".join(f"{u} {v}\n" for u, v in pairs), encoding="ascii")
    weighted.write_text("".join(f"{u}\t{v}\t{(u + v) / 7}\n" for u, v in pairs), encoding="ascii")
    names.write_text("".join(f"a{u}\tb{v}\n" for u, v in pairs), encoding="ascii")
    np.save(binary, pairs)
    metis = folder / "graph.graph"
    metis.write_text("3 2 1\n2 5\n1 5 3 0.5\n2 0.5\n", encoding="ascii")
    dimacs = folder / "graph.gr"
    dimacs.write_text("p sp 3 2\na 1 2 5\na 2 3 0.5\n", encoding="ascii")
    files: dict[str, tuple[Path, dict[str, Any], dict[str, Any]]] = {
        "metis": (metis, {"weights": True}, {"undirected": True}),
        "dimacs": (dimacs, {"weights": True}, {}),
        "text": (text, {"weights": False}, {"undirected": True, "ids": "compact"}),
        "weighted": (weighted, {"weights": True}, {"undirected": True}),
        "directed-weighted": (weighted, {"weights": True}, {}),
        "timed": (weighted, {"times": True}, {"merge": "max", "ids": "compact"}),
        "timed-names": (weighted, {"times": True}, {"merge": "max", "ids": "names"}),
        "names": (names, {"weights": False}, {"undirected": True, "ids": "compact"}),
        "binary": (binary, {"weights": False}, {"ids": "compact"}),
    }
    sources: dict[str, tuple[Any, dict[str, Any]]] = {
        "lattice": (LatticeEdges((10, 10)), {"undirected": True}),
    }
    for name, (path, given, options) in files.items():
        sources[name] = (open_edges(None, (str(path),), given), options)
    return sources


def _call_trainer() -> list[str]:
    """Call the trainer's numba kernels, with and without weights, in both precisions."""
    import torch

    from gnnloom.storage.matrix.csr import CSR
    from gnnloom.trainer.data.adjacency_scaling import scaling
    from gnnloom.trainer.data.learned_features import first_features
    from gnnloom.trainer.feed.negatives import UniformNegatives
    from gnnloom.trainer.feed.pair_seeds import PairSet
    from gnnloom.trainer.kernels.dispatch import edge_softmax, score_block, score_entries, score_pairs
    from gnnloom.trainer.loader.hops import edge_index, scaled_entries
    from gnnloom.trainer.place.place import Place

    indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1], np.int32)
    for dtype, tensor_dtype in ((np.dtype(np.float32), torch.float32), (np.dtype(np.float64), torch.float64)):
        place, dense = Place(tensor_dtype), torch.ones((2, 4), dtype=tensor_dtype)
        for data in (None, np.ones(3, dtype)):
            matrix = CSR(0, indptr, indices, data, 2)
            edge_index(matrix, place)
            scaled_entries(matrix, scaling("a graph", "mean", np.ones(2), place), place)
        first_features(np.arange(2), slice(0, 4), 4, 0, place)
        # This transposes the pattern.
        edge_softmax(CSR(0, indptr, indices, None, 2), 0.2, place)
        for kernel in (score_block, score_pairs):
            kernel(dense, dense, place)
        score_entries(dense, dense, indices[:2], indices[:2], place)
    UniformNegatives(0, 1, 2).draw(0, PairSet(*np.zeros((3, 1), np.int64)))
    return []


def _cached_kernels() -> dict[tuple[str, str], Kernel]:
    """The kernels in the modules of gnnloom that are loaded, by module and name."""
    modules = [module for name, module in sys.modules.items() if name.startswith("gnnloom.")]
    kernels = [value for module in modules for value in vars(module).values() if isinstance(value, Kernel)]
    return {(each.py_func.__module__, each.py_func.__qualname__): each for each in kernels}


def _compile_wide(variants: list[Variant]) -> list[str]:
    """Compile every combination of types with int64 in place of int32 ids; returns the kernels that failed."""
    failed = []
    for module, name, types in variants:
        kernel = getattr(import_module(module), name)
        wide = _widened(kernel, types)
        if wide != types:
            try:
                kernel.compile(wide)
            # Some kernels combine an array of ids with an array of another type; callers widen both or none.
            except Exception:  # noqa: BLE001
                failed.append(name)
    return failed


def _widened(kernel: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The types of a call with wide ids: arrays of int32, unless the kernel's annotation says that they always are."""
    annotations, names = kernel.py_func.__annotations__, kernel.py_func.__code__.co_varnames
    return tuple(_wide(kind, annotations.get(name, "")) for name, kind in zip(names, arguments, strict=False))


def _wide(kind: Any, annotation: object) -> Any:
    """The type of one argument, also within tuples."""
    from numba import types

    if isinstance(kind, types.NamedTuple):
        fields = kind.instance_class.__annotations__
        found = [_wide(each, fields[name]) for name, each in zip(kind.fields, kind.types, strict=True)]
        return types.NamedTuple(found, kind.instance_class)
    is_narrow = isinstance(kind, types.Array) and kind.dtype == types.int32 and "int32" not in str(annotation)
    return kind.copy(dtype=types.int64) if is_narrow else kind
