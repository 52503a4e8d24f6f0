"""`gnnloom doctor --warm`: every kernel is compiled before it is needed, for narrow and for wide ids."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner
from numba import njit, types
from numpy.typing import NDArray

import gnnloom.pipeline
import gnnloom.storage
import gnnloom.trainer
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage.kernels import Kernel
from gnnloom.storage.matrix import fingerprint
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.doctor import warm


class Lists(NamedTuple):
    first: int
    ids: NDArray[Any]
    part: NDArray[np.int32]


@njit
def kernel(offset: NDArray[np.int64], ids: NDArray[Any], part: NDArray[np.int32], lists: Lists) -> int:
    return int(offset[0] + ids[0] + part[0] + lists.ids[0] + lists.part[0])


def test_ids_are_widened_and_parts_are_not() -> None:
    narrow = np.zeros(1, np.int32)
    kernel(np.zeros(1, np.int64), narrow, narrow, Lists(0, narrow, narrow))
    (signature,) = kernel.nopython_signatures
    wide = warm._widened(kernel, signature.args)
    assert [kind.dtype for kind in wide[:3]] == [types.int64, types.int64, types.int32]
    assert [kind.dtype for kind in wide[3].types[1:]] == [types.int64, types.int32]
    assert warm._widened(kernel, wide) == wide


@pytest.mark.slow
def test_the_folder_of_the_cache_and_what_failed_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fingerprint.scan_rows in warm._cached_kernels().values()
    steps = ("_store_graphs", "_call_sources", "_call_partitions", "_call_shards", "_compile_wide")
    for step, failed in {**{step: [] for step in steps}, "_call_trainer": ["product"]}.items():
        monkeypatch.setattr(warm, step, lambda *_, failed=failed: failed)
    monkeypatch.setattr(warm, "open_cluster", lambda _: nullcontext(InProcessCluster()))
    done = CliRunner().invoke(cli, ["doctor", "--warm", "--wide", "--json"], catch_exceptions=False)
    checks = {check["check"]: check for check in json.loads(done.output)["checks"]}
    assert {name for name, check in checks.items() if check["state"] == "warning"} == {"warm trainer"}
    assert "not compiled: product" in checks["warm trainer"]["found"]
    assert "warm wide ids 1" in checks
    # Kernels whose caches share a folder, or have one for each source.
    folder = warm.cache_folder(warm._cached_kernels().values())
    assert checks["cache of kernels"]["found"].endswith(f" kernels in {folder}")


def test_wide_ids_are_compiled_with_the_others_only() -> None:
    done = CliRunner().invoke(cli, ["doctor", "--wide"])
    assert done.exit_code == 2
    assert "only with --warm" in done.output


@pytest.mark.long
def test_a_warm_cache_leaves_nothing_to_compile(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "gnnloom", "--catalog", str(tmp_path / "catalog")]

    def gnnloom(*arguments: str) -> None:
        subprocess.run([*command, *arguments], check=True, env=environment, stdout=subprocess.DEVNULL)

    def cached() -> set[Path]:
        return set((tmp_path / "cache").rglob("*.nbc"))

    gnnloom("doctor", "--warm", "--wide")
    before = cached()
    assert before
    # A function that is compiled has an index in the cache, `MODULE.FUNCTION-LINE.py311.nbi`.
    compiled = {path.name.split("-")[0] for path in (tmp_path / "cache").rglob("*.nbi")}
    assert sorted(set(kernels()) - compiled) == []
    gnnloom("generate", "web", "sbm", "--vertices", "300", "--edges", "2000", "--workers", "0")
    gnnloom("partition", "web", "--parts", "2", "--workers", "0")
    gnnloom("shard", "web", "--parts", "2", "--workers", "0")
    gnnloom("train", "web", "--ranks", "2", "--hidden", "8", "--epochs", "2", "--dropout", "0.5", "--run", "first")
    gnnloom("train", "web", "--ranks", "2", "--hidden", "8", "--epochs", "2", "--model", "gat", "--run", "second")
    given: dict[str, tuple[str, ...]] = {"number": (), "name": ("--ids", "compact")}
    for name, options in given.items():
        ids = [f"v{vertex}" if name == "name" else str(vertex) for vertex in range(60)]
        (tmp_path / "edges.txt").write_text("".join(f"{u} {v}\n" for u, v in pairwise(ids)))
        (tmp_path / "feature.csv").write_text("".join(f"{each},0.5,-1.5e3\n" for each in ids))
        (tmp_path / "label.csv").write_text("".join(f"{each},{k % 3}\n" for k, each in enumerate(ids)))
        gnnloom("ingest", name, str(tmp_path / "edges.txt"), *options, "--workers", "0")
        files = ("--feature", str(tmp_path / "feature.csv"), "--label", str(tmp_path / "label.csv"))
        gnnloom("features", name, *files, "--by-id", "--workers", "0")
    gnnloom("demo")
    assert sorted(path.name for path in cached() - before) == []


def kernels() -> list[str]:
    """Every function of gnnloom that numba compiles and keeps: not those that it inlines wherever they are called."""
    found: list[Any] = []
    for package in (gnnloom.storage, gnnloom.pipeline, gnnloom.trainer):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # Entry points of processes, the library in C, and code that starts MPI.
            if module.name.endswith(("__main__", "._kernels")) or ".comm.mpi" in module.name:
                continue
            values = vars(importlib.import_module(module.name)).values()
            found += [value for value in values if isinstance(value, Kernel)]
    found = [each for each in found if each.targetoptions.get("inline") != "always"]
    return [f"{each.py_func.__module__.rpartition('.')[2]}.{each.py_func.__qualname__}" for each in found]
