"""An epoch of link training on an R-MAT graph: gnnloom on the whole graph and on sampled neighbors, and PyG.

    python tests/benchmarks/bench_links.py [--scale small|full] [--rounds N] [--epochs N] [--catalog FOLDER]

GCN of two layers of 128, 128 features, scalar products of the vectors of both ends, binary cross-entropy with one
negative for each pair, Adam. On the whole graph, PyG takes one step an epoch with all training pairs, whose edges it
multiplies with: the classic recipe. gnnloom does the same, and once more without the edges of each step's pairs, which
takes ten steps. PyG's layers have the graph as a CSR tensor and, if torch-sparse is installed, as its SparseTensor; the
ratio is to the faster one. On sampled neighbors, both take batches of 1024 pairs with fan-outs 15 and 10, and the
pairs are some that the graph is without.

Sides alternate: in every round each of them trains in a new process with a thread per core; figures are medians over
the rounds of medians over the epochs after the first. All sides have the same allocator settings. Prints a table, lines
``RESULT name value unit``, and lines ``GOAL`` that say whether a goal is met. ``--catalog`` keeps the graph.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from allocator import KEPT
from graphs import catalog_in, generated
from launching import HERE, last_line, train_ranks
from sampling_peers import why_no_pyg

import gnnloom
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import rank_environment

#: Scale of the R-MAT graph, share of the other edges that batches train on, rounds and epochs.
SCALES = {"small": (12, 0.2, 1, 3), "full": (17, 0.06, 3, 4)}
WIDTH, FANOUTS, BATCH, RATE, SEED = 128, (15, 10), 1024, 0.01, 0
#: How many times faster gnnloom should be, and its share of the memory.
GOALS = {"whole": 4.0, "sampled": 3.0}
MEMORY = 0.5

Figures = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--catalog", type=Path, help="folder that keeps the graph [default: a temporary one]")
    parser.add_argument("--folder", type=Path, help="folder for the temporary catalog [default: the system's]")
    options = parser.parse_args()
    scale, disjoint, rounds, epochs = SCALES[options.scale]
    rounds, epochs = options.rounds or rounds, options.epochs or epochs
    with catalog_in(options.catalog, options.folder) as catalog:
        whole = _Case(catalog, f"rmat-{scale}", scale, 0.0)
        kinds = ["csr"] + (["sparse"] if find_spec("torch_sparse") else [])
        sides: dict[str, Callable[[], Figures]] = {
            "gnnloom": lambda: whole.train(epochs, exclude_targets=False),
            "gnnloom without targets": lambda: whole.train(epochs, exclude_targets=True),
            **{f"PyG {kind}": lambda kind=kind: whole.peer(kind, epochs) for kind in kinds},  # type: ignore[misc]
        }
        _report("whole", _alternate(sides, rounds))
        if missing := why_no_pyg():
            print(f"PyG's loader is left out: {missing}")
            return
        some = _Case(catalog, f"rmat-{scale}-disjoint", scale, disjoint)
        batches = {"mode": "neighbor", "fanout": FANOUTS, "link_batch": BATCH}
        sampled: dict[str, Callable[[], Figures]] = {
            "gnnloom": lambda: some.train(epochs, exclude_targets=False, **batches),
            "PyG LinkNeighborLoader": lambda: some.peer("neighbor", epochs),
        }
        _report("sampled", _alternate(sampled, rounds))


class _Case:
    """A graph whose edges are held out, and what trains on it."""

    def __init__(self, catalog: Path, name: str, scale: int, disjoint: float) -> None:
        self._catalog, self._name = catalog, name
        dataset = generated(catalog, name, "rmat", scale=scale, edge_factor=16)
        links = gnnloom.draw_links(dataset, valid=0.05, test=0.1, disjoint=disjoint, seed=SEED, workers=0)
        self.num_pairs = links.num_pairs["train"]
        partition = gnnloom.partition(dataset, parts=1, method="block", graph=links.message_graph, workers=0)
        self._shards = gnnloom.shard(dataset, 1, partition=partition.artifact.key, workers=0).artifact.key

    def train(self, epochs: int, **options: Any) -> Figures:
        """Figures of gnnloom."""
        config = TrainConfig(
            catalog=str(self._catalog),
            dataset=self._name,
            shards=self._shards,
            task="link",
            hidden=(WIDTH,),
            output_dim=WIDTH,
            lr=RATE,
            epochs=epochs,
            eval_every=0,
            final_eval=False,
            feature_norm="none",
            seed=SEED,
            threads=os.cpu_count() or 1,
            run="links-" + "-".join(map(str, options.values())).replace(" ", "").lower().strip("()").replace(",", ""),
            **options,
        )
        return {**train_ranks(config, KEPT), "pairs": self.num_pairs}

    def peer(self, kind: str, epochs: int) -> Figures:
        """Figures of PyG."""
        command = [sys.executable, str(HERE / "link_peer.py"), str(self._catalog), self._name, kind, str(epochs)]
        return {**last_line(command, rank_environment(1, os.cpu_count() or 1) | KEPT), "pairs": self.num_pairs}


def _alternate(sides: Mapping[str, Callable[[], Figures]], rounds: int) -> dict[str, Figures]:
    found: dict[str, list[Figures]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            found[name].append(measure())
    names = ("wall", "processor", "peak")
    return {
        side: {**several[0], **{name: statistics.median(each[name] for each in several) for name in names}}
        for side, several in found.items()
    }


def _report(what: str, found: Mapping[str, Figures]) -> None:
    mine = found["gnnloom"]
    print(f"\n{what}: an epoch of {mine['pairs']:,} pairs")
    print(f"{'':28}{'wall s':>10}{'cpu s':>10}{'MiB':>10}{'last loss':>12}{'ratio':>8}")
    for name, each in found.items():
        ratio = each["wall"] / mine["wall"]
        figures = f"{each['wall']:10.3f}{each['processor']:10.3f}{each['peak'] / 2**20:10.0f}{each['loss'][-1]:12.4f}"
        print(f"{name:28}{figures}{ratio:8.2f}")
        key = f"RESULT links_{what}_{name.lower().replace(' ', '_')}"
        print(f"{key}_wall {each['wall']:.4g} s\n{key}_processor {each['processor']:.4g} s")
        print(f"{key}_peak {each['peak'] / 2**20:.4g} MiB")
    peers = [each for name, each in found.items() if name.startswith("PyG")]
    faster = min(each["wall"] for each in peers) / mine["wall"]
    memory = mine["peak"] / min(each["peak"] for each in peers)
    print(f"RESULT links_{what}_speedup {faster:.3g} x\nRESULT links_{what}_memory {memory:.3g} x")
    print(f"GOAL links_{what}_speedup at least {GOALS[what]:g}: {'met' if faster >= GOALS[what] else 'missed'}")
    print(f"GOAL links_{what}_memory at most {MEMORY:g}: {'met' if memory <= MEMORY else 'missed'}", flush=True)


if __name__ == "__main__":
    main()
