"""An epoch of link training on an R-MAT graph: gnnloom on the whole graph and on sampled neighbors, and PyG.

    python tests/benchmarks/bench_links.py [--scale small|full] [--cases whole,sampled] [--workers 0,1,2] [--rounds N]
                                           [--epochs N] [--catalog FOLDER]

Two layers of 128, 128 features, scalar products of the vectors of both ends, binary cross-entropy with one negative for
each pair, Adam. On the whole graph, a GCN: PyG takes one step an epoch with all training pairs, whose edges it
multiplies with: the classic recipe. gnnloom does the same, and once more without the edges of each step's pairs, which
takes ten steps. PyG's layers have the graph as a CSR tensor and, if torch-sparse is installed, as its SparseTensor; the
ratio is to the faster one. On sampled neighbors, GraphSAGE: both take batches of 1024 pairs and as many random ones,
with fan-outs 15 and 10, both leave out in each layer what later ones do not need, and the pairs are some that the graph
is without. Each side has its best number of ``--workers``, which prepare batches ahead: threads of gnnloom, processes
of PyG's loader. The memory is that of gnnloom with that number, and of PyG without workers, whose memory would come on
top.

Sides alternate: in every round each of them trains in a new process with a thread per core; figures are medians over
the rounds of medians over the epochs after the first. All sides have the same allocator settings. Prints a table, lines
``RESULT name value unit``, and lines ``GOAL`` that say whether a goal is met. ``--catalog`` keeps the graph.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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

#: Scale of the R-MAT graph, share of the other edges that batches train on, rounds and epochs of both cases.
SCALES = {"small": (12, 0.2, 1, 3), "full": (17, 0.02, 3, 4)}
WIDTH, FANOUTS, BATCH, RATE, SEED = 128, (15, 10), 1024, 0.01, 0
#: How many times faster gnnloom should be, and its share of the memory.
GOALS = {"whole": 4.0, "sampled": 3.0}
MEMORY = 0.5

Figures = Mapping[str, Any]
Sides = Mapping[str, Callable[[], Figures]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--cases", type=lambda text: text.split(","), default=["whole", "sampled"])
    parser.add_argument("--workers", type=lambda text: [int(item) for item in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--catalog", type=Path, help="folder that keeps the graph [default: a temporary one]")
    parser.add_argument("--folder", type=Path, help="folder for the temporary catalog [default: the system's]")
    options = parser.parse_args()
    scale, disjoint, rounds, epochs = SCALES[options.scale]
    rounds, epochs = options.rounds or rounds, options.epochs or epochs
    with catalog_in(options.catalog, options.folder) as catalog:
        if "whole" in options.cases:
            case = _Case(catalog, f"rmat-{scale}", scale, 0.0)
            _report("whole", _alternate(case.on_the_whole_graph(epochs), rounds))
        if "sampled" not in options.cases:
            return
        if missing := why_no_pyg():
            print(f"PyG's loader is left out: {missing}")
            return
        case = _Case(catalog, f"rmat-{scale}-disjoint-{disjoint}", scale, disjoint)
        _report("sampled", _alternate(case.on_samples(epochs, options.workers), rounds))


class _Case:
    """A graph whose edges are held out, and what trains on it."""

    def __init__(self, catalog: Path, name: str, scale: int, disjoint: float) -> None:
        self._catalog, self._name = catalog, name
        dataset = generated(catalog, name, "rmat", scale=scale, edge_factor=16)
        links = gnnloom.draw_links(dataset, valid=0.05, test=0.1, disjoint=disjoint, seed=SEED, workers=0)
        self.num_pairs = links.num_pairs["train"]
        partition = gnnloom.partition(dataset, parts=1, method="block", graph=links.message_graph, workers=0)
        self._shards = gnnloom.shard(dataset, 1, partition=partition.artifact.key, workers=0).artifact.key

    def on_the_whole_graph(self, epochs: int) -> Sides:
        """What to measure, by name."""
        kinds = ["csr"] + (["sparse"] if find_spec("torch_sparse") else [])
        return {
            "gnnloom": partial(self.train, epochs, "whole", exclude_targets=False),
            "gnnloom without targets": partial(self.train, epochs, "excluding", exclude_targets=True),
            **{f"PyG {kind}": partial(self.peer, kind, epochs) for kind in kinds},
        }

    def on_samples(self, epochs: int, workers: Sequence[int]) -> Sides:
        """What to measure, by name."""
        batches = {"mode": "neighbor", "model": "sage", "fanout": FANOUTS, "link_batch": BATCH}
        # PyG draws both ends of a negative.
        batches["negative_sampler"] = "pairs"
        sides: dict[str, Callable[[], Figures]] = {}
        for count in workers:
            given = {**batches, "sampler_threads": count, "exclude_targets": False}
            sides[f"gnnloom, {count} workers"] = partial(self.train, epochs, f"sampled-{count}", **given)
            sides[f"PyG, {count} workers"] = partial(self.peer, f"neighbor-{count}", epochs)
        return sides

    def train(self, epochs: int, run: str, **options: Any) -> Figures:
        """Figures of gnnloom."""
        config = TrainConfig.of(
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
            run=run,
            **options,
        )
        return {**train_ranks(config, KEPT), "pairs": self.num_pairs}

    def peer(self, kind: str, epochs: int) -> Figures:
        """Figures of PyG."""
        command = [sys.executable, str(HERE / "link_peer.py"), str(self._catalog), self._name, kind, str(epochs)]
        return {**last_line(command, rank_environment(1, os.cpu_count() or 1) | KEPT), "pairs": self.num_pairs}


def _alternate(sides: Sides, rounds: int) -> dict[str, Figures]:
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
    mine = min((each for name, each in found.items() if _is_same_recipe(name)), key=_wall)
    peers = [each for name, each in found.items() if name.startswith("PyG")]
    print(f"\n{what}: an epoch of {mine['pairs']:,} pairs")
    print(f"{'':28}{'wall s':>10}{'cpu s':>10}{'MiB':>10}{'last loss':>12}{'ratio':>8}")
    for name, each in found.items():
        ratio = each["wall"] / mine["wall"]
        figures = f"{each['wall']:10.3f}{each['processor']:10.3f}{each['peak'] / 2**20:10.0f}{each['loss'][-1]:12.4f}"
        print(f"{name:28}{figures}{ratio:8.2f}")
        key = f"RESULT links_{what}_{name.lower().replace(',', '').replace(' ', '_')}"
        print(f"{key}_wall {each['wall']:.4g} s\n{key}_processor {each['processor']:.4g} s")
        print(f"{key}_peak {each['peak'] / 2**20:.4g} MiB")
    faster = min(map(_wall, peers)) / mine["wall"]
    memory = mine["peak"] / min(each["peak"] for each in peers)
    print(f"RESULT links_{what}_speedup {faster:.3g} x\nRESULT links_{what}_memory {memory:.3g} x")
    print(f"GOAL links_{what}_speedup at least {GOALS[what]:g}: {'met' if faster >= GOALS[what] else 'missed'}")
    print(f"GOAL links_{what}_memory at most {MEMORY:g}: {'met' if memory <= MEMORY else 'missed'}", flush=True)


def _is_same_recipe(name: str) -> bool:
    """Whether a side is gnnloom's, and does what PyG does."""
    return name == "gnnloom" or name.startswith("gnnloom,")


def _wall(figures: Figures) -> float:
    return float(figures["wall"])


if __name__ == "__main__":
    main()
