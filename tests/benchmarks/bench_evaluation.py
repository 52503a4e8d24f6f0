"""Exact evaluation and prediction from disk of a graph whose features exceed memory, on an R-MAT graph.

    python tests/benchmarks/bench_evaluation.py [--scale small|full] [--rmat N] [--dim F] [--group FOLDER]
                                                [--memory SIZE]

GraphSAGE 64 is trained for one epoch on few samples, then evaluated exactly, and predicts, on one rank. With --group,
all processes that train or predict are in this control group of Linux, whose limit holds for everything together, pages
of files included. --memory is given to the evaluation; without it, it takes its share of what is left. Prints a table,
then lines ``RESULT name value unit``. The projections were made before the evaluations ran.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_samples import limited, print_usage
from commands import gnnloom
from random_vertices import random_vertices

#: Logarithm of the vertices, features, share of training vertices, and memory of the evaluation.
SCALES = {"small": (14, 64, 0.02, "48M"), "full": (24, 128, 0.0005, "")}
MODEL = ("--mode", "neighbor", "--model", "sage", "--hidden", "64", "--epochs", "1", "--eval-every", "0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--rmat", type=int, help="2^N vertices instead of those of --scale")
    parser.add_argument("--dim", type=int, help="number of float32 features instead of those of --scale")
    parser.add_argument("--group", type=Path, help="folder of a control group with a limit of memory")
    parser.add_argument("--memory", help="memory of the evaluation, such as 1G")
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    options = parser.parse_args()
    rmat, dim, share, memory = SCALES[options.scale]
    rmat, dim, memory = options.rmat or rmat, options.dim or dim, options.memory or memory
    budget = ("--evaluation-memory", memory) if memory else ()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-evaluation-") as folder:
        samples = _prepare(folder, rmat, dim, share)
        limit = limited(0, options.group)
        trained = gnnloom(folder, "train", "web", *MODEL, "--samples", samples, "--run", "disk", *budget, limit=limit)
        _print("evaluate", trained)
        predicted = gnnloom(folder, "predict", "web/disk", *budget, limit=limit)
        if "evaluation" in predicted:
            _print("predict", predicted)
        if options.group:
            print_usage(options.group, "evaluation")


def _prepare(folder: str, rmat: int, dim: int, share: float) -> str:
    """Store the graph, and return the key of samples of a part of its training vertices."""
    gnnloom(folder, "generate", "web", "rmat", "--scale", str(rmat), "--edge-factor", "16")
    inputs = Path(folder) / "inputs"
    gnnloom(folder, "features", "web", *random_vertices(inputs, 1 << rmat, dim, share))
    shutil.rmtree(inputs)
    gnnloom(folder, "partition", "web", "--parts", "1", "--method", "block")
    gnnloom(folder, "shard", "web", "--parts", "1")
    print(f"R-MAT {rmat}: {1 << rmat:,} vertices, {dim} features of {4 * dim << rmat:,} bytes")
    key: str = gnnloom(folder, "sample", "web", "--epochs", "1", "--fanout", "5,5", "--workers", "2")["key"]
    return key


def _print(what: str, result: dict[str, Any]) -> None:
    found, peak = result["evaluation"], result["peak_memory"][0] / 1e9
    projected = found["projected"]
    shown = "in memory" if projected is None else f"{projected:10.1f} s projected"
    print(f"{what:12}{found['seconds']:10.1f} s{shown:>24}{found['columns']:6} columns{peak:8.2f} GB peak")
    print(f"RESULT {what}_seconds {found['seconds']:.4g} s\nRESULT {what}_peak {peak:.4g} GB")
    print(f"RESULT {what}_disk {found['disk'] / 1e9:.4g} GB")
    if projected is not None:
        print(f"RESULT {what}_projected_over_measured {projected / found['seconds']:.3g} x")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
