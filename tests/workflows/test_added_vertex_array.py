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
import pytest
import zarr

from gnnloom.storage import Catalog
from gnnloom.storage.shards.grid_shards import GridShards

N = 40
PROGRAM = Path(__file__).parent / "programs" / "added_arrays.py"
VALUES = {
    "weight": np.arange(N, dtype=np.float32) / 3,
    "timestamp": 2**40 + np.arange(N) ** 2,
    "coordinate": np.arange(3 * N).reshape(N, 3) / 7,
}
#: How vertex data are read, by dataset, which also is the ending of the files.
FORMATS = {"npy": "", "csv": "", "parquet": "", "ids": "--by-id"}
#: Why vertex data are refused.
REFUSED = {
    "--weight FOLDER/wrong.csv": "wrong.csv, line 2: expected a finite",
    "--weight FOLDER/coordinate.csv": "one weight per line",
    "--timestamp FOLDER/weight.npy": "weight.npy: expected integers of shape (n,)",
}
#: Finds damage, after all else.
VERIFY = "catalog verify web --json"


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files, and with the catalog of the commands."""
    folder = tmp_path_factory.mktemp("added")
    write_files(folder)
    (folder / "wrong.csv").write_text("1\ninf\n" + "1\n" * (N - 2))
    return folder


@pytest.fixture(scope="module")
def failed(folder: Path) -> dict[str, str]:
    """What the commands that failed said, without the folder; all run in one process, which takes seconds to start."""
    found = failures(
        Catalog(folder / "catalog"),
        *(f"ingest {kind} {folder}/edges.npy --undirected --workers 0" for kind in (*FORMATS, "memory")),
        f"in-memory memory weight {folder}/weight.npy",
        *(
            f"features {kind} {option} --workers 0 " + " ".join(f"--{name} {folder}/{name}.{kind}" for name in VALUES)
            for kind, option in FORMATS.items()
        ),
        "partition npy --parts 3 --method random --workers 0",
        "shard npy --parts 3 --workers 0",
        "shard npy --grid 2x2 --permutation double --workers 0",
        f"export npy weights --out {folder}/weights.npz",
        f"export npy labels --out {folder}/others.npz",
        *(f"catalog verify {kind}" for kind in FORMATS),
        f"ingest web {folder}/edges.npy --workers 0",
        *(f"features web {option} --workers 0".replace("FOLDER", str(folder)) for option in REFUSED),
        f"features web --timestamp {folder}/timestamp.npy --workers 0",
        "damage web timestamp -1",
        VERIFY,
    )
    return {command.replace(str(folder), "FOLDER"): said for command, said in found.items()}


@pytest.mark.long
def test_an_added_array_is_stored_sharded_exported_and_verified(folder: Path, failed: dict[str, str]) -> None:
    assert not [command for command in failed if " web " not in command], failed
    catalog = Catalog(folder / "catalog")
    # Zarr, because the registry of this process does not have the arrays.
    for kind in FORMATS:
        vertices = zarr.open_group(catalog[kind].artifacts("vertices")[0].path, mode="r")
        for name, values in VALUES.items():
            filled = {"weight": 1}.get(name, 0)
            wanted = np.concatenate([values[:-1], np.full_like(values[-1:], filled)]) if kind == "ids" else values
            np.testing.assert_array_equal(vertices[name], wanted, err_msg=f"{name} from {kind}")
    in_memory = zarr.open_group(catalog["memory"].artifacts("vertices")[0].path, mode="r")
    np.testing.assert_array_equal(in_memory["weight"], VALUES["weight"])
    rows, grid = (catalog["npy"].find("shards", layout=layout) for layout in ("row", "grid"))
    stored_rows, stored_grid = (zarr.open_group(shards.path, mode="r") for shards in (rows, grid))
    exported = {**np.load(folder / "weights.npz"), **np.load(folder / "others.npz")}
    for name, values in VALUES.items():
        for rank in range(3):
            ids = np.asarray(stored_rows[f"row/{rank:05d}/vertex"])
            np.testing.assert_array_equal(stored_rows[f"row/{rank:05d}/{name}"], values[ids])
        for order in ("rows", "columns"):
            placed = np.concatenate([stored_grid[f"order/{order}/{row:03d}/{name}"] for row in range(2)])
            np.testing.assert_array_equal(placed, values[GridShards(grid).vertex_ids(order, (0, N))])
        np.testing.assert_array_equal(exported[name], values)


@pytest.mark.slow
def test_values_of_an_added_array_are_checked(failed: dict[str, str]) -> None:
    refused = {f"features web {option} --workers 0": reason for option, reason in REFUSED.items()}
    refused[VERIFY] = f"timestamp: vertex {N - 1} has -1, expected 0.."
    assert list(failed) == list(refused)
    for command, reason in refused.items():
        assert reason in failed[command]
