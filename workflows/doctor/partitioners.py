"""Checks of the partitioners: each splits a tiny graph."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from gnnloom.pipeline.partition.settings import NATIVE_METHOD
from gnnloom.pipeline.partition.stage import METHODS, PartitionOptions, partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import GnnloomError
from gnnloom.workflows.doctor.finding import FAILED, OK, WARNING, Verdict, run_check
from gnnloom.workflows.doctor.tiny_example import store_tiny_graph

#: Time limit of one partitioner.
_SECONDS = 60


def check_partitioners() -> Iterator[Verdict]:
    """Run every partitioner on a tiny graph, native ones in their child process; optional ones may be missing."""
    with own_folder("gnnloom-doctor-") as folder:
        for name in METHODS:
            yield run_check(f"partitioner {name}", partial(_check_partitioner, Path(folder), name))


def _check_partitioner(folder: Path, name: str) -> Verdict:
    package = METHODS[name].package
    try:
        installed = f", {package} {version(package)}" if package else ""
    except PackageNotFoundError:
        # Only Mt-KaHyPar is required: the default runs it wherever it suits the graph.
        state = FAILED if name == NATIVE_METHOD else WARNING
        return Verdict(f"partitioner {name}", state, "not installed", f"`pip install {package}`, or another --method")
    return _partition(folder, name, installed)


def _partition(folder: Path, name: str, installed: str) -> Verdict:
    dataset = Catalog(folder / "catalog").create("tiny")
    graph = store_tiny_graph(dataset)
    started = time.perf_counter()
    try:
        options = PartitionOptions(2, name, imbalance=0.1, time_limit=_SECONDS)
        partition = partition_graph(dataset, graph, options, InProcessCluster())
    except GnnloomError as error:
        first_line = str(error).splitlines()[0]
        fix = f"`pip install --force-reinstall {METHODS[name].package}`" if installed else "reinstall gnnloom"
        return Verdict(f"partitioner {name}", FAILED, first_line, fix)
    sizes = np.bincount(partition.part(), minlength=2)
    if len(sizes) != 2 or sizes.min() == 0:
        return Verdict(f"partitioner {name}", FAILED, f"made parts of {sizes.tolist()} vertices", "use another method")
    return Verdict(f"partitioner {name}", OK, f"{time.perf_counter() - started:.1f} s{installed}")
