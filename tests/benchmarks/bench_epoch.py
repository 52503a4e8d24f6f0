"""An epoch of a three-layer GCN on an R-MAT graph: gnnloom on one and two ranks, PyG's GCNConv on the same cores.

    python tests/benchmarks/bench_epoch.py [--scale small|full] [--widths 64,128,256] [--rounds N] [--folder FOLDER]

128 features, 32 classes, float32, no dropout, the same initial weights, loss and Adam on all sides. Sides alternate: in
every round each of them trains in new processes, and figures are medians over the rounds of medians over the epochs
after the second. PyG has the graph as ``edge_index`` and as a CSR tensor, with the normalized adjacency cached. All
sides have the same allocator settings: glibc keeps freed memory, which PyG needs to be fast and gnnloom does not.
Losses of all sides must agree to 1e-4, those of bf16 to 1 %.
Processor seconds are those of all ranks together, memory that of all ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import find_mpiexec, rank_environment

HERE = Path(__file__).parent
DATASET = "web"
SCALES = {"small": (11, 6, 1), "full": (17, 8, 3)}
#: Twice the largest tensor: neither a mapping of its own nor the top of the heap goes back to the system.
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}
SEED = 0
SIDES = (
    "gnnloom, 1 rank",
    "gnnloom, 2 ranks",
    "gnnloom bf16, 1 rank",
    "gnnloom bf16, 2 ranks",
    "PyG, CSR",
    "PyG, edge_index",
)
TOLERANCE, TOLERANCE_BF16 = 1e-4, 1e-2


def main() -> None:
    options = _options()
    scale, epochs, rounds = SCALES[options.scale]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-epoch-") as folder:
        _prepare(folder, scale)
        for width in options.widths:
            found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
            for _ in range(options.rounds or rounds):
                for side in SIDES:
                    found[side].append(_measure(folder, side, width, epochs))
            _report(scale, width, {side: _medians(several) for side, several in found.items()})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--widths", type=lambda text: [int(item) for item in text.split(",")], default=[64, 128, 256])
    parser.add_argument("--rounds", type=int, default=0, help="repetitions [default: 1 small, 3 full]")
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    return parser.parse_args()


def _prepare(folder: str, scale: int) -> None:
    for command in (
        f"generate {DATASET} rmat --scale {scale} --edge-factor 16",
        f"features {DATASET} random --dim 128 --classes 32",
        f"partition {DATASET} --parts 1 --method block",
        f"shard {DATASET} --parts 1 --method block",
        f"partition {DATASET} --parts 2",
        f"shard {DATASET} --parts 2",
    ):
        program = [sys.executable, "-m", "gnnloom.workflows.cli.main", "--catalog", folder, *command.split()]
        _output(program, dict(os.environ))


def _measure(folder: str, side: str, width: int, epochs: int) -> dict[str, Any]:
    if side.startswith("PyG"):
        kind = "csr" if side.endswith("CSR") else "edge_index"
        arguments = [folder, DATASET, kind, str(width), str(epochs), str(SEED)]
        program = [sys.executable, str(HERE / "epoch_peers.py"), *arguments]
        return _last_line(program, rank_environment(1) | KEPT)
    name, _, count = side.partition(", ")
    ranks, precision = int(count.split()[0]), "bf16" if name.endswith("bf16") else "float32"
    config = TrainConfig(
        catalog=folder,
        dataset=DATASET,
        ranks=ranks,
        hidden=(width, width),
        epochs=epochs,
        eval_every=0,
        dropout=0.0,
        seed=SEED,
        precision=precision,
        run=f"width-{width}-{ranks}-{precision}",
    )
    program = [sys.executable, "-m", "mpi4py", str(HERE / "epoch_ranks.py"), json.dumps(config.to_json())]
    return _last_line([find_mpiexec(), "-n", str(ranks), *program], rank_environment(ranks) | KEPT)


def _last_line(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_output(command, environment).splitlines()[-1])
    return found


def _output(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def _medians(several: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("wall", "processor", "faults", "total_peak")
    return {name: statistics.median(each[name] for each in several) for name in names} | {"loss": several[0]["loss"]}


def _report(scale: int, width: int, found: dict[str, dict[str, Any]]) -> None:
    base = found[SIDES[0]]
    print(f"\nR-MAT scale {scale}, width {width}, {len(os.sched_getaffinity(0))} cores, glibc keeps freed memory")
    print(f"{'':22}{'wall s':>10}{'cpu s':>10}{'faults':>10}{'MB peak':>10}{'wall x':>10}{'cpu x':>10}")
    for side, each in found.items():
        _check_losses(side, base["loss"], each["loss"])
        ratios = [each[name] / base[name] for name in ("wall", "processor")]
        numbers = f"{each['wall']:10.3f}{each['processor']:10.3f}{each['faults']:10.0f}{each['total_peak'] / 1e6:10.0f}"
        print(f"{side:22}{numbers}{ratios[0]:10.2f}{ratios[1]:10.2f}")
    for side, each in found.items():
        prefix = f"RESULT epoch_{side.lower().replace(',', '').replace(' ', '_')}_{width}"
        print(f"{prefix}_wall {each['wall']:.4g} s\n{prefix}_processor {each['processor']:.4g} s")
        print(f"{prefix}_peak {each['total_peak'] / 1e6:.4g} MB")
        print(f"{prefix}_over_gnnloom {each['processor'] / base['processor']:.3g} x")
    sys.stdout.flush()


def _check_losses(side: str, expected: list[float], found: list[float]) -> None:
    worst = max(abs(a - b) / abs(a) for a, b in zip(expected, found, strict=True))
    if worst > (TOLERANCE_BF16 if "bf16" in side else TOLERANCE):
        raise SystemExit(f"{side}: losses differ by {worst:.2g} from those of {SIDES[0]}: {expected}, {found}")


if __name__ == "__main__":
    main()
