"""Epochs of GraphSAGE 64-64-16 on sampled neighbors in bench_sampling: gnnloom against PyG's NeighborLoader.

Each side trains in a process of its own, one thread, with batches drawn in this thread or by another one (a process,
for PyG) ahead of their use. Both have the same allocator settings.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from allocator import KEPT
from launching import HERE, last_line, train_ranks

from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import rank_environment

FANOUTS, BATCH, EPOCHS = (15, 10, 5), 1024, 3
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
    config = TrainConfig.of(
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
    found = train_ranks(config, KEPT)
    lines = Run.open(Catalog(folder).dataset(dataset), config.run_name).metrics()[1:]
    shares = [line["profile"][0]["seconds"].get("sampling", 0.0) / line["seconds"] for line in lines]
    return {**found, "sampling": statistics.median(shares)}


def _peer(folder: str, dataset: str, ahead: int) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "neighbor_peer.py"), folder, dataset, str(EPOCHS), str(ahead)]
    return last_line(command, rank_environment(1, threads=1) | KEPT)
