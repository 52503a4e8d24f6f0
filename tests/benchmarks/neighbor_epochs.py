"""Epochs of GraphSAGE 64-64-16 on sampled neighbors in bench_sampling: gnnloom against PyG's NeighborLoader.

Each side trains in a process of its own, one thread, with batches drawn in this thread or by another one (a process,
for PyG) ahead of their use. Both have the same allocator settings.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import find_mpiexec, rank_environment

HERE = Path(__file__).parent
FANOUTS, BATCH, EPOCHS = (15, 10, 5), 1024, 3
#: Neither a mapping of its own nor the top of the heap goes back to the system.
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}
#: Samplers that run ahead, of each comparison.
AHEAD = {"in the process": 0, "one ahead": 1}


def report_epochs(folder: str, dataset: str, *, with_peer: bool) -> None:
    """Measure and print an epoch of all sides; ratios are processor seconds, or wall seconds with samplers ahead."""
    print(f"\n{dataset}: epochs of GraphSAGE 64-64-16, fan-outs {list(FANOUTS)}, batches of {BATCH}, one thread")
    print(f"{'':28}{'cpu s':>10}{'wall s':>10}{'sampling':>10}{'last loss':>10}{'ratio':>8}")
    for how, ahead in AHEAD.items():
        mine = _ours(folder, dataset, ahead)
        sides = {"gnnloom": mine} | ({"PyG": _peer(folder, dataset, ahead)} if with_peer else {})
        for name, found in sides.items():
            # The processor time of PyG's workers is not that of the process that trains.
            clock = "wall" if ahead else "processor"
            ratio = found[clock] / mine[clock]
            share = f"{found['sampling']:.0%}" if "sampling" in found else ""
            figures = f"{found['processor']:10.2f}{found['wall']:10.2f}{share:>10}{found['loss'][-1]:10.4f}{ratio:8.1f}"
            print(f"{f'{name}, {how}':28}{figures}")
            key = f"RESULT epoch_{dataset}_{name.lower()}_{how.replace(' ', '_')}"
            print(f"{key}_processor {found['processor']:.4g} s\n{key}_wall {found['wall']:.4g} s")
            if share:
                print(f"{key}_sampling {100 * found['sampling']:.3g} %")
            else:
                print(f"{key}_over_gnnloom {ratio:.3g} x")
        sys.stdout.flush()


def _ours(folder: str, dataset: str, ahead: int) -> dict[str, Any]:
    """Figures of gnnloom, with the share of an epoch's wall time in which it has no batch to train on."""
    config = TrainConfig(
        catalog=folder,
        dataset=dataset,
        mode="neighbor",
        model="sage",
        hidden=(64, 64),
        fanout=FANOUTS,
        batch_size=BATCH,
        sampler_threads=ahead,
        epochs=EPOCHS,
        eval_every=0,
        feature_norm="none",
        threads=1,
        profile=True,
        run=f"epochs-{ahead}",
    )
    program = [sys.executable, "-m", "mpi4py", str(HERE / "epoch_ranks.py"), json.dumps(config.to_json())]
    found = _last_line([find_mpiexec(), "-n", "1", *program])
    lines = Run.open(Catalog(folder).dataset(dataset), config.run_name).metrics()[1:]
    shares = [line["profile"][0]["seconds"].get("sampling", 0.0) / line["seconds"] for line in lines]
    return {**found, "sampling": statistics.median(shares)}


def _peer(folder: str, dataset: str, ahead: int) -> dict[str, Any]:
    return _last_line([sys.executable, str(HERE / "neighbor_peer.py"), folder, dataset, str(EPOCHS), str(ahead)])


def _last_line(command: list[str]) -> dict[str, Any]:
    environment = rank_environment(1, threads=1) | KEPT
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
