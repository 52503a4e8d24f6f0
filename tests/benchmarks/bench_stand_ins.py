"""What partitions send relative to random parts, on stand-ins for public graphs that are not at hand.

Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), Table 2, state rows and messages of hypergraph partitions into 512
parts, relative to random parts. A stand-in has the average degree and the kind of a public graph; its vertices and its
parts are fewer by the same factor, so that a part has as many vertices as one of 512 of the whole graph. Prints a table
in Markdown, then lines ``RESULT name value unit``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import kinds
import numpy as np

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset

FIGURES = ("volume_avg", "volume_max", "messages_avg", "messages_max")
PARTS = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shrink", type=int, default=32, help="factor by which vertices and parts are fewer")
    parser.add_argument("--method", default="multilevel")
    parser.add_argument("--preset", default="")
    parser.add_argument("--graphs", type=lambda text: text.split(","), help="names; all by default")
    given = parser.parse_args()
    parts = max(2, PARTS // given.shrink)
    figures = " | ".join(figure.replace("_", " ") for figure in FIGURES)
    print(f"| stands for | kind | vertices | nonzeros | parts | {figures} |")
    print("| --- " * (5 + len(FIGURES)) + "|")
    rows = []
    for stand_in in kinds.STAND_INS:
        if given.graphs is not None and stand_in.name not in given.graphs:
            continue
        with tempfile.TemporaryDirectory(prefix="bench-stand-ins-") as folder:
            dataset = _stored(Path(folder), stand_in, given.shrink)
            graph, found = dataset.graph(), {}
            for method, preset in (("random", ""), (given.method, given.preset)):
                options = PartitionOptions(parts, method, preset=preset)
                found[method] = partition_graph(dataset, graph, options, InProcessCluster()).quality
            ratios = [found[given.method][figure] / found["random"][figure] for figure in FIGURES]
        shown = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        sizes = f"{graph.num_vertices:,} | {graph.nnz:,} | {parts}"
        print(f"| {stand_in.name} | {stand_in.kind} | {sizes} | {shown} |", flush=True)
        rows += [(f"{stand_in.name}_{figure}", ratio) for figure, ratio in zip(FIGURES, ratios, strict=True)]
    for name, ratio in rows:
        print(f"RESULT {name} {ratio:.3f} x")


def _stored(folder: Path, stand_in: kinds.StandIn, shrink: int) -> Dataset:
    """A stand-in in a catalog of its own, in both directions."""
    np.save(folder / "edges.npy", stand_in.generate(shrink))
    dataset = Catalog(folder / "catalog").create(stand_in.name.lower())
    source = open_edges(None, (str(folder / "edges.npy"),), {"weights": False})
    ingest_graph(dataset, source, IngestOptions(undirected=True), InProcessCluster())
    return dataset


if __name__ == "__main__":
    main()
