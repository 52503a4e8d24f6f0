"""An exact epoch of IGB-medium's shape, from its edges to a trained GCN, in the memory of one small machine.

    python tests/benchmarks/igb_shape.py [--scale tiny|tenth|full] [--share S] [--folder FOLDER] [--memory SIZE]
        [--cores N] [--epochs N] [--keep]

10 million vertices with 1024 float16 features in 19 classes, 120 million directed edges that become undirected, and a
GCN of two hidden layers of 256 with bf16: GriNNder (MLSys 2026) takes 102 s for an epoch on an RTX A5000 with 128 GB
of host memory. Writes the edges, and runs the commands:

    gnnloom ingest igb edges.npy --undirected
    gnnloom features igb random --dim 1024 --classes 19 --store float16
    gnnloom partition igb --parts 1 --method block
    gnnloom shard igb --parts 1
    gnnloom train igb --hidden 256,256 --precision bf16 --memory 20G

`--memory` of the training is the limit of the control group, less a fifth for its launcher and for pages of files that
it reads. All processes run in the control group; where this process may not make one, they run without, with a word.
Prints one table for people, and lines ``RESULT name value unit``.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

import numpy as np
from control_group import memory_group
from limited_stages import GIB, Machine, Stage, kept_folder, report_stages

from gnnloom.pipeline.sources.generators.rmat import RmatEdges
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.storage.option import parse_bytes

#: Share of IGB-medium's vertices and edges.
SCALES: Final = {"tiny": 1 / 5_000, "tenth": 1 / 10, "full": 1.0}
VERTICES: Final = 10_000_000
EDGES: Final = 120_077_694
FEATURES: Final = 1024
CLASSES: Final = 19
_NAME: Final = "igb"
#: Memory of the group that a worker of the pipeline, and that the training, may use.
_WORKER_SHARE, _TRAINING_SHARE = 0.1, 0.8
#: Seconds of an epoch of GriNNder.
_PEER: Final = 102.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--share", type=float, help="of IGB-medium's vertices and edges, instead of that of --scale")
    parser.add_argument("--folder", type=Path, help="for the edges and the catalog [default: the system's]")
    parser.add_argument("--memory", type=parse_bytes, default=24 * GIB, help="of the control group, such as 16G")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="keep the catalog")
    options = parser.parse_args()
    share = options.share or SCALES[options.scale]
    with kept_folder(options.folder, "igb-", keep=options.keep) as folder:
        _write_edges(folder / "edges.npy", round(VERTICES * share), round(EDGES * share))
        with memory_group(f"gnnloom-igb-{os.getpid()}", options.memory) as group:
            if group is None:
                print("note: this process may not make a control group, so nothing limits the memory")
            stages = _run(Machine(folder / "catalog", options.cores, group), folder / "edges.npy", options)
        report_stages(stages, options.memory if group is not None else None)
    if share == 1:
        print(f"RESULT epoch-over-peer {stages[-1].result['epoch_seconds'] / _PEER:.3g} x")


def _run(machine: Machine, edges: Path, options: argparse.Namespace) -> list[Stage]:
    workers = ("--workers", str(options.cores), "--memory", str(int(options.memory * _WORKER_SHARE)))
    stages = [machine.run("ingest", "ingest", _NAME, str(edges), "--undirected", *workers)]
    edges.unlink()
    made = ("random", "--dim", str(FEATURES), "--classes", str(CLASSES), "--store", "float16")
    stages.append(machine.run("features", "features", _NAME, *made, *workers))
    stages.append(machine.run("partition", "partition", _NAME, "--parts", "1", "--method", "block", *workers))
    stages.append(machine.run("shard", "shard", _NAME, "--parts", "1", *workers))
    how = ("--hidden", "256,256", "--precision", "bf16", "--epochs", str(options.epochs), "--eval-every", "0")
    memory = ("--memory", str(int(options.memory * _TRAINING_SHARE)))
    stages.append(machine.run("train", "train", _NAME, *how, *memory))
    return stages


def _write_edges(path: Path, num_vertices: int, num_edges: int) -> None:
    """Write (num_edges, 2) int64 R-MAT edges, whose ids are spread over the vertices."""
    scale = (num_vertices - 1).bit_length()
    found = np.lib.format.open_memmap(str(path), "w+", np.int64, (num_edges, 2))
    first = 0
    for chunk in RmatEdges(scale, -(-num_edges >> scale), seed=0).read(SourceRange(0, 0, num_edges)):
        for column, end in enumerate((chunk.source, chunk.target)):
            found[first : first + len(end), column] = end * num_vertices >> scale
        first += len(chunk.source)
    found.flush()


if __name__ == "__main__":
    main()
