"""The memory check: what a program needs against what the machine and its control groups have left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.native.run import NativeProblem
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.machine_memory import available_memory
from support.graphs import random_adjacency, store_graph


def test_a_hypergraph_that_does_not_fit_in_memory_is_refused_with_figures(catalog: Catalog, tmp_path: Path) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(10, 30, 0, symmetric=True), symmetric=True)
    options, writer = PartitionOptions(8, "mtkahypar"), ArtifactWriter(tmp_path, "partition", "")
    where = tmp_path, tmp_path / "part.npy", InProcessCluster(), writer
    problem = NativeProblem(graph, graph, options, *where, LEVEL_STEPS, MT_KAHYPAR)
    problem.check_memory(10**5)
    with pytest.raises(BudgetError, match=r"but only 1 MiB are available"):
        replace(problem, options=replace(options, memory_limit=1 << 20)).check_memory(10**5)
    with pytest.raises(BudgetError, match=r"1,000,000,000,000 pins into 8 parts: needs about 131,\d\d\d.\d GiB"):
        problem.check_memory(10**12)


def write_group(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)


def test_available_memory_is_the_least_that_machine_and_control_groups_leave(tmp_path: Path) -> None:
    process = tmp_path / "proc/self"
    write_group(process.parent, {"meminfo": "MemTotal: 9000 kB\nMemAvailable: 5000 kB\n"})
    assert available_memory(tmp_path) == 5000 << 10
    groups = tmp_path / "sys/fs/cgroup"
    stat = {"memory.stat": "anon 1\ninactive_file 300\nactive_file 38\nslab_reclaimable 2\n"}
    write_group(groups / "user/one", {"memory.max": "max\n", "memory.current": "900\n"} | stat)
    write_group(groups / "user", {"memory.max": "3000\n", "memory.current": "900\n"} | stat)
    write_group(process, {"cgroup": "0::/user/one\n"})
    assert available_memory(tmp_path) == 3000 - 900 + 340
    old = {"memory.limit_in_bytes": "2000", "memory.usage_in_bytes": "1900", "memory.stat": "total_inactive_file 7"}
    write_group(groups / "memory", old)
    write_group(process, {"cgroup": "4:cpuset,memory:/elsewhere\n0::/user/one\n"})
    assert available_memory(tmp_path) == 107
    write_group(groups / "memory", {"memory.usage_in_bytes": "2500"})
    assert available_memory(tmp_path) == 0
