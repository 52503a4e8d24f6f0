"""A^3 X of an R-MAT graph: columns in blocks from and to disk, and the same products with everything in memory.

    python tests/benchmarks/bench_propagate.py [--scale small|full] [--rmat N] [--dim N] [--memory SIZE] [--rounds N]
        [--group FOLDER] [--catalog FOLDER] [--dataset NAME] [--only-disk]

One rank with a thread per core multiplies three times. ``gnnloom propagate`` gets ``--memory``, by default what 16
columns at a time need with the adjacency on disk, and stores every step; it reads the features, and the adjacency if
that does not fit, from disk. The other side reads the adjacency and the features, and multiplies in memory; only its
products are timed, and nothing is stored. Both sides alternate, each in a new process; figures are medians over the
rounds. The time of ``propagate`` is that of its rank, with reading and writing, which are also shown apart; it does not
include the start.

``--group`` is the folder of a control group whose limit then holds for all processes of ``propagate`` and for the pages
that they read and write. The figures are seconds per nonzero and column. Prints a table and lines ``RESULT name value
unit``. ``--catalog`` keeps the graph, and drops the steps. ``--dataset`` takes another graph of that catalog, which has
row shards for one rank. In a temporary catalog, the features are on disk once, in the shards, while steps are made.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphs import catalog_in, row_shards
from launching import last_line

import gnnloom
from gnnloom.storage.option import parse_bytes
from gnnloom.trainer.job.launch import rank_environment
from gnnloom.trainer.propagation.memory import BASE_BYTES

#: Scale of the R-MAT graph, number of features and rounds.
SCALES = {"small": (15, 64, 1), "full": (24, 128, 1)}
EDGE_FACTOR, STEPS, CLASSES = 16, 3, 32
_GROUP_PEAKS = ("memory.peak", "memory.max_usage_in_bytes")

Figures = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--rmat", type=int, help="2^N vertices instead of those of --scale")
    parser.add_argument("--dim", type=int, help="number of features instead of those of --scale")
    parser.add_argument("--memory", type=parse_bytes, help="memory of the rank, such as 3G")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--group", type=Path, help="folder of a control group with a limit of memory")
    parser.add_argument("--catalog", type=Path, help="folder that keeps the graph [default: a temporary one]")
    parser.add_argument("--dataset", help="a dataset of the catalog instead of an R-MAT graph")
    parser.add_argument("--folder", type=Path, help="folder for the temporary catalog [default: the system's]")
    parser.add_argument("--only-disk", action="store_true", help="leave out the side in memory, which may not fit")
    parser.add_argument("--in-memory", nargs=2, metavar=("CATALOG", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_memory:
        _multiply_in_memory(*options.in_memory)
        return
    rmat, dim, rounds = SCALES[options.scale]
    rmat, dim, rounds = options.rmat or rmat, options.dim or dim, options.rounds or rounds
    # Two matrices of 16 columns, and what a rank has of each row.
    memory = options.memory or BASE_BYTES + (128 << 20) + (2 * 4 * 16 + 24) * (1 << rmat)
    with catalog_in(options.catalog, options.folder) as catalog:
        name = options.dataset or _generated(catalog, rmat, dim, is_kept=options.catalog is not None)
        sides: dict[str, Callable[[], Figures]] = {
            "propagate": lambda: _propagate(catalog, name, memory, options.group)
        }
        if not options.only_disk:
            command = [sys.executable, "-m", "mpi4py", __file__, "--in-memory", str(catalog), name]
            environment = rank_environment(1, os.cpu_count() or 1)
            sides["in memory"] = lambda: last_line(command, environment)
        found: dict[str, list[Figures]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, measure in sides.items():
                found[side].append(measure())
    _report(options.dataset or f"R-MAT {rmat}", memory, found)


def _generated(catalog: Path, rmat: int, dim: int, *, is_kept: bool) -> str:
    """The name of the dataset with the graph and its row shards."""
    name = f"rmat-{rmat}-{dim}"
    dataset = gnnloom.generate(
        name, "rmat", catalog=catalog, workers=0, scale=rmat, edge_factor=EDGE_FACTOR, memory="1G"
    )
    gnnloom.features(dataset, "random", workers=0, dim=dim, classes=CLASSES)
    row_shards(dataset, 1, "block")
    if not is_kept:
        # The shards have them, too.
        dataset.remove_artifact("vertices", dataset.vertices().artifact.key, force=True)
    return name


def _propagate(catalog: Path, name: str, memory: int, group: Path | None) -> Figures:
    """Figures of ``gnnloom propagate``, whose steps are removed afterwards."""
    command = [Path(sys.executable).with_name("gnnloom"), "--catalog", catalog, "-v", "propagate", name, "--json"]
    words = [*map(str, command), "--steps", str(STEPS), "--memory", str(memory), "--threads", str(os.cpu_count() or 1)]
    if group is not None:
        with suppress(OSError):
            # Version 2 of control groups may keep the peak of an earlier measurement.
            next(path for path in map(group.joinpath, _GROUP_PEAKS) if path.exists()).write_text("0")
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=enter)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    found: dict[str, Any] = json.loads(done.stdout)
    gnnloom.Catalog(catalog)[name].remove_artifact("propagated", found["key"])
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    of_group = {} if group is None else {"group": _group_peak(group)}
    return {
        **found,
        "command": wall,
        "wall": found["seconds"],
        "processor": processor,
        "peak": max(found["peak_memory"]),
        **of_group,
    }


def _group_peak(group: Path) -> int:
    """The most bytes that a control group ever used at a time."""
    return int(next(path for path in map(group.joinpath, _GROUP_PEAKS) if path.exists()).read_text())


def _multiply_in_memory(catalog: str, name: str) -> None:
    """Print the figures of three products of the adjacency and the features, all in memory."""
    import torch

    from gnnloom.storage import Catalog
    from gnnloom.storage.meters import peak_memory
    from gnnloom.trainer.comm.transports.registry import world
    from gnnloom.trainer.operators.p2p import PointToPoint
    from gnnloom.trainer.place.place import Place

    threads = os.cpu_count() or 1
    torch.set_num_threads(threads)
    shard, place = Catalog(catalog)[name].row_shards(1).shard(0), Place(num_threads=threads)
    operator = PointToPoint(world(), shard, "symmetric", place, multiplies=False)
    dense = torch.from_numpy(shard.read("feature"))
    started, before = time.perf_counter(), time.process_time()
    for _ in range(STEPS):
        dense = operator.forward_product.multiply(dense)
    wall, processor = time.perf_counter() - started, time.process_time() - before
    print(json.dumps({"wall": wall, "processor": processor, "peak": peak_memory(), "seconds": wall}))


def _report(graph: str, memory: int, found: Mapping[str, list[Figures]]) -> None:
    disk = found["propagate"][-1]
    work = STEPS * disk["nonzeros"] * disk["columns"]
    where = f"{disk['columns_at_a_time']} at a time, {disk['passes']} passes, adjacency on {disk['adjacency']}"
    size = f"{disk['nonzeros']:,} nonzeros, {disk['columns']} columns; {memory / 2**20:,.0f} MiB"
    print(f"\nA^{STEPS} X of {graph}, {size}: {where}")
    print(f"{'':12}{'wall s':>10}{'cpu s':>10}{'MiB':>10}{'ps per nonzero and column':>28}")
    for side, several in found.items():
        wall, processor, peak = (
            statistics.median(each[figure] for each in several) for figure in ("wall", "processor", "peak")
        )
        per = 1e12 * wall / work
        print(f"{side:12}{wall:10.2f}{processor:10.2f}{peak / 2**20:10.0f}{per:28.2f}")
        key = f"RESULT propagate_{side.replace(' ', '_')}"
        print(f"{key}_wall {wall:.4g} s\n{key}_processor {processor:.4g} s\n{key}_peak {peak / 2**20:.4g} MiB")
        print(f"{key}_per_nonzero_and_column {per:.4g} ps")
    parts = ("read", "multiply", "write")
    print("propagate: " + ", ".join(f"{name} {max(disk[f'{name}_seconds']):.2f} s" for name in parts))
    print(f"RESULT propagate_command {statistics.median(each['command'] for each in found['propagate']):.4g} s")
    for name in parts:
        print(f"RESULT propagate_{name} {max(disk[f'{name}_seconds']):.4g} s")
    if "group" in disk:
        print(f"RESULT propagate_group_peak {disk['group'] / 2**20:.4g} MiB")
    if "in memory" in found:
        ratio = statistics.median(each["wall"] for each in found["propagate"]) / statistics.median(
            each["wall"] for each in found["in memory"]
        )
        print(f"RESULT propagate_to_memory {ratio:.3g} x")
    print(flush=True)


if __name__ == "__main__":
    main()
