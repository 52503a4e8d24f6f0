"""Neighbor mode with batches drawn during training against batches read from samples on disk, on an R-MAT graph.

    python tests/benchmarks/bench_samples.py [--scale small|full] [--rmat N] [--dim F] [--share S] [--group FOLDER]

GraphSAGE 64-64, fan-outs 15, 10, 5, 1024 training vertices per batch, one rank. The share of training vertices keeps
the samples within the disk. With --group, all processes that sample or train from disk are in this control group of
Linux, whose limit holds for everything together, pages of files included. With --cap, every one of them has this limit
of private memory (RLIMIT_DATA), without pages of mapped files. Prints a table, then lines ``RESULT name value unit``.
Seconds are wall time of an epoch and, in brackets, processor time of the whole command.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commands import gnnloom
from random_vertices import random_vertices

SCALES = {"small": (14, 32, 0.5), "full": (20, 64, 0.5)}
FANOUTS, BATCH, EPOCHS = "15,10,5", "1024", "3"
MODEL = ("--mode", "neighbor", "--model", "sage", "--hidden", "64,64", "--epochs", EPOCHS, "--eval-every", "0")

#: Files of a control group's limit and highest usage, version 2 and version 1 of the interface.
_GROUP_LIMITS = ("memory.max", "memory.limit_in_bytes")
_GROUP_PEAKS = ("memory.peak", "memory.max_usage_in_bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--rmat", type=int, help="2^N vertices instead of those of --scale")
    parser.add_argument("--dim", type=int, help="number of float32 features instead of those of --scale")
    parser.add_argument("--share", type=float, help="share of training vertices instead of that of --scale")
    parser.add_argument(
        "--cap", type=int, default=0, help="limit of private memory per process, in MiB  [default: none]"
    )
    parser.add_argument("--group", type=Path, help="folder of a control group with a limit of memory")
    parser.add_argument("--no-final-eval", action="store_true", help="leave out the exact evaluation after training")
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    parser.add_argument("--only-disk", action="store_true", help="leave out training in memory, which may not fit")
    options = parser.parse_args()
    rmat, dim, share = SCALES[options.scale]
    rmat, dim, share = options.rmat or rmat, options.dim or dim, options.share or share
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-samples-") as folder:
        _prepare(folder, rmat, dim, share)
        limit = limited(options.cap << 20, options.group)
        unmeasured = ("--no-final-eval",) if options.no_final_eval else ()
        sampled, seconds = _run(
            folder, "sample", "--epochs", EPOCHS, "--fanout", FANOUTS, "--workers", "2", limit=limit
        )
        print(f"{'samples':24}{sampled['bytes'] / 1e9:10.2f} GB{seconds:12.1f} processor seconds")
        print(f"RESULT samples_disk {sampled['bytes'] / 1e9:.4g} GB\nRESULT samples_drawn {seconds:.4g} s")
        found = {"disk": _train(folder, "--samples", sampled["key"], *unmeasured, limit=limit)}
        if options.group:
            print_usage(options.group, "samples")
        if not options.only_disk:
            found["memory"] = _train(folder, "--fanout", FANOUTS, "--batch-size", BATCH, *unmeasured)
            if found["memory"]["loss"] != found["disk"]["loss"]:
                raise SystemExit("the losses differ")
            ratio = found["memory"]["epoch_seconds"] / found["disk"]["epoch_seconds"]
            print(f"RESULT samples_speed_over_memory {ratio:.3g} x")


def _prepare(folder: str, rmat: int, dim: int, share: float) -> None:
    _run(folder, "generate", "rmat", "--scale", str(rmat), "--edge-factor", "16")
    inputs = Path(folder) / "inputs"
    _run(folder, "features", *random_vertices(inputs, 1 << rmat, dim, share))
    shutil.rmtree(inputs)
    _run(folder, "partition", "--parts", "1", "--method", "block")
    _run(folder, "shard", "--parts", "1")
    print(f"R-MAT {rmat}: {1 << rmat:,} vertices, {dim} features, {share:.2%} of them for training")


def _train(folder: str, *options: str, limit: Callable[[], None] | None = None) -> dict[str, Any]:
    where = "disk" if "--samples" in options else "memory"
    result, seconds = _run(folder, "train", *MODEL, "--run", where, *options, limit=limit)
    peak, read = result["peak_memory"][0] / 1e9, result["bytes_read"][0] / 1e9
    epoch = f"{result['epoch_seconds']:10.2f} s ({seconds:.1f})"
    print(f"{f'train from {where}':24}{epoch}{peak:8.2f} GB peak{read:8.2f} GB read")
    for name, value, unit in (
        ("epoch", result["epoch_seconds"], "s"),
        ("processor", seconds, "s"),
        ("peak", peak, "GB"),
        ("read", read, "GB"),
    ):
        print(f"RESULT samples_{where}_{name} {value:.4g} {unit}")
    sys.stdout.flush()
    return result


def limited(num_bytes: int, group: Path | None) -> Callable[[], None] | None:
    """What a process calls before its program to limit itself and all that it starts; None without a limit."""
    if num_bytes:
        print(f"limit of private memory: {num_bytes >> 20} MiB per process (RLIMIT_DATA)")
    if group:
        limit = next(path for path in map(group.joinpath, _GROUP_LIMITS) if path.exists())
        print(f"limit of all processes and pages together: {int(limit.read_text()) >> 20} MiB ({limit})")
    if not num_bytes and not group:
        return None

    def apply() -> None:
        if group:
            (group / "cgroup.procs").write_text(str(os.getpid()))
        if num_bytes:
            resource.setrlimit(resource.RLIMIT_DATA, (num_bytes, num_bytes))

    return apply


def print_usage(group: Path, what: str) -> None:
    """Print the most memory that a control group ever used at a time.

    Args:
        what: beginning of the figure's name.
    """
    usage = next(path for path in map(group.joinpath, _GROUP_PEAKS) if path.exists())
    print(f"RESULT {what}_group_peak {int(usage.read_text()) / 1e9:.4g} GB")


def _run(
    folder: str, command: str, *options: str, limit: Callable[[], None] | None = None
) -> tuple[dict[str, Any], float]:
    """Run a command on the dataset; return its JSON, and the processor seconds of all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    content = gnnloom(folder, command, "web", *options, limit=limit)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return content, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
