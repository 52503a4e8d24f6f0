"""An epoch of three layers: gnnloom on one and two ranks, in float32 and bf16, and PyG's layers on the same cores.

    python tests/benchmarks/bench_epoch.py [--scale small|medium|full] [--models gcn,sage,gin,gat,gatv2]
                                           [--graphs rmat,lattice] [--widths 64,128,256]
                                           [--sides 1,2,1-bf16,2-bf16,1-same,...]
                                           [--rounds N] [--epochs N] [--catalog FOLDER]

128 features, 32 classes, no dropout, the same initial weights, loss and Adam on all sides. Two graphs: R-MAT
(Graph500's parameters) and a square lattice in natural order, whose halves share one line of vertices. Sides
alternate: in every round each of them trains in new processes; figures are medians over the rounds of medians over the
epochs after the second. PyG has the graph as a CSR tensor, as torch-sparse's SparseTensor (if that is installed) and as
``edge_index``, with the normalized adjacency of GCNConv cached; goals are ratios to the fastest of these. gnnloom is
measured as one gets it, and with the products that PyG's layers form ("same products"). One rank has a thread per core,
two ranks share the cores, and PyG has a thread per core. All sides have the same allocator settings: glibc keeps freed
memory, which PyG needs to be fast and gnnloom does not. A side that needs more memory than is free is skipped, with a
word.

The full scale takes GCN at all widths and the other models at 128, and the medium one does so on smaller graphs; the
small one has one small R-MAT graph, and fewer sides for the other models.

Losses of all sides must agree to 1e-4, those of bf16 to 1 %. Processor seconds are those of all ranks together, memory
that of all ranks. Prints a table for each case, lines ``RESULT name value unit``, and lines ``GOAL`` that say whether a
goal is met. ``--catalog`` keeps the graphs for the next run.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from epoch_report import FIGURES, report
from epoch_sides import SIDES, Case, family
from graphs import catalog_in, generated, row_shards

#: Arguments that generate a graph, and the partitioner that divides it in two.
GRAPHS: dict[str, dict[str, tuple[dict[str, Any], str]]] = {
    "small": {
        "rmat-11": ({"scale": 11, "edge_factor": 16}, "auto"),
        "lattice-64": ({"size": (64, 64)}, "block"),
    },
    "medium": {
        "rmat-15": ({"scale": 15, "edge_factor": 16}, "auto"),
        "lattice-256": ({"size": (256, 256)}, "block"),
    },
    "full": {
        "rmat-17": ({"scale": 17, "edge_factor": 16}, "auto"),
        "lattice-1000": ({"size": (1000, 1000)}, "block"),
    },
}
MODELS = ("gcn", "sage", "gin", "gat", "gatv2")
#: Widths of the hidden layers; those of the other models than GCN are the middle one.
WIDTHS = {"small": (64,), "medium": (64, 128, 256), "full": (64, 128, 256)}
#: Rounds and epochs.
REPEATS = {"small": (1, 5), "medium": (2, 6), "full": (2, 6)}
#: Sides of the small scale, of GCN and of the other models.
SMALL_SIDES = ("1", "2", "1-bf16", "1-same", "csr", "edge_index"), ("1", "edge_index")


def main() -> None:
    options = _options()
    rounds, epochs = REPEATS[options.scale]
    rounds, epochs = options.rounds or rounds, options.epochs or epochs
    with catalog_in(options.catalog, options.folder) as catalog:
        for case in _cases(options, {graph: _shards(options, catalog, graph) for graph in _graphs(options)}):
            _run(case, catalog, _sides(options, case), rounds, epochs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=GRAPHS, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--models", type=_choices(MODELS), default=MODELS)
    parser.add_argument("--graphs", type=_choices(("rmat", "lattice")), help="[default: rmat small, else both]")
    parser.add_argument("--widths", type=lambda text: tuple(int(item) for item in text.split(",")))
    parser.add_argument("--sides", type=_choices(tuple(SIDES)))
    parser.add_argument("--rounds", type=int, help="repetitions [default: 1 small, else 2]")
    parser.add_argument("--epochs", type=int, help="of each repetition [default: 5 small, else 6]")
    parser.add_argument("--catalog", type=Path, help="folder that keeps the graphs [default: a temporary one]")
    parser.add_argument("--folder", type=Path, help="folder for the temporary catalog [default: the system's]")
    return parser.parse_args()


def _choices(allowed: Sequence[str]) -> Any:
    def parse(text: str) -> tuple[str, ...]:
        given = tuple(text.split(","))
        unknown = [item for item in given if item not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(allowed)}")
        return given

    return parse


def _graphs(options: argparse.Namespace) -> list[str]:
    chosen = options.graphs or (("rmat",) if options.scale == "small" else ("rmat", "lattice"))
    return [graph for graph in GRAPHS[options.scale] if family(graph) in chosen]


def _shards(options: argparse.Namespace, catalog: Path, graph: str) -> dict[int, str]:
    arguments, method = GRAPHS[options.scale][graph]
    dataset = generated(catalog, graph, family(graph), **arguments)
    return {1: row_shards(dataset, 1, "block"), 2: row_shards(dataset, 2, method)}


def _cases(options: argparse.Namespace, shards: Mapping[str, Mapping[int, str]]) -> list[Case]:
    cases = []
    for model in options.models:
        usual = WIDTHS[options.scale]
        widths = options.widths or (usual if model == "gcn" else usual[len(usual) // 2 :][:1])
        cases += [Case(model, graph, width, keys) for graph, keys in shards.items() for width in widths]
    return cases


def _sides(options: argparse.Namespace, case: Case) -> Sequence[str]:
    usual = SMALL_SIDES[case.model != "gcn"] if options.scale == "small" else tuple(SIDES)
    return options.sides or usual


def _run(case: Case, catalog: Path, sides: Sequence[str], rounds: int, epochs: int) -> None:
    hindered = {key: SIDES[key].hindrance(case, catalog) for key in sides}
    found: dict[str, list[dict[str, Any]]] = {key: [] for key in sides if not hindered[key]}
    for _ in range(rounds):
        for key, several in found.items():
            several.append(SIDES[key].measure(case, catalog, epochs))
    medians = {key: _medians(several) for key, several in found.items()}
    report(case, medians, {key: reason for key, reason in hindered.items() if reason})


def _medians(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    figures = {name: statistics.median(each[name] for each in several) for name in FIGURES}
    return {**figures, "loss": several[0]["loss"]}


if __name__ == "__main__":
    main()
