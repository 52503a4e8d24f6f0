"""An array per vertex is one entry of the registry: its values reach everything that holds or shows vertex data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.grid_shards import GridShards

N = 40
PROGRAM = Path(__file__).parent / "programs" / "added_arrays.py"
VALUES = {
    "weight": np.arange(N, dtype=np.float32) / 3,
    "timestamp": 2**40 + np.arange(N) ** 2,
    "coordinate": np.arange(3 * N).reshape(N, 3) / 7,
}


def failures(catalog: Catalog, *commands: str) -> dict[str, str]:
    """Run commands in a process whose registry has more arrays; returns what those that failed said."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    program = [sys.executable, str(PROGRAM), str(catalog.root), *commands]
    done = subprocess.run(program, env=environment, check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def write_files(folder: Path) -> None:
    """A ring, and each array in each format; a table with ids is in reverse, and the last vertex has no row."""
    np.save(folder / "edges.npy", np.stack([np.arange(N), np.roll(np.arange(N), 1)]))
    for name, values in VALUES.items():
        columns = values.reshape(N, -1)
        np.save(folder / f"{name}.npy", values)
        np.savetxt(folder / f"{name}.csv", columns, "%.17g", delimiter=",")
        np.savetxt(folder / f"{name}.ids", np.c_[np.arange(N), columns][-2::-1], "%.17g", delimiter=",")
        table = pa.table({f"{name}{number}": column for number, column in enumerate(columns.T)})
        pq.write_table(table, folder / f"{name}.parquet")


def test_an_added_array_is_stored_sharded_exported_and_verified(catalog: Catalog, tmp_path: Path) -> None:
    write_files(tmp_path)
    formats = {"npy": "", "csv": "", "parquet": "", "ids": "--by-id"}
    failed = failures(
        catalog,
        *(f"ingest {kind} {tmp_path}/edges.npy --undirected --workers 0" for kind in (*formats, "memory")),
        f"in-memory memory weight {tmp_path}/weight.npy",
        *(
            f"features {kind} {option} --workers 0 " + " ".join(f"--{name} {tmp_path}/{name}.{kind}" for name in VALUES)
            for kind, option in formats.items()
        ),
        "partition npy --parts 3 --method random --workers 0",
        "shard npy --parts 3 --workers 0",
        "shard npy --grid 2x2 --permutation double --workers 0",
        f"export npy weights --out {tmp_path}/weights.npz",
        f"export npy labels --out {tmp_path}/others.npz",
        *(f"catalog verify {kind}" for kind in formats),
    )
    assert not failed
    # Zarr, because the registry of this process does not have the arrays.
    for kind in formats:
        vertices = zarr.open_group(catalog[kind].artifacts("vertices")[0].path, mode="r")
        for name, values in VALUES.items():
            filled = {"weight": 1}.get(name, 0)
            wanted = np.concatenate([values[:-1], np.full_like(values[-1:], filled)]) if kind == "ids" else values
            np.testing.assert_array_equal(vertices[name], wanted, err_msg=f"{name} from {kind}")
    in_memory = zarr.open_group(catalog["memory"].artifacts("vertices")[0].path, mode="r")
    np.testing.assert_array_equal(in_memory["weight"], VALUES["weight"])
    rows, grid = (catalog["npy"].find("shards", layout=layout) for layout in ("row", "grid"))
    stored_rows, stored_grid = (zarr.open_group(shards.path, mode="r") for shards in (rows, grid))
    exported = {**np.load(tmp_path / "weights.npz"), **np.load(tmp_path / "others.npz")}
    for name, values in VALUES.items():
        for rank in range(3):
            ids = np.asarray(stored_rows[f"row/{rank:05d}/vertex"])
            np.testing.assert_array_equal(stored_rows[f"row/{rank:05d}/{name}"], values[ids])
        for order in ("rows", "columns"):
            placed = np.concatenate([stored_grid[f"order/{order}/{row:03d}/{name}"] for row in range(2)])
            np.testing.assert_array_equal(placed, values[GridShards(grid).vertex_ids(order, (0, N))])
        np.testing.assert_array_equal(exported[name], values)


def test_values_of_an_added_array_are_checked(catalog: Catalog, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "wrong.csv").write_text("1\ninf\n" + "1\n" * (N - 2))
    refused = {
        f"features web --weight {tmp_path}/wrong.csv --workers 0": "wrong.csv, line 2: expected a finite",
        f"features web --weight {tmp_path}/coordinate.csv --workers 0": "one weight per line",
        f"features web --timestamp {tmp_path}/weight.npy --workers 0": "weight.npy: expected integers of shape (n,)",
        "catalog verify web --json": f"timestamp: vertex {N - 1} has -1, expected 0..",
    }
    *wrong_files, verify = refused
    failed = failures(
        catalog,
        f"ingest web {tmp_path}/edges.npy --workers 0",
        *wrong_files,
        f"features web --timestamp {tmp_path}/timestamp.npy --workers 0",
        "damage web timestamp -1",
        verify,
    )
    assert list(failed) == list(refused)
    for command, reason in refused.items():
        assert reason in failed[command]
