"""Stages on graphs that are large for one machine: what the client, the workers and the largest process take.

    python tests/benchmarks/bench_scale.py [--cases npz,rows,multilevel] [--scale small|full] [--program FILE]

``npz``: ingest of an archive in the layout of ogbn-papers100M (4 GB at full scale: edges, and 128 features per vertex)
with two workers, members stored or deflated.  ``rows``: row shards of a directed R-MAT graph in random parts (2^22
vertices in 512 parts at full scale) with two workers.  ``multilevel``: partition of an undirected R-MAT graph (2^22
vertices into 64 parts at full scale) out of core, with one worker and with two.

The program is ``gnnloom`` of this environment, or of that of an earlier version.  "Busy" is the share of the time in
which all workers compute, wait for a core or wait for the disk, from when one of them first does to when one last does,
the start of their processes included.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from processes import Watched, watch

WORKERS = 2
#: Vertices and edges of the archive; the deflated one is an eighth of it, as deflating takes minutes.
NPZ = {"small": (100_000, 800_000), "full": (5_000_000, 90_000_000)}
DEFLATED_SHARE, WIDTH = 8, 128
#: Scale of the R-MAT graph, and parts.
ROWS = {"small": (14, 64), "full": (22, 512)}
MULTILEVEL = {"small": (10, 4), "full": (22, 64)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated  [default: %(default)s]")
    parser.add_argument("--scale", choices=NPZ, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--program", type=Path, help="gnnloom of another version  [default: of this environment]")
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    options = parser.parse_args()
    program = options.program or Path(sys.executable).with_name("gnnloom")
    for case in options.cases.split(","):
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-scale-") as folder:
            for name, seen in CASES[case](program, Path(folder), options.scale):
                _report(name, seen, 1 if name.endswith(".alone") else WORKERS)


def _npz(program: Path, folder: Path, scale: str) -> Iterator[tuple[str, Watched]]:
    """Ingest archives; the vertex data of the archive is stored with its edges."""
    num_vertices, num_edges = NPZ[scale]
    for kind, share in (("stored", 1), ("deflated", DEFLATED_SHARE)):
        source = folder / kind
        _write_archive(source, num_vertices // share, num_edges // share, is_deflated=kind == "deflated")
        yield f"npz.{kind}", _gnnloom(program, folder, "ingest", kind, str(source), "--format", "ogb-binary")
        for path in (source / "raw").iterdir():
            path.unlink()


def _rows(program: Path, folder: Path, scale: str) -> Iterator[tuple[str, Watched]]:
    rmat, parts = ROWS[scale]
    _gnnloom(program, folder, "generate", "g", "rmat", "--scale", str(rmat), "--edge-factor", "16", "--directed")
    _gnnloom(program, folder, "features", "g", "random", "--dim", "16", "--classes", "8")
    _gnnloom(program, folder, "partition", "g", "--parts", str(parts), "--method", "random")
    yield "rows", _gnnloom(program, folder, "shard", "g", "--parts", str(parts))


def _multilevel(program: Path, folder: Path, scale: str) -> Iterator[tuple[str, Watched]]:
    rmat, parts = MULTILEVEL[scale]
    for name, workers in (("alone", 1), ("together", WORKERS)):
        # Another dataset, as a partition is made once.
        _gnnloom(program, folder, "generate", name, "rmat", "--scale", str(rmat), "--edge-factor", "16")
        arguments = ("--parts", str(parts), "--method", "multilevel")
        found = _gnnloom(program, folder, "partition", name, *arguments, workers=workers)
        result = json.loads(found.output)
        print(f"RESULT multilevel.{name}.rows_sent {result['km1']} rows")
        print(f"RESULT multilevel.{name}.imbalance {result['imbalance']:.4g} share")
        yield f"multilevel.{name}", found


CASES: dict[str, Callable[[Path, Path, str], Iterator[tuple[str, Watched]]]] = {
    "npz": _npz,
    "rows": _rows,
    "multilevel": _multilevel,
}


def _gnnloom(program: Path, folder: Path, command: str, *arguments: str, workers: int = WORKERS) -> Watched:
    print(f"{command} {arguments[0]}", file=sys.stderr)
    common = ("--workers", str(workers), "--memory", "1G")
    return watch([str(program), "--catalog", str(folder / "catalog"), command, *arguments, *common, "--json"])


def _write_archive(folder: Path, num_vertices: int, num_edges: int, *, is_deflated: bool) -> None:
    """Write random edges and features, without holding them in memory when they are stored."""
    (folder / "raw").mkdir(parents=True)
    rng = np.random.default_rng(1)
    edges = rng.integers(0, num_vertices, (2, num_edges))
    # Features repeat after some thousand rows, which costs less time to draw and nothing to read.
    feature = np.resize(rng.random((8192, WIDTH), dtype=np.float32), (num_vertices, WIDTH))
    save = np.savez_compressed if is_deflated else np.savez
    save(
        folder / "raw" / "data.npz",
        edge_index=edges,
        node_feat=feature,
        num_nodes_list=np.array([num_vertices]),
        num_edges_list=np.array([num_edges]),
    )
    np.savez(folder / "raw" / "node-label.npz", node_label=rng.integers(0, 8, (num_vertices, 1)).astype(np.float32))


def _report(name: str, seen: Watched, workers: int) -> None:
    figures = {
        "wall": (seen.wall, "s"),
        "processor": (seen.processor, "s"),
        "client.processor": (seen.client.processor, "s"),
        "client.private": (seen.client.private, "B"),
        "largest.private": (max(process.private for process in (seen.client, *seen.others)), "B"),
        "largest.resident": (max(process.resident for process in (seen.client, *seen.others)), "B"),
        "busy": (seen.busy(workers), "share"),
    }
    for worker, process in enumerate(seen.others[:workers]):
        figures[f"worker{worker}.processor"] = (process.processor, "s")
    for figure, (value, unit) in figures.items():
        print(f"RESULT {name}.{figure} {value:.6g} {unit}", flush=True)


if __name__ == "__main__":
    main()
