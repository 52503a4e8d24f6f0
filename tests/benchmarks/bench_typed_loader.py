"""gnnloom.loader against PyG's NeighborLoader on the same HeteroData, on Debian's packages and on a graph like MAG240M.

    python tests/benchmarks/bench_typed_loader.py [--scale small|full] [--folder FOLDER] [--sampler FILE]

Batches of 1024 vertices with fan-outs 10, 10 of every relation, features included: PyG has all data in memory, gnnloom
reads from disk. Each side is a process of its own, and the sides take turns. Packages have the seven relations that
`apt-cache dumpavail` lists; papers, authors and institutions have the proportions of MAG240M (Hu et al., "OGB-LSC",
NeurIPS 2021) and 768 float16 features of every paper. PyG's sampler is that of torch-sparse: installed, or as a library
that has its operator, with ``--sampler``. Prints tables, then lines ``RESULT name value unit``.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from allocator import KEPT
from commands import gnnloom
from epoch_figures import Clock, report
from launching import last_line
from processes import watch
from sampling_peers import why_no_pyg

from gnnloom.storage import Catalog

FANOUTS, BATCH, FEATURES = (10, 10), 1024, 128
#: Share of MAG240M's vertices and edges, batches of an epoch, epochs, and turns of each side.
SCALES = {"small": (1 / 10_000, 5, 3, 1), "middle": (1 / 1_000, 20, 3, 1), "full": (1 / 200, 40, 4, 3)}
#: Vertices and edges of MAG240M.
TYPES = {"paper": 121_751_666, "author": 122_383_112, "institution": 25_721}
RELATIONS = {
    ("paper", "cites", "paper"): 1_297_748_926,
    ("author", "writes", "paper"): 386_022_720,
    ("institution", "employs", "author"): 44_592_586,
}
#: Fields of Debian's packages that name others.
FIELDS = ("Depends", "Pre-Depends", "Recommends", "Suggests", "Breaks", "Replaces", "Conflicts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    parser.add_argument("--sampler", default="", help="library with the operators of torch-sparse")
    parser.add_argument("--side", help="what a process of the benchmark does, as JSON")
    options = parser.parse_args()
    if options.side:
        _run_side(json.loads(options.side))
        return
    share, steps, epochs, turns = SCALES[options.scale]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-typed-loader-") as folder:
        graphs = {"papers": ("paper", _store_papers(Path(folder), share))}
        if shutil.which("apt-cache"):
            graphs["packages"] = ("package", _store_packages(Path(folder)))
        for name, (of_type, count) in graphs.items():
            _save_hetero_data(folder, name)
            seeds = min(count, steps * BATCH)
            _compare(
                name,
                {"folder": folder, "dataset": name, "of_type": of_type, "count": count, "steps": -(-seeds // BATCH)}
                | {"epochs": epochs, "sampler": options.sampler},
                turns,
            )


def _store_papers(folder: Path, share: float) -> int:
    """A graph with the proportions of MAG240M, in its layout; vertices are the more often ends the lower their ids."""
    rng, sizes = np.random.default_rng(0), {name: max(2, round(count * share)) for name, count in TYPES.items()}
    processed = folder / "mag" / "processed"
    for (source, name, target), count in RELATIONS.items():
        path = processed / f"{source}___{name}___{target}" / "edge_index.npy"
        path.parent.mkdir(parents=True)
        ends = [(sizes[end] * rng.random(round(count * share)) ** 2).astype(np.int64) for end in (source, target)]
        np.save(path, np.stack(ends))
    for name, size in sizes.items():
        width = 768 if name == "paper" else 1
        (processed / name).mkdir(parents=True)
        features = np.lib.format.open_memmap(str(processed / name / "node_feat.npy"), "w+", np.float16, (size, width))
        for start in range(0, size, 1 << 15):
            stop = min(start + (1 << 15), size)
            features[start:stop] = rng.standard_normal((stop - start, width), np.float32)
        del features
    gnnloom(str(folder), "ingest", "papers", str(folder / "mag"), "--store", "float16", "--merge", "keep")
    return sizes["paper"]


def _store_packages(folder: Path) -> int:
    """The packages that the package manager of this machine knows, and the packages that each names."""
    text = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    names = set()
    for paragraph in text.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*(?:\n .*)*)", paragraph, re.MULTILINE))
        if "Package" not in fields:
            continue
        names.add(fields["Package"])
        for field in FIELDS:
            others = re.split(r"[,|]", fields.get(field, ""))
            found[field].update(
                (other.split("(")[0].split(":")[0].strip(), fields["Package"]) for other in others if other.strip()
            )
    rng, words = np.random.default_rng(0), []
    with (folder / "packages.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *(f"x{number}" for number in range(FEATURES))])
        for name in sorted(names):
            writer.writerow([name, *rng.standard_normal(FEATURES, np.float32).round(4)])
    features = [f"x{number} as feature" for number in range(FEATURES)]
    words += ["--vertices", f"package={folder}/packages.csv:{','.join(['name', *features])}"]
    for field in FIELDS:
        path = folder / f"{field}.tsv"
        path.write_text("from\tto\n" + "".join(f"{one}\t{other}\n" for one, other in sorted(found[field])))
        words += ["--relation", f"package,{field.lower().replace('-', '_')},package={path}:from,to"]
    gnnloom(str(folder), "ingest", "packages", *words, "--unknown", "drop", "--ids", "names")
    return len(names)


def _save_hetero_data(folder: str, name: str) -> None:
    """Save what PyG gets; in a process of its own, whose memory does not count."""
    program = (
        "import sys, torch, gnnloom; d = gnnloom.Catalog(sys.argv[1])[sys.argv[2]];"
        " torch.save(d.to_pyg(max_nnz=1 << 40), f'{sys.argv[1]}/{sys.argv[2]}.pt')"
    )
    subprocess.run([sys.executable, "-c", program, folder, name], check=True)
    graph = Catalog(Path(folder))[name].typed_graph()
    types = ", ".join(f"{each.count:,} of {each.name}" for each in graph.types)
    print(f"\n{name}: {types}; {graph.nnz:,} edges in {len(graph.relations)} relations")
    sys.stdout.flush()


def _compare(name: str, side: dict[str, Any], turns: int) -> None:
    """Run both sides in turns."""
    rates: dict[str, list[float]] = defaultdict(list)
    peaks: dict[str, float] = {}
    sides = ["gnnloom", *([] if why_no_pyg() and not side["sampler"] else ["pyg"])]
    environment = {**os.environ, "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))} | KEPT
    for _ in range(turns):
        for who in sides:
            found = last_line(_command(side | {"who": who}), environment)
            rates[who].append(side["steps"] / found["processor"])
            print(f"{who:10}{rates[who][-1]:10.2f} batches per processor second; {found['size']}")
    for who, found_rates in rates.items():
        peaks[who] = watch(_command(side | {"who": who}), environment).client.resident
        print(f"RESULT typed_loader_{name}_{who} {median(found_rates):.4g} batches/s")
        print(f"RESULT typed_loader_{name}_{who}_peak {peaks[who] / 1e6:.4g} MB")
    if "pyg" not in rates:
        print(f"PyG's loader is left out: {why_no_pyg()}")
        return
    print(f"RESULT typed_loader_{name}_over_pyg {median(rates['gnnloom']) / median(rates['pyg']):.3g} x")
    print(f"RESULT typed_loader_{name}_peak_over_pyg {peaks['gnnloom'] / peaks['pyg']:.3g} x")
    sys.stdout.flush()


def _command(side: dict[str, Any]) -> list[str]:
    return [sys.executable, __file__, "--side", json.dumps(side)]


def _run_side(side: dict[str, Any]) -> None:
    """Draw the batches of some epochs, and report the processor time of each, batches and peak memory."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    seeds = torch.randperm(side["count"])[: side["steps"] * BATCH]
    batches = _gnnloom(side, seeds) if side["who"] == "gnnloom" else _pyg(side, seeds)
    clock, vertices, edges, count = Clock(), 0, 0, 0
    clock.mark()
    for _ in range(side["epochs"]):
        for batch in islice(batches, side["steps"]):
            count += 1
            vertices += batch.num_nodes
            edges += sum(batch[each].edge_index.shape[1] for each in batch.edge_types)
        clock.mark()
    size = f"{vertices // count:,} vertices and {edges // count:,} edges in a batch"
    report({**clock.figures(), "size": size})


def _gnnloom(side: dict[str, Any], seeds: Any) -> Any:
    import gnnloom as api

    drawn = {"of_type": side["of_type"], "fanout": FANOUTS, "batch_size": BATCH, "labels": False}
    return api.loader(side["dataset"], vertices=seeds.numpy(), catalog=side["folder"], **drawn)


def _pyg(side: dict[str, Any], seeds: Any) -> Any:
    import torch
    import torch_geometric.typing
    from torch_geometric.loader.neighbor_loader import NeighborLoader

    if side["sampler"]:
        torch.ops.load_library(side["sampler"])  # type: ignore[no-untyped-call]
        torch_geometric.typing.WITH_TORCH_SPARSE = True
    data = torch.load(f"{side['folder']}/{side['dataset']}.pt", weights_only=False)
    how: dict[str, Any] = {"num_neighbors": list(FANOUTS), "batch_size": BATCH, "shuffle": True, "is_sorted": True}
    return NeighborLoader(data, input_nodes=(side["of_type"], seeds), **how)


if __name__ == "__main__":
    main()
