"""gnnloom.loader against PyG's NeighborLoader, on an undirected R-MAT graph with 128 features of every vertex.

    python tests/benchmarks/bench_loader.py [--scale small|full] [--folder FOLDER] [--no-disk]

Batches of 1024 seeds with fan-outs 15, 10, 5 and their features; epochs of training the same GraphSAGE of PyG; peak
memory; and gnnloom with graph and features on disk, in a control group of Linux whose limit is a quarter of them
(at least 512 MiB), pages of files included, against PyG with everything in memory. Every side is a process of its own,
with both its best number of workers among some. Prints tables, then lines ``RESULT name value unit``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from allocator import KEPT
from commands import gnnloom
from launching import HERE, last_line
from loader_side import BATCH, FANOUTS, Side
from processes import watch
from random_vertices import random_vertices
from sampling_peers import why_no_pyg

from gnnloom.storage import Catalog

#: Scale of the R-MAT graphs (edge factor 16) in memory and on disk, batches of an epoch, epochs, numbers of workers.
SCALES = {"small": (13, 13, 2, 2, (0, 1)), "full": (20, 22, 40, 3, (0, 1, 2))}
FEATURES = 128
_CORES = len(os.sched_getaffinity(0))
_GROUPS = Path("/sys/fs/cgroup")
#: Files of a control group's limit and highest usage, version 1 and version 2 of the interface.
_LIMITS, _PEAKS = ("memory.limit_in_bytes", "memory.max"), ("memory.max_usage_in_bytes", "memory.peak")


@dataclass(frozen=True)
class _Scale:
    steps: int
    epochs: int
    workers: Sequence[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    parser.add_argument("--no-disk", action="store_true", help="leave out the graph whose features exceed the memory")
    options = parser.parse_args()
    in_memory, on_disk, steps, epochs, workers = SCALES[options.scale]
    scale, missing = _Scale(steps, epochs, workers), why_no_pyg()
    if missing:
        print(f"PyG's loader is left out: {missing}")
    sides = ["gnnloom", *([] if missing else ["pyg"])]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-loader-") as folder:
        _prepare(folder, in_memory, steps, with_peer=not missing)
        _report_speed(folder, sides, scale)
        _report_memory(folder, sides, scale)
    if not options.no_disk:
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
    samples = gnnloom(folder, "sample", "web", *drawn)
    # Makes the copies that are mapped, outside of the group.
    last_line(_command(replace(_side(folder, "gnnloom", 0, scale), epochs=3, steps=1)), _environment())
    with _control_group(limit) as group:
        if group is None:
            print(f"a limit of memory is left out: {_GROUPS} has no control groups that this user can make")
            return
        print(f"limit of gnnloom: {limit >> 20} MiB, pages of files included\n{'':28}{'batches/s':>12}{'peak MB':>12}")
        best: dict[str, float] = {}
        for how, key in (("drawn", None), ("packed", samples["key"])):
            _evict(Path(folder))
            # Every batch that is ready takes memory from the pages of files.
            side = _side(folder, "gnnloom", 1, scale, samples=key, pool=1)
            inside = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh", *_command(side)]
            rate = scale.steps / last_line(inside, _environment())["wall"]
            best["gnnloom"] = max(rate, best.get("gnnloom", 0))
            peak = int(next(path for path in map(group.joinpath, _PEAKS) if path.exists()).read_text())
            print(f"{f'gnnloom, {how}':28}{rate:12.2f}{peak / 1e6:12.0f}")
            print(f"RESULT loader_disk_gnnloom_{how} {rate:.4g} batches/s")
    if "pyg" in sides:
        rates = [
            scale.steps / last_line(_command(_side(folder, "pyg", workers, scale)), _environment() | KEPT)["wall"]
            for workers in scale.workers
        ]
        best["pyg"] = max(rates)
    _print_best("loader_disk", best)


@contextmanager
def _control_group(limit: int) -> Iterator[Path | None]:
    """A control group with a limit of memory; None where it cannot be made."""
    parent = next((path for path in (_GROUPS / "memory", _GROUPS) if path.is_dir()), _GROUPS)
    group = parent / f"bench-loader-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        limits = [path for path in map(group.joinpath, _LIMITS) if path.exists()]
        if limits:
            limits[0].write_text(str(limit))
        yield group if limits else None
    finally:
        group.rmdir()


def _evict(folder: Path) -> None:
    """Have the system forget the pages of all files: they would not count, as another group has read them."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
