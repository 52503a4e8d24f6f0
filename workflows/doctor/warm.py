"""Fills the cache of compiled kernels, so that no later command has to compile.

numba compiles a kernel for each combination of argument types that it is called with.  A tiny example of every stage
calls all kernels of the pipeline with the types that graphs of up to 2^31 vertices use; the kernels of the trainer are
called directly.  Each combination is then compiled once more with wide ids, as larger graphs use them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnloom.storage.format.own_folder import own_folder
from gnnloom.workflows.doctor.finding import OK, WARNING, Finding
from gnnloom.workflows.doctor.warm_rare import call_rare, read_text

#: Options of every partition that is made: one for each group of kernels.
_PARTITIONS: tuple[dict[str, Any], ...] = (
    {"quality": "balanced"},
    {"quality": "fast"},
    {"method": "multilevel", "preset": "streaming", "directions": "both"},
    {"method": "multilevel", "preset": "streaming"},
    {"method": "metis"},
    {"method": "random"},
    {"method": "block"},
    *({"model": "stochastic", "preset": "large-k", "batches": kind} for kind in ("vertex", "edge", "walk", "frontier")),
)


def warm_kernels() -> Iterator[Finding]:
    """Compile every kernel of the pipeline and the trainer that is not in the cache yet; yield each finished step."""
    with own_folder("gnnloom-warm-") as folder:
        steps: dict[str, Callable[[], list[str]]] = {
            "warm pipeline": partial(_call_pipeline, Path(folder)),
            "warm trainer": _call_trainer,
            "warm wide ids": _compile_wide,
        }
        for name, step in steps.items():
            started = time.perf_counter()
            failed = step()
            seconds = f"{time.perf_counter() - started:.1f} s"
            if failed:
                fix = "harmless: what is missing is compiled when it is first needed"
                yield Finding(name, WARNING, f"{seconds}; not compiled: {', '.join(failed)}", fix)
            else:
                yield Finding(name, OK, seconds)
    kernels = _cached_kernels()
    variants = [len(kernel.nopython_signatures) for kernel in kernels if kernel.nopython_signatures]
    found = f"{sum(variants)} variants of {len(variants)} kernels in {cache_folder(kernels)}"
    yield Finding("cache of kernels", OK, found)


def cache_folder(kernels: list[Any]) -> str:
    """Return the folder below which numba keeps what it compiled; NUMBA_CACHE_DIR chooses another one."""
    # The cache of each source file is in a folder of its own: ``__pycache__`` next to it, unless that is not writable.
    return str(os.path.commonpath([kernel.stats.cache_path for kernel in kernels]))


def _call_pipeline(folder: Path) -> list[str]:
    """Run every stage of the pipeline on tiny graphs, in this process."""
    from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
    from gnnloom.pipeline.ingest.vertices import ingest_vertices
    from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
    from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
    from gnnloom.pipeline.shards.rows.row_stage import shard_rows
    from gnnloom.pipeline.tasks.cluster import InProcessCluster
    from gnnloom.storage import Catalog
    from gnnloom.workflows.doctor.tiny_example import tiny_model

    catalog, cluster, failed = Catalog(folder / "catalog"), InProcessCluster(), []
    model = tiny_model(400)
    for name, (source, options) in _sources(folder, model).items():
        dataset = catalog.create(name)
        graph = ingest_graph(dataset, source, IngestOptions(**options), cluster)
        if name == "undirected":
            ingest_vertices(dataset, model.vertices(), cluster)
        if name in {"names", "lattice"}:
            read_text(folder, dataset, graph, cluster)
        if name == "lattice":
            call_rare(folder, graph, cluster)
        if name not in {"undirected", "directed"}:
            continue
        for chosen in _PARTITIONS:
            # Both directions of an undirected graph are the same, and batches need no second graph.
            if ("directions" if graph.symmetric else "batches") in chosen:
                continue
            try:
                partition = partition_graph(dataset, graph, PartitionOptions(3, **chosen), cluster)
            # A partitioner may be missing or broken; `gnnloom doctor` has a check that says so.
            except Exception as error:  # noqa: BLE001
                failed.append(f"partition {' '.join(chosen.values())} ({error})")
                continue
            if chosen.get("method") == "random":
                for order in ("none", "degree"):
                    shard_rows(dataset, partition, cluster, reorder=order)
                shard_grid(dataset, graph, GridOptions((2, 2), "partition"), cluster, partition=partition)
        shards = shard_grid(dataset, graph, GridOptions((2, 2)), cluster)
        half = (0, graph.num_vertices // 2)
        for variant in ("even", "odd_transposed"):
            shards.window(variant, half, half)
        dataset.verify()
    return failed


def _sources(folder: Path, model: Any) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return a source for each way in which edges are read, with the options of its ingest."""
    from gnnloom.pipeline.sources.formats import open_edges
    from gnnloom.pipeline.sources.generators.lattice import LatticeEdges
    from gnnloom.pipeline.sources.generators.rmat import RmatEdges

    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 300, (900, 2))
    text, weighted, names, binary = (folder / name for name in ("edges.txt", "weights.txt", "names.txt", "edges.npy"))
    text.write_text("".join(f"{u} {v}\n" for u, v in pairs), encoding="ascii")
    weighted.write_text("".join(f"{u}\t{v}\t{(u + v) / 7}\n" for u, v in pairs), encoding="ascii")
    names.write_text("".join(f"a{u}\tb{v}\n" for u, v in pairs), encoding="ascii")
    np.save(binary, pairs)
    metis = folder / "graph.graph"
    metis.write_text("3 2 0\n2\n1 3\n2\n", encoding="ascii")
    files: dict[str, tuple[Path, dict[str, Any], dict[str, Any]]] = {
        "metis": (metis, {}, {"undirected": True}),
        "text": (text, {"weights": False}, {"undirected": True, "ids": "compact"}),
        "weighted": (weighted, {"weights": True}, {"undirected": True}),
        "directed-weighted": (weighted, {"weights": True}, {}),
        "names": (names, {"weights": False}, {"undirected": True, "ids": "compact"}),
        "binary": (binary, {"weights": False}, {"ids": "compact"}),
    }
    sources: dict[str, tuple[Any, dict[str, Any]]] = {
        "undirected": (model.edges(), {"undirected": True}),
        "directed": (RmatEdges(scale=8, edge_factor=6), {}),
        "lattice": (LatticeEdges((10, 10)), {"undirected": True}),
    }
    for name, (path, given, options) in files.items():
        sources[name] = (open_edges(None, (str(path),), given), options)
    return sources


def _call_trainer() -> list[str]:
    """Call the kernels of the trainer, with and without weights, in all precisions."""
    import torch

    from gnnloom.storage.matrix.csr import CSR
    from gnnloom.trainer.kernels.dispatch import (
        Dropout,
        SoftmaxGradient,
        SoftmaxState,
        edge_softmax,
        rectify,
        sparse_product,
    )
    from gnnloom.trainer.place.place import Place

    indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1], np.int32)
    for dtype, tensor_dtype in ((np.dtype(np.float32), torch.float32), (np.dtype(np.float64), torch.float64)):
        place, dense = Place(tensor_dtype), torch.ones((2, 4), dtype=tensor_dtype)
        for data in (None, np.ones(3, dtype)):
            product = sparse_product(CSR(0, indptr, indices, data, 2), place)
            product.multiply(dense, torch.zeros_like(dense), torch.ones(2, dtype=tensor_dtype))
        dropout = Dropout(0.5, 0, place)
        dropped = dropout.apply(dense.requires_grad_(), np.arange(2), 0, 0, 0)
        for mask in (None, dropout.mask(np.arange(2), 0, 0, 0)):
            dropped = rectify(dropped, torch.ones(4, dtype=tensor_dtype), mask, place)
        dropped.sum().backward()  # type: ignore[no-untyped-call]
        values, scores = torch.ones((2, 1, 4), dtype=tensor_dtype), torch.ones((2, 1), dtype=tensor_dtype)
        softmax = edge_softmax(CSR(0, indptr, indices, None, 2), 0.2, place)
        softmax.accumulate(values, scores, scores, SoftmaxState.begin(values.shape, tensor_dtype, place))
        gradient = SoftmaxGradient(scores, scores, values, scores)
        softmax.add_target_gradient(values, scores, scores, gradient, torch.zeros_like(scores))
        softmax.add_source_gradient(values, scores, scores, gradient, values.clone(), scores.clone())
    stored = torch.ones((2, 4), dtype=torch.bfloat16, requires_grad=True)
    dropped = dropout.apply(stored, np.arange(2), 0, 0, 0)
    for mask in (None, dropout.mask(np.arange(2), 0, 0, 0)):
        dropped = rectify(dropped, torch.ones(4), mask, place)
    dropped.sum().backward()  # type: ignore[no-untyped-call]
    return []


def _cached_kernels() -> list[Any]:
    """All compiled functions of gnnloom in the modules that are loaded, each once, that numba keeps on disk."""
    from numba.core.dispatcher import Dispatcher

    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("gnnloom."):
            for value in vars(module).values():
                if isinstance(value, Dispatcher) and value.stats.cache_path:
                    found[f"{value.py_func.__module__}.{value.py_func.__qualname__}"] = value
    return [found[name] for name in sorted(found)]


def _compile_wide() -> list[str]:
    """Compile every combination of types with int64 in place of int32 ids; returns the kernels that failed."""
    failed = []
    for kernel in _cached_kernels():
        for signature in list(kernel.nopython_signatures):
            wide = _widened(kernel, signature.args)
            if wide != signature.args:
                try:
                    kernel.compile(wide)
                # Some kernels combine an array of ids with one of another type, which no caller widens alone.
                except Exception:  # noqa: BLE001
                    failed.append(kernel.py_func.__qualname__)
    return failed


def _widened(kernel: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The types of a call with wide ids: arrays of int32, unless the kernel's annotation says that they always are."""
    from numba import types

    annotations = kernel.py_func.__annotations__
    names = kernel.py_func.__code__.co_varnames
    return tuple(
        kind.copy(dtype=types.int64)
        if isinstance(kind, types.Array) and kind.dtype == types.int32 and "int32" not in str(annotations.get(name, ""))
        else kind
        for name, kind in zip(names, arguments, strict=False)
    )
