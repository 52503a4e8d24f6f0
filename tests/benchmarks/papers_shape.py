"""ogbn-papers100M's shape, from raw files to a trained model, in little memory.

    python tests/benchmarks/papers_shape.py [--scale tiny|small|quarter|half|full] [--fraction F] [--folder FOLDER]
        [--memory SIZE] [--cores N] [--epochs N] [--keep] [--precision float32|bf16]

Writes a folder in OGB's binary layout (:mod:`papers_folder`) and runs the commands from there to a trained GraphSAGE:

    gnnloom ingest papers FOLDER --format ogb-binary --undirected --store float16
    gnnloom partition papers --parts 1 --method block
    gnnloom shard papers --parts 1
    gnnloom train papers --model sage --hidden 64,64 --mode neighbor --fanout 15,10,5 --inputs disk --pool 2 --epochs 3
        --memory 7G

`--memory` of the training is nine tenths of the control group.

Every command first prints what it expects to need (``--plan``), where it can. All its processes run in one control
group, whose limit holds for their memory and for the pages of the files that they read and write; where this process
may not make a control group, they run without, with a word. Once ingested, the raw files are removed unless ``--keep``
is given.

Prints one table for people, and lines ``RESULT name value unit``. Memory of a process is without files that it maps.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Final

from control_group import memory_group
from limited_stages import GIB, Machine, Stage, kept_folder, report_stages
from papers_folder import Shape, write_papers

from gnnloom.storage.option import parse_bytes

#: Share of papers100M's vertices and edges.
SCALES: Final = {"tiny": 1 / 20_000, "small": 1 / 100, "quarter": 1 / 4, "half": 1 / 2, "full": 1.0}
_NAME: Final = "papers"
#: Memory of the group that a worker of the pipeline, the training, and its evaluation may use.
_WORKER_SHARE, _TRAINING_SHARE, _EVALUATION_SHARE = 0.3, 0.9, 0.4
#: Two batches are prepared ahead: each has the features of up to a million vertices.
_TRAIN: Final = (
    *("--model", "sage", "--hidden", "64,64", "--mode", "neighbor", "--fanout", "15,10,5"),
    *("--inputs", "disk", "--pool", "2"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "small"))
    parser.add_argument("--fraction", type=float, help="of papers100M's vertices and edges, instead of that of --scale")
    parser.add_argument("--folder", type=Path, help="for the raw files and the catalog [default: the system's]")
    parser.add_argument("--memory", type=parse_bytes, default=8 * GIB, help="of the control group, such as 8G")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--keep", action="store_true", help="keep the raw files and the catalog")
    options = parser.parse_args()
    shape = Shape(options.fraction or SCALES[options.scale])
    with kept_folder(options.folder, "papers-", keep=options.keep) as folder:
        print(f"{shape.vertices:,} vertices, {shape.edges:,} directed edges, {shape.num_bytes / GIB:.1f} GiB raw")
        write_papers(folder / "raw", shape)
        with memory_group(f"gnnloom-papers-{os.getpid()}", options.memory) as group:
            if group is None:
                print("note: this process may not make a control group, so nothing limits the memory")
            stages = _run(Machine(folder / "catalog", options.cores, group), folder / "raw", options)
        report_stages(stages, options.memory if group is not None else None)


def _run(machine: Machine, raw: Path, options: argparse.Namespace) -> list[Stage]:
    workers = ("--workers", str(options.cores), "--memory", str(int(options.memory * _WORKER_SHARE)))
    source = ("ingest", _NAME, str(raw), "--format", "ogb-binary", "--undirected", "--store", "float16")
    stages = [machine.run("ingest", *source, *workers)]
    if not options.keep:
        shutil.rmtree(raw)
    block = ("partition", _NAME, "--parts", "1", "--method", "block")
    stages.append(machine.run("partition", *block, *workers, plans=False))
    stages.append(machine.run("shard", "shard", _NAME, "--parts", "1", *workers))
    evaluation = ("--evaluation-memory", str(int(options.memory * _EVALUATION_SHARE)))
    memory = ("--memory", str(int(options.memory * _TRAINING_SHARE)), *evaluation)
    more = ("--epochs", str(options.epochs), "--eval-every", "0", "--precision", options.precision, *memory)
    stages.append(machine.run("train", "train", _NAME, *_TRAIN, *more))
    return stages


if __name__ == "__main__":
    main()
