"""How other tools make the same CSR arrays: read, symmetrize, add self loops, sort, merge, write.

Each tool runs in a process of its own:  python ingest_peers.py TOOL INPUT FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: Cores that this process may use.
CORES = len(os.sched_getaffinity(0))


def pandas_scipy(path: Path) -> tuple[Any, Any]:
    """Read with pandas; sort and merge with SciPy."""
    import scipy.sparse

    if path.suffix == ".npy":
        source, target = np.load(path)
    else:
        import pandas as pd

        frame = pd.read_csv(path, sep="\t", header=None, names=["u", "v"], dtype=np.int64, engine="c")
        source, target = frame["u"].to_numpy(), frame["v"].to_numpy()
        del frame
    n = int(max(source.max(), target.max())) + 1
    loop = np.arange(n)
    rows, columns = np.concatenate([target, source, loop]), np.concatenate([source, target, loop])
    del source, target
    matrix = scipy.sparse.coo_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(n, n)).tocsr()
    matrix.sort_indices()
    return matrix.indptr, matrix.indices


def polars(path: Path) -> tuple[Any, Any]:
    """Read, sort and merge with polars' lazy engine."""
    import polars as pl

    if path.suffix == ".npy":
        edges = np.load(path, mmap_mode="r")
        frame = pl.DataFrame({"u": edges[0], "v": edges[1]}).lazy()
    else:
        schema = {"u": pl.Int64, "v": pl.Int64}
        frame = pl.scan_csv(path, separator="\t", has_header=False, schema=schema)
    n = frame.select(pl.max_horizontal(pl.col("u").max(), pl.col("v").max())).collect().item() + 1
    loops = pl.LazyFrame({"row": np.arange(n), "col": np.arange(n)})
    forth = frame.select(pl.col("v").alias("row"), pl.col("u").alias("col"))
    back = frame.select(pl.col("u").alias("row"), pl.col("v").alias("col"))
    table = pl.concat([forth, back, loops]).unique().sort("row", "col").collect()
    return _pointers(table["row"].to_numpy(), n), table["col"].to_numpy().astype(np.int32)


def duckdb(path: Path) -> tuple[Any, Any]:
    """Read, sort and merge with SQL."""
    import duckdb as db

    connection: Any = db.connect(config={"threads": CORES})  # typed only where DuckDB is installed
    if path.suffix == ".npy":
        edges = np.load(path, mmap_mode="r")
        held = {"u": np.array(edges[0]), "v": np.array(edges[1])}
        connection.register("edges", held)
    else:
        connection.execute(
            f"CREATE VIEW edges AS FROM read_csv('{path}', delim='\t', header=false,"
            " columns={'u': 'BIGINT', 'v': 'BIGINT'})"
        )
    n = connection.execute("SELECT greatest(max(u), max(v)) + 1 FROM edges").fetchone()[0]
    table = connection.execute(
        "SELECT DISTINCT r, c FROM (SELECT v AS r, u AS c FROM edges UNION ALL SELECT u, v FROM edges"
        f" UNION ALL SELECT range, range FROM range({n})) ORDER BY r, c"
    ).fetchnumpy()
    return _pointers(table["r"], n), table["c"].astype(np.int32)


def _pointers(rows: Any, n: int) -> Any:
    """(n + 1,) row pointers of sorted rows."""
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])


#: The tools by name; each returns row pointers and columns.
TOOLS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "pandas+scipy": pandas_scipy,
    "polars": polars,
    "duckdb": duckdb,
}


def main() -> None:
    tool, path, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    indptr, indices = TOOLS[tool](path)
    np.save(folder / "indptr.npy", indptr)
    np.save(folder / "indices.npy", indices)
    print(json.dumps({"nnz": len(indices)}))


if __name__ == "__main__":
    main()
