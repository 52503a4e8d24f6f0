"""Ingest compared with pandas + SciPy, polars and DuckDB: the same edges, as binary and as text, to CSR arrays on disk.

    python tests/benchmarks/bench_ingest.py [--scale small|full] [--edges 20000000,...] [--peers polars,...]

Every tool makes R-MAT edges (Graph500's parameters, 16 per vertex) undirected, adds self loops, and sorts and merges
them. Each tool runs in processes of its own, one tool after another. Prints a table, then lines
``RESULT name value unit``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gnnloom.pipeline.sources.generators.rmat import RmatEdges
from gnnloom.pipeline.sources.source import SourceRange

sys.path.insert(0, str(Path(__file__).parent))
from ingest_peers import TOOLS
from processes import Watched, watch

#: Numbers of edges by scale.
EDGES = {"small": (2_000_000,), "full": (20_000_000, 100_000_000)}
#: Name of this project in the table.
OURS = "gnnloom"


def main() -> None:
    options = _options()
    counts = options.edges or EDGES[options.scale]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-ingest-") as folder:
        for count in counts:
            for kind in options.kinds:
                path = _write_edges(Path(folder), count, kind)
                _compare(path, count, kind, options.peers, Path(folder))
                path.unlink()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=EDGES, default=os.environ.get("SCALE", "full"), help="Numbers of edges")
    parser.add_argument(
        "--edges",
        type=lambda text: [int(float(item)) for item in text.split(",")],
        help="Override the numbers of edges",
    )
    parser.add_argument(
        "--kinds", type=lambda text: text.split(","), default=["binary", "text"], help="Kinds of input files"
    )
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(TOOLS), help="Tools to compare with")
    parser.add_argument("--folder", type=Path, help="Folder for temporary files [default: the system's]")
    return parser.parse_args()


def _write_edges(folder: Path, count: int, kind: str) -> Path:
    scale = max(10, round(np.log2(count / 16)))
    source = RmatEdges(scale, -(-count >> scale))
    path = folder / ("edges.npy" if kind == "binary" else "edges.txt")
    chunks = source.read(SourceRange(0, 0, count))
    if kind == "binary":
        edges = np.lib.format.open_memmap(path, "w+", np.int64, (2, count))
        start = 0
        for chunk in chunks:
            edges[:, start : start + len(chunk.source)] = chunk.source, chunk.target
            start += len(chunk.source)
        edges.flush()
        return path
    import polars as pl

    with path.open("wb") as file:
        for chunk in chunks:
            pl.DataFrame([chunk.source, chunk.target]).write_csv(file, include_header=False, separator="\t")
    return path


def _compare(path: Path, count: int, kind: str, peers: Sequence[str], folder: Path) -> None:
    found: dict[str, Watched] = {}
    for tool in [OURS, *peers]:
        out = folder / "out"
        out.mkdir()
        # Nothing that an earlier tool wrote may go to the disk while this one is measured.
        os.sync()
        found[tool] = watch(_command(tool, path, out), {"OMP_NUM_THREADS": "1"})
        shutil.rmtree(out)
    sizes = {json.loads(measured.output.splitlines()[-1])["nnz"] for measured in found.values()}
    if len(sizes) != 1:
        raise RuntimeError(f"{path}: the tools disagree on the number of nonzeros: {sorted(sizes)}")
    _report(f"{kind}_{count // 1_000_000}M", count, found)


def _command(tool: str, path: Path, out: Path) -> list[str]:
    if tool == OURS:
        arguments = ("--catalog", str(out), "ingest", "g", str(path), "--undirected", "--json")
        return [sys.executable, "-m", "gnnloom.workflows.cli.main", *arguments]
    return [sys.executable, str(Path(__file__).with_name("ingest_peers.py")), tool, str(path), str(out)]


def _report(name: str, count: int, found: dict[str, Watched]) -> None:
    _print_table(name, count, found)
    for key, (value, unit) in _results(count, found).items():
        print(f"RESULT ingest_{name}_{key} {value:.4g} {unit}")
    sys.stdout.flush()


def _print_table(name: str, count: int, found: dict[str, Watched]) -> None:
    ours = found[OURS]
    print(f"\n{name}: {count:,} edges")
    heads = ("wall s", "cpu s", "M edges/s", "largest MB", "all MB", "wall x", "memory x")
    print(f"{'':14}" + "".join(f"{head:>11}" for head in heads))
    for tool, one in found.items():
        numbers = (
            one.wall,
            one.processor,
            count / one.wall / 1e6,
            one.largest / 1e6,
            one.together / 1e6,
            one.wall / ours.wall,
            one.together / ours.together,
        )
        print(f"{tool:14}" + "".join(f"{number:11.2f}" for number in numbers))


def _results(count: int, found: dict[str, Watched]) -> dict[str, tuple[float, str]]:
    """Value and unit of every figure, by name."""
    ours = found[OURS]
    inside = json.loads(ours.output.splitlines()[-1])["seconds"]
    results = {
        "wall": (ours.wall, "s"),
        "processor": (ours.processor, "s"),
        "rate": (count / ours.wall / 1e6, "Medges/s"),
        "rate_without_start": (count / inside / 1e6, "Medges/s"),
        "peak_process": (ours.largest / 1e6, "MB"),
        "peak_all_processes": (ours.together / 1e6, "MB"),
    }
    for tool, one in found.items():
        if tool != OURS:
            results[f"wall_{tool}_over_gnnloom"] = (one.wall / ours.wall, "x")
            results[f"processor_{tool}_over_gnnloom"] = (one.processor / ours.processor, "x")
            results[f"memory_{tool}_over_gnnloom"] = (one.together / ours.together, "x")
            results[f"memory_{tool}_over_gnnloom_process"] = (one.largest / ours.largest, "x")
    return results


if __name__ == "__main__":
    main()
