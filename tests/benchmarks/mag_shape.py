"""MAG240M's shape, from its files to a trained R-GraphSAGE, in little memory.

    python tests/benchmarks/mag_shape.py [--scale tiny|small|full] [--share S] [--folder FOLDER] [--memory SIZE]
        [--cores N] [--epochs N] [--only-train] [--keep]

Writes a folder in MAG240M's layout (:mod:`mag_folder`), a twentieth of its size by default, and runs the commands from
there to a trained model:

    gnnloom ingest mag FOLDER --store float16
    gnnloom partition mag --parts 4 --quality fast --reverse
    gnnloom shard mag --parts 4
    gnnloom train mag --mode neighbor --of-type paper --reverse --model relational_sage:RelationalSAGE
        --hidden 64 --fanout 10,5 --inputs disk --batch-size 512 --pool 1

The last epoch is followed by an evaluation, layer by layer. Training reads neither the partition nor the shards, which
``--only-train`` leaves out.

Every command first prints what it expects to need (``--plan``), where it can. All its processes run in one control
group, whose limit holds for their memory and for the pages of the files that they read and write; where this process
may not make a control group, they run without, with a word. Once ingested, the raw files are removed unless ``--keep``
is given. Prints one table for people, and lines ``RESULT name value unit``.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Final

from control_group import memory_group
from limited_stages import GIB, Machine, Stage, kept_folder, report_stages
from mag_folder import write_mag

from gnnloom.storage.option import parse_bytes

#: Share of MAG240M's vertices and edges.
SCALES: Final = {"tiny": 1 / 20_000, "small": 1 / 500, "full": 1 / 20}
_NAME: Final = "mag"
#: Memory of the group that a worker of the pipeline may use.
_WORKER_SHARE: Final = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--share", type=float, help="of MAG240M's vertices and edges, instead of that of --scale")
    parser.add_argument("--folder", type=Path, help="for the raw files and the catalog [default: the system's]")
    parser.add_argument("--memory", type=parse_bytes, default=3 * GIB, help="of the control group, such as 8G")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--quality", default="fast", help="of the partition; METIS takes 10 GiB at the full scale")
    parser.add_argument("--only-train", action="store_true", help="leave out the partition and the shards")
    parser.add_argument("--keep", action="store_true", help="keep the raw files and the catalog")
    options = parser.parse_args()
    with kept_folder(options.folder, "mag-", keep=options.keep) as folder:
        sizes = write_mag(folder / "raw", options.share or SCALES[options.scale])
        print(", ".join(f"{count:,} {name}s" for name, count in sizes.items()))
        shutil.copy(Path(__file__).with_name("relational_sage.py"), folder)
        with memory_group(f"gnnloom-mag-{os.getpid()}", options.memory) as group:
            if group is None:
                print("note: this process may not make a control group, so nothing limits the memory")
            stages = _run(Machine(folder / "catalog", options.cores, group), folder / "raw", options)
        report_stages(stages, options.memory if group is not None else None)


def _run(machine: Machine, raw: Path, options: argparse.Namespace) -> list[Stage]:
    workers = ("--workers", str(options.cores), "--memory", str(int(options.memory * _WORKER_SHARE)))
    stages = [machine.run("ingest", "ingest", _NAME, str(raw), "--store", "float16", *workers)]
    if not options.keep:
        shutil.rmtree(raw)
    parts = ("--parts", "4", "--quality", options.quality, "--reverse")
    if not options.only_train:
        stages.append(machine.run("partition", "partition", _NAME, *parts, *workers))
        stages.append(machine.run("shard", "shard", _NAME, "--parts", "4", *workers))
    model = ("--mode", "neighbor", "--of-type", "paper", "--reverse", "--model", "relational_sage:RelationalSAGE")
    how = ("--hidden", "64", "--fanout", "10,5", "--inputs", "disk", "--batch-size", "512", "--pool", "1")
    epochs = ("--epochs", str(options.epochs), "--eval-every", "0")
    stages.append(machine.run("train", "train", _NAME, *model, *how, *epochs))
    return stages


if __name__ == "__main__":
    main()
