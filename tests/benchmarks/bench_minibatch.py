"""Rows and bytes that mini-batch training sends with stochastic and full-batch partitions, and what was forecast.

    python tests/benchmarks/bench_minibatch.py [--scale small|full] [--data FOLDER] [--folder FOLDER]

ca-AstroPh and soc-Epinions1, undirected, 4 ranks, batches of several sizes. Each partition trains an epoch of a GCN of
two layers on 16 features with 16 hidden units and 16 classes, so the rows that a batch sends for one product follow
from the bytes of the forward halos. Prints a table, then lines ``RESULT name value unit``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from commands import gnnloom

GRAPHS = {"small": ("ca-AstroPh",), "full": ("ca-AstroPh", "soc-Epinions1")}
RATES = {"small": (0.06,), "full": (0.02, 0.06, 0.2)}
RANKS, WIDTH = 4, 16
HEADS = ("graph", "batch", "partition", "MB per epoch", "rows per batch", "forecast", "of full batch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=GRAPHS, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the real graphs")
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    options = parser.parse_args()
    found = {graph: options.data / f"{graph}.txt.gz" for graph in GRAPHS[options.scale]}
    there = {graph: path for graph, path in found.items() if path.exists()}
    for graph, path in found.items():
        if graph not in there:
            print(f"{graph} is left out: there is no {path}; --data names the folder with the graphs")
    if not there:
        return
    print("".join(f"{head:>16}" for head in HEADS))
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-minibatch-") as folder:
        for graph, path in there.items():
            name = graph.lower()
            made = gnnloom(folder, "ingest", name, str(path), "--undirected", "--ids", "compact")
            gnnloom(folder, "features", name, "random", "--dim", str(WIDTH), "--classes", str(WIDTH))
            for rate in RATES[options.scale]:
                _compare(folder, name, rate, round(rate * made["vertices"]), made["vertices"])


def _compare(folder: str, name: str, rate: float, size: int, num_vertices: int) -> None:
    """Train on both partitions with batches of a size; print the rows of the table, and the results."""
    model = ("--model", "stochastic", "--batch-rate", str(rate), "--time-limit", "600")
    fitted = _partition(folder, name, *model)
    whole = _partition(folder, name)
    forecast = {"stochastic": fitted["batch_volume_expected"], "full batch": fitted["batch_volume_full_expected"]}
    batches = -(-num_vertices // size)
    sent = {}
    for kind, key in (("full batch", whole["key"]), ("stochastic", fitted["key"])):
        shards = gnnloom(folder, "shard", name, "--parts", str(RANKS), "--partition", key)["key"]
        given = ("--mode", "minibatch", "--batch-size", str(size), "--run", f"{kind.split()[0]}-{size}")
        fixed = ("--hidden", str(WIDTH), "--epochs", "1", "--eval-every", "0", "--threads", "1", "--ranks", str(RANKS))
        found = gnnloom(folder, "train", name, "--shards", shards, *given, *fixed)["bytes_by_kind"]
        # Two forward products of the same width.
        rows = found["halo forward"] / (2 * WIDTH * 4) / batches
        sent[kind] = rows
        moved = (found["halo forward"] + found["halo backward"]) / 1e6
        cells = (name, f"{rate:.0%}", kind, f"{moved:.2f}", f"{rows:,.1f}", f"{forecast[kind]:,.1f}")
        print("".join(f"{cell:>16}" for cell in cells) + f"{rows / sent['full batch']:16.3f}")
    for kind, rows in sent.items():
        key = f"RESULT minibatch_{name}_{rate:g}_{kind.replace(' ', '_')}"
        print(f"{key}_rows {rows:.5g} rows\n{key}_over_forecast {rows / forecast[kind]:.4g} x")
    print(f"RESULT minibatch_{name}_{rate:g}_saved {sent['stochastic'] / sent['full batch']:.4g} x")
    sys.stdout.flush()


def _partition(folder: str, name: str, *options: str) -> dict[str, Any]:
    return gnnloom(folder, "partition", name, "--parts", str(RANKS), "--threads", "1", *options)


if __name__ == "__main__":
    main()
