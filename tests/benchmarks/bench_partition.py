"""Partitions of real graphs and a lattice, relative to random ones and to published figures.

    python tests/benchmarks/bench_partition.py [--scale small|full] [--data FOLDER] [--cases slashdot,...]

Cases:
    slashdot: soc-Slashdot0902 at 512 parts and imbalance 0.01; average and maximum volume and messages relative to
        random parts (mean of 3 seeds), to compare with Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), Table 2.
    lattice: 1000 x 1000 with scrambled ids at 512 parts, and the out-of-core method compared with Mt-KaHyPar at 64.
    epinions: the out-of-core method compared with Mt-KaHyPar on soc-Epinions1.
    batches: rows sent per uniform mini-batch of 6 % of the vertices at 27 parts, and on ca-AstroPh also per batch of
        the samplers whose batches are merged.
    quality: the levels of ``--quality`` and the methods on graphs of nine kinds at 16 and 64 parts, and on Slashdot at
        512; rows relative to the best method, processor time relative to it and to level ``best``.  ``--graphs``
        selects some, so that several processes can share the work, and ``--table`` writes a table.
    partitioners: rows, rows and sums of a cover, imbalance, processor time and memory of `gnnloom partition` in a
        process of its own, for the levels and for methods that can be named, on real and generated graphs; ``--graphs``
        selects some, as NAME or NAME:PARTS, where r18 is R-MAT of scale 18, and ``--table`` writes a table.
    plan: the figures of `partition --plan` on soc-Epinions1, divided by the measured ones.

``--scale small`` takes fewer parts, quick methods, and a lattice of 200 x 200.  Prints a table, then lines
``RESULT name value unit``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import kinds
import levels
import numpy as np
from numpy.typing import NDArray
from processes import watch

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.partition.partition_plan import project_methods
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset

FIGURES = ("volume_avg", "volume_max", "messages_avg", "messages_max")
PAPER = {"paper HP": (0.74, 0.69, 0.86, 0.92), "paper GP": (0.85, 4.38, 0.93, 1.00)}
NO_OPTIONS = {"weights": False, "header": False, "extra_columns": False}
GNNLOOM = (sys.executable, "-m", "gnnloom.workflows.cli.main")
#: Too little for Mt-KaHyPar on the pins of the large lattice, so that the method has to coarsen.
LITTLE_MEMORY = 448 << 20

SLASHDOT: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "small": [
        ("metis unit", {"method": "metis", "weights": "unit"}),
        ("metis nonzeros", {"method": "metis"}),
        ("kaminpar", {"method": "kaminpar"}),
    ],
    "full": [
        ("mtkahypar deterministic", {"method": "mtkahypar"}),
        ("mtkahypar large-k", {"preset": "large-k"}),
        ("mtkahypar default", {"preset": "default"}),
    ],
}
SLASHDOT["small"].append(("multilevel flat", {"method": "multilevel", "preset": "flat"}))
SLASHDOT["full"] += SLASHDOT["small"]

LATTICE: list[tuple[str, dict[str, Any]]] = [
    ("multilevel", {"method": "multilevel"}),
    ("mtkahypar large-k", {"preset": "large-k"}),
]
#: Vertices drawn for a batch, as a share of all.
RATES = dict.fromkeys(("vertex", "edge", "walk", "frontier"), 0.06)
#: Parts of every graph of ``quality``, and of single ones.
LEVEL_PARTS, MORE_LEVEL_PARTS = (16, 64), {"soc-Slashdot0902": (512,)}
#: Real graphs of ``quality``: name, file, and whether each edge counts in both directions.
REAL = (
    ("ca-AstroPh", "ca-AstroPh.txt.gz", True),
    ("soc-Epinions1", "soc-Epinions1.txt.gz", False),
    ("soc-Slashdot0902", "soc-Slashdot0902.txt.gz", False),
    ("cora", "cora/raw/edge.csv.gz", True),
)
#: Options of ``partitioners``, the quick ones first, with the most nonzeros of a graph that they are tried on. In
#: rounds, tasks visit the vertices, as they do out of core.
_COVER = "--exchange cover"
NAMED: tuple[tuple[str, float], ...] = (
    (f"--method metis {_COVER}", math.inf),
    (f"--method kaminpar {_COVER}", math.inf),
    ("--quality fast", math.inf),
    (f"--quality fast {_COVER}", 1e7),
    ("--quality balanced", math.inf),
    (f"--quality balanced {_COVER}", 1e7),
    (f"--method kaminpar --preset strong {_COVER}", math.inf),
    (f"--method multilevel --preset streaming {_COVER}", math.inf),
    (f"--method multilevel --preset streaming {_COVER} --cover-passes 16", 1e6),
    (f"--method multilevel --preset streaming {_COVER} in rounds", 2e6),
    (f"--method mtkahypar {_COVER}", 5e5),
)
#: The first of them, which are quick on any graph.
_QUICKEST = 4
PLANNED = {
    "small": [("metis", ""), ("multilevel", "flat"), ("random", "")],
    "full": [("mtkahypar", "large-k"), ("mtkahypar", "default"), ("mtkahypar", "deterministic")],
}
PLANNED["full"] += [("multilevel", "streaming"), ("kahypar", "recursive"), *PLANNED["small"]]


def main() -> None:
    options = _options()
    print(f"{'figure':58} {'value':>9}  unit")
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-partition-") as folder:
        for case in options.cases:
            for name, value, unit in CASES[case](Catalog(folder), options):
                rows.append((name.replace(" ", "_"), f"{value:.4g}", unit))
                print(f"{name:58} {value:9.4g}  {unit}", flush=True)
    for row in rows:
        print("RESULT", *row)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=("small", "full"), default=os.environ.get("SCALE", "full"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--graphs", type=lambda text: text.split(","), help="NAME or NAME:PARTS,... of case quality")
    parser.add_argument("--table", type=Path, help="file to which case quality appends its Markdown table")
    parser.add_argument("--seeds", type=int, default=3, help="number of random partitions that are averaged")
    return parser.parse_args()


def slashdot(catalog: Catalog, options: argparse.Namespace) -> Iterator[tuple[str, float, str]]:
    dataset = _read(catalog, options.data / "soc-Slashdot0902.txt.gz", undirected=False)
    if dataset is None:
        return
    parts = 64 if options.scale == "small" else 512
    random = _mean(dataset, [PartitionOptions(parts, "random", seed=seed) for seed in range(options.seeds)])
    for name, figures in PAPER.items():
        for figure, value in zip(FIGURES, figures, strict=True):
            yield f"slashdot {name} {figure}", value, "x"
    for name, chosen in SLASHDOT[options.scale]:
        quality, seconds = _partition(dataset, PartitionOptions(parts, imbalance=0.01, **chosen))
        for figure in FIGURES:
            yield f"slashdot {name} {figure}", quality[figure] / random[figure], "x"
        yield f"slashdot {name} imbalance", quality["imbalance"], "x"
        yield f"slashdot {name} imbalance bound", quality["imbalance_bound"], "x"
        yield f"slashdot {name} processor", seconds, "s"


def lattice(catalog: Catalog, options: argparse.Namespace) -> Iterator[tuple[str, float, str]]:
    small = options.scale == "small"
    dataset = _lattice(catalog, 200 if small else 1000)
    parts = 16 if small else 512
    random = _mean(dataset, [PartitionOptions(parts, "random", seed=seed) for seed in range(options.seeds)])
    for name, chosen in LATTICE:
        quality, seconds = _partition(dataset, PartitionOptions(parts, **chosen))
        for figure in FIGURES:
            yield f"lattice {name} {figure}", quality[figure] / random[figure], "x"
        yield f"lattice {name} imbalance", quality["imbalance"], "x"
        yield f"lattice {name} processor", seconds, "s"
    yield from _out_of_core("lattice", dataset, 16 if small else 64)


def epinions(catalog: Catalog, options: argparse.Namespace) -> Iterator[tuple[str, float, str]]:
    dataset = _read(catalog, options.data / "soc-Epinions1.txt.gz", undirected=False)
    if dataset is not None:
        yield from _out_of_core("epinions", dataset, 8 if options.scale == "small" else 64, "streaming")


def batches(catalog: Catalog, options: argparse.Namespace) -> Iterator[tuple[str, float, str]]:
    small = options.scale == "small"
    for name in ("ca-AstroPh",) if small else ("ca-AstroPh", "soc-Epinions1"):
        dataset = _read(catalog, options.data / f"{name}.txt.gz", undirected=True)
        if dataset is None:
            continue
        kinds = RATES if name == "ca-AstroPh" and not small else ("vertex",)
        for kind in kinds:
            preset = "large-k" if small or kind != "vertex" else ""
            chosen = PartitionOptions(27, model="stochastic", preset=preset, batches=kind, batch_rate=RATES[kind])
            quality, seconds = _partition(dataset, chosen)
            yield f"batches {name} {kind} full-batch", quality["batch_volume_full"], "rows"
            yield f"batches {name} {kind} volume", quality["batch_volume"] / quality["batch_volume_full"], "x"
            yield f"batches {name} {kind} processor", seconds, "s"
            if kind != "vertex":
                yield f"batches {name} {kind} merged", quality["batches_merged"], "batches"
                yield f"batches {name} {kind} covered", quality["batches_covered"], "x"


def plan(catalog: Catalog, options: argparse.Namespace) -> Iterator[tuple[str, float, str]]:
    """The projected memory and time over those measured in a separate process."""
    dataset = _read(catalog, options.data / "soc-Epinions1.txt.gz", undirected=True)
    if dataset is None:
        return
    parts = 8 if options.scale == "small" else 64
    projected = {(each.method, each.preset): each for each in project_methods(dataset.graph(), parts)}
    for method, preset in PLANNED[options.scale]:
        command = ["partition", dataset.name, "--parts", str(parts), "--method", method, "--workers", "0"]
        chosen = ["--preset", preset] if preset else []
        taken = watch([*GNNLOOM, "--catalog", str(catalog.root), *command, *chosen])
        name = f"plan {method} {preset}".rstrip()
        yield f"{name} memory", projected[method, preset].memory / taken.together, "x"
        yield f"{name} processor", projected[method, preset].cpu_seconds / taken.processor, "x"


def partitioners(catalog: Catalog, options: argparse.Namespace) -> Iterator[tuple[str, float, str]]:
    """Rows of each method, and the processor time and memory of its process, the measurement included."""
    small = options.scale == "small"
    graphs = [name for name, *_ in REAL] + list(kinds.generated(small=True)) + ["r16", "r18", "r20"]
    for wanted in options.graphs or (["cora:4"] if small else graphs):
        name, _, number = wanted.partition(":")
        dataset = _named(catalog, options.data, name)
        if dataset is None:
            continue
        transpose_graph(dataset, dataset.graph(), InProcessCluster())
        for parts in (int(number),) if number else (4, 16, 64):
            for named, most in NAMED[:_QUICKEST] if small else NAMED:
                if dataset.graph().nnz <= most:
                    yield from _measured(catalog, dataset.name, f"{name} {parts}", parts, named, options.table)


def _named(catalog: Catalog, data: Path, name: str) -> Dataset | None:
    """A real graph, a generated one, or R-MAT of a scale."""
    if name[1:].isdigit():
        edges = kinds.rmat(int(name[1:]), 16, np.random.default_rng(0))
        return _ingest(catalog, name, _saved(catalog, name, edges), undirected=True)
    if name in (made := kinds.generated()):
        return _ingest(catalog, name, _saved(catalog, name, made[name]), undirected=name != "web")
    path, undirected = next((path, undirected) for known, path, undirected in REAL if known == name)
    return _read(catalog, data / path, undirected=undirected)


def _measured(
    catalog: Catalog, name: str, where: str, parts: int, named: str, table: Path | None
) -> Iterator[tuple[str, float, str]]:
    if named.endswith("in rounds"):
        program = str(Path(__file__).with_name("partition_in_rounds.py"))
        command = [sys.executable, program, str(catalog.root), name, str(parts)]
    else:
        command = [*GNNLOOM, "--catalog", str(catalog.root), "partition", name, "--parts", str(parts), *named.split()]
        command += ["--workers", "0", "--threads", "1", "--json"]
    taken = watch(command)
    found = json.loads(taken.output)
    # Made anew by the next options, which may have the same key.
    catalog[name].remove_artifact("partition", found["key"])
    label = f"{where} {named.replace(' --', ' ').removeprefix('--').replace('exchange cover', 'cover')}"
    yield f"{label} rows", found["km1"], "rows"
    if (cover := found.get("volume_cover_total")) is not None:
        yield f"{label} cover", cover, "rows"
    yield f"{label} imbalance", found["imbalance"], "x"
    yield f"{label} processor", taken.processor, "s"
    yield f"{label} memory", taken.together / 1e9, "GB"
    if table is not None:
        cells = where, named, found["km1"], cover or "", f"{found['imbalance']:.4f}", f"{taken.processor:.1f}"
        with table.open("a", encoding="utf-8") as file:
            file.write(f"| {' | '.join(map(str, cells))} | {taken.together / 1e9:.2f} |\n")


def quality(catalog: Catalog, options: argparse.Namespace) -> Iterator[tuple[str, float, str]]:
    """Rows sent and processor time of every level and method; writes the table if asked to."""
    small = options.scale == "small"
    methods = levels.METHODS[:4] if small else levels.METHODS
    warm = _lattice(catalog, 20)
    # Loads the compiled kernels, which the first partition would otherwise be charged for.
    levels.compare("warm", warm, 2, methods)
    for name, dataset in _kinds(catalog, options.data, small, options.graphs):
        for parts in (16,) if small else (*LEVEL_PARTS, *MORE_LEVEL_PARTS.get(name, ())):
            if options.graphs and not {name, f"{name}:{parts}"} & set(options.graphs):
                continue
            transpose_graph(dataset, dataset.graph(), InProcessCluster())
            found = levels.compare(name, dataset, parts, methods)
            if options.table:
                levels.write_table(options.table, found)
            for made in [*found.levels, *found.methods]:
                yield f"{name} {parts} {made.name} rows", made.rows / found.winner.rows, "x"
                yield f"{name} {parts} {made.name} processor", made.seconds, "s"


def _kinds(catalog: Catalog, data: Path, small: bool, wanted: Sequence[str] | None) -> Iterator[tuple[str, Dataset]]:
    """Graphs of nine kinds: the real ones where their files exist, and generated ones; or the wanted ones of them."""
    names = None if wanted is None else {name.partition(":")[0] for name in wanted}
    for name, path, undirected in REAL:
        asked = not small or name == "cora" if names is None else name in names
        if asked and (dataset := _read(catalog, data / path, undirected=undirected)) is not None:
            yield name, dataset
    for name, edges in kinds.generated(small=small).items():
        if names is None or name in names:
            yield name, _ingest(catalog, name, _saved(catalog, name, edges), undirected=name != "web")


CASES = {
    "slashdot": slashdot,
    "lattice": lattice,
    "epinions": epinions,
    "batches": batches,
    "quality": quality,
    "partitioners": partitioners,
    "plan": plan,
}


def _out_of_core(name: str, dataset: Dataset, parts: int, preset: str = "") -> Iterator[tuple[str, float, str]]:
    """The out-of-core method in little memory, compared with Mt-KaHyPar on the whole graph."""
    whole, whole_seconds = _partition(dataset, PartitionOptions(parts, "mtkahypar"))
    found, seconds = _partition(dataset, PartitionOptions(parts, "multilevel", preset=preset), LITTLE_MEMORY)
    yield f"{name} mtkahypar km1", whole["km1"], "rows"
    yield f"{name} multilevel km1", found["km1"], "rows"
    yield f"{name} multilevel of mtkahypar", found["km1"] / whole["km1"], "x"
    yield f"{name} mtkahypar processor", whole_seconds, "s"
    yield f"{name} multilevel processor", seconds, "s"


def _partition(dataset: Dataset, options: PartitionOptions, memory: int = 1 << 30) -> tuple[Mapping[str, Any], float]:
    """The quality, and the processor seconds that this process and its children took."""
    before = levels.processor_seconds()
    partition = partition_graph(dataset, dataset.graph(), options, InProcessCluster(memory))
    return partition.quality, levels.processor_seconds() - before


def _mean(dataset: Dataset, choices: Sequence[PartitionOptions]) -> dict[str, float]:
    qualities = [_partition(dataset, options)[0] for options in choices]
    return {figure: float(np.mean([quality[figure] for quality in qualities])) for figure in FIGURES}


def _read(catalog: Catalog, path: Path, *, undirected: bool) -> Dataset | None:
    if not path.exists():
        print(f"{path}: not found, skipped")
        return None
    name = path.name.split(".")[0].lower() + ("-undirected" if undirected else "")
    return _ingest(catalog, name, path, undirected)


def _lattice(catalog: Catalog, side: int) -> Dataset:
    edges = kinds.lattice(side, np.random.default_rng(0))
    return _ingest(catalog, "lattice", _saved(catalog, "lattice", edges), undirected=True)


def _saved(catalog: Catalog, name: str, edges: NDArray[np.int64]) -> Path:
    path = catalog.root / f"{name}.npy"
    path.parent.mkdir(exist_ok=True)
    np.save(path, edges)
    return path


def _ingest(catalog: Catalog, name: str, path: Path, undirected: bool) -> Dataset:
    if name in catalog:
        return catalog[name]
    dataset = catalog.create(name)
    source = open_edges(None, (str(path),), NO_OPTIONS if path.suffix == ".gz" else {"weights": False})
    ingest_graph(dataset, source, IngestOptions(undirected=undirected), InProcessCluster())
    return dataset


if __name__ == "__main__":
    main()
