"""gnnloom.loader against PyG's NeighborLoader, on an undirected R-MAT graph with 128 features of every vertex.

    python tests/benchmarks/bench_loader.py [--scale small|full] [--folder FOLDER] [--parts speed,memory,disk]

Batches of 1024 seeds with fan-outs 15, 10, 5 and their features; epochs of training the same GraphSAGE of PyG; peak
memory; and gnnloom with graph and features on disk, in a control group of Linux whose limit is a quarter of the
features (at least 512 MiB), pages of files included, against PyG with everything in memory. Every side is a process of
its own, with both its best number of workers among some. Prints tables, then lines ``RESULT name value unit``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from allocator import KEPT
from commands import gnnloom
from control_group import Group, memory_group
from launching import HERE, last_line
from loader_side import BATCH, FANOUTS, Side
from processes import Killed, watch
from random_vertices import random_vertices
from sampling_peers import why_no_pyg

from gnnloom.storage import Catalog

#: Scale of the R-MAT graphs (edge factor 16) in memory and on disk, batches of an epoch, epochs, numbers of workers.
SCALES = {"small": (13, 13, 2, 2, (0, 1)), "full": (20, 23, 40, 3, (0, 1, 2))}
FEATURES = 128
_CORES = len(os.sched_getaffinity(0))
#: What can be measured alone.
PARTS = ("speed", "memory", "disk")


@dataclass(frozen=True)
class _Scale:
    steps: int
    epochs: int
    workers: Sequence[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure [default: %(default)s]")
    options = parser.parse_args()
    in_memory, on_disk, steps, epochs, workers = SCALES[options.scale]
    scale, missing = _Scale(steps, epochs, workers), why_no_pyg()
    if missing:
        print(f"PyG's loader is left out: {missing}")
    sides = ["gnnloom", *([] if missing else ["pyg"])]
    parts = options.parts.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"--parts {options.parts}: expected some of {','.join(PARTS)}")
    if parts != ["disk"]:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-loader-") as folder:
            _prepare(folder, in_memory, steps, with_peer=not missing)
            if "speed" in parts:
                _report_speed(folder, sides, scale)
            if "memory" in parts:
                _report_memory(folder, sides, scale)
    if "disk" in parts:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-loader-") as folder:
            _report_disk(folder, on_disk, sides, scale)


def _prepare(folder: str, rmat: int, steps: int, *, with_peer: bool) -> None:
    """Store the dataset ``web``, and the arrays that PyG reads; as many training vertices as an epoch has."""
    gnnloom(folder, "generate", "web", "rmat", "--scale", str(rmat), "--edge-factor", "16")
    inputs, n = Path(folder) / "inputs", 1 << rmat
    gnnloom(folder, "features", "web", *random_vertices(inputs, n, FEATURES, min(1.0, 1.02 * steps * BATCH / n)))
    dataset = Catalog(folder)["web"]
    if with_peer:
        matrix = dataset.graph().to_scipy(1 << 40)
        pairs = np.lib.format.open_memmap(inputs / "edges.npy", "w+", np.int64, (2, matrix.nnz))
        pairs[0], pairs[1] = matrix.indices, np.repeat(np.arange(n), np.diff(matrix.indptr))
        del pairs
    print(f"R-MAT {rmat}: {n:,} vertices, {dataset.graph().nnz:,} nonzeros, {FEATURES} features")
    sys.stdout.flush()


def _side(folder: str, name: str, workers: int | None, scale: _Scale, **more: Any) -> Side:
    return Side(name, folder, str(Path(folder) / "inputs"), workers, scale.epochs, scale.steps, **more)


def _command(side: Side) -> list[str]:
    return [sys.executable, str(HERE / "loader_side.py"), *side.arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(_CORES)}


def _report_speed(folder: str, sides: Sequence[str], scale: _Scale) -> None:
    for trains, what in ((False, "batches"), (True, "training")):
        print(
            f"\n{what}: {BATCH} seeds, fan-outs {list(FANOUTS)}, {_CORES} cores\n{'':28}{'batches/s':>12}{'ratio':>8}"
        )
        best: dict[str, float] = {}
        for name in sides:
            for workers in scale.workers:
                side = _side(folder, name, workers, scale, trains=trains)
                found = last_line(_command(side), _environment() | KEPT)
                rate = scale.steps / found["wall"]
                best[name] = max(rate, best.get(name, 0))
                print(f"{f'{name}, {workers} workers':28}{rate:12.2f}")
                print(f"RESULT loader_{what}_{name}_{workers} {rate:.4g} batches/s")
        print(f"a batch of {sides[-1]}: {found['vertices']:,.0f} vertices, {found['edges']:,.0f} edges")
        _print_best(f"loader_{what}", best)


def _print_best(key: str, best: dict[str, float]) -> None:
    for name, rate in best.items():
        print(f"{f'{name}, best':28}{rate:12.2f}{best['gnnloom'] / rate:8.2f}")
        print(f"RESULT {key}_{name} {rate:.4g} batches/s")
    if "pyg" in best:
        print(f"RESULT {key}_over_pyg {best['gnnloom'] / best['pyg']:.3g} x")
    sys.stdout.flush()


def _report_memory(folder: str, sides: Sequence[str], scale: _Scale) -> None:
    """Memory of one process each, which trains; pages of mapped files are resident, and not private."""
    print(f"\npeak memory, training\n{'':28}{'resident MB':>12}{'private MB':>12}")
    peaks = {}
    for name in sides:
        workers = 0 if name == "pyg" else None
        found = watch(_command(_side(folder, name, workers, scale, trains=True)), _environment())
        peaks[name] = found.client.resident
        print(f"{name:28}{found.client.resident / 1e6:12.0f}{found.client.private / 1e6:12.0f}")
        print(f"RESULT loader_peak_{name} {found.client.resident / 1e6:.4g} MB")
        print(f"RESULT loader_private_{name} {found.client.private / 1e6:.4g} MB")
    if "pyg" in peaks:
        print(f"RESULT loader_peak_over_pyg {peaks['gnnloom'] / peaks['pyg']:.3g} x")
    sys.stdout.flush()


def _report_disk(folder: str, rmat: int, sides: Sequence[str], scale: _Scale) -> None:
    """Batches of gnnloom from disk, drawn or packed before, in a control group; of PyG from memory, without limit."""
    print()
    _prepare(folder, rmat, scale.steps, with_peer="pyg" in sides)
    limit = max(512 << 20, (1 << rmat) * FEATURES * 4 // 4)
    fanouts = ",".join(map(str, FANOUTS))
    drawn = ("--fanout", fanouts, "--batch-size", str(BATCH), "--epochs", str(scale.epochs), "--draw-once")
    # Torch and PyG take most of the limit before any data is there.
    samples = gnnloom(folder, "sample", "web", *drawn, "--cache-memory", str(limit // 16))["key"]
    # Makes the copies that are mapped, outside of the group.
    last_line(_command(replace(_side(folder, "gnnloom", 0, scale), epochs=3, steps=1)), _environment())
    _compare_limited(folder, sides, scale, samples, limit)


def _compare_limited(folder: str, sides: Sequence[str], scale: _Scale, samples: str, limit: int) -> None:
    """Print the rates of batches and of training.

    Args:
        samples: key of the batches that were packed before.
        limit: bytes of the control group.
    """
    with memory_group(f"bench-loader-{os.getpid()}", limit) as group:
        if group is None:
            print("a limit of memory is left out: this user cannot make a control group")
            return
        for trains, what in ((False, "batches"), (True, "training")):
            print(f"\n{what}, gnnloom in {limit >> 20} MiB, pages of files included")
            print(f"{'':28}{'batches/s':>12}{'peak MB':>12}")
            best: dict[str, float] = {}
            # Drawing them reads rows at random, which takes seconds a batch where pages do not stay in memory.
            for how, key, share in (("drawn", None, 10), ("packed", samples, 1)):
                fewer = replace(scale, steps=max(1, scale.steps // share))
                # Every batch that is ready takes memory from the pages of files, so none is prepared ahead.
                try:
                    rate = _limited(group, _side(folder, "gnnloom", 0, fewer, trains=trains, samples=key), fewer)
                except Killed:
                    print(f"{f'gnnloom, {how}':28}{'no memory':>12}{group.peak / 1e6:12.0f}")
                    continue
                best["gnnloom"] = max(rate, best.get("gnnloom", 0))
                print(f"{f'gnnloom, {how}':28}{rate:12.2f}{group.peak / 1e6:12.0f}")
                print(f"RESULT loader_disk_{what}_gnnloom_{how} {rate:.4g} batches/s")
            if not best:
                continue
            if "pyg" in sides:
                peers = [_side(folder, "pyg", workers, scale, trains=trains) for workers in scale.workers]
                found = [last_line(_command(side), _environment() | KEPT)["wall"] for side in peers]
                best["pyg"] = scale.steps / min(found)
            _print_best(f"loader_disk_{what}", best)


def _limited(group: Group, side: Side, scale: _Scale) -> float:
    """Batches per second of a process in the group, which finds no page of the folder in memory."""
    _evict(Path(side.catalog))
    group.forget_peak()
    found = watch(_command(side), _environment(), enter=group.enter)
    return scale.steps / float(json.loads(found.output.splitlines()[-1])["wall"])


def _evict(folder: Path) -> None:
    """Have the system forget the pages of all files: they would not count, as another group has read them."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
