"""Writers of the formats that ingest reads, with other libraries or written by hand."""

from __future__ import annotations

import pickle  # noqa: TID251 - the format consists of pickles
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse
import torch

Ids = np.ndarray


def write_text_zst(folder: Path, u: Ids, v: Ids, w: Ids | None, n: int) -> str:
    weights = [""] * len(u) if w is None else [f",{weight!r}" for weight in w.tolist()]
    lines = "".join(f"{a},{b}{c}\n" for a, b, c in zip(u, v, weights, strict=True))
    (folder / "edges.csv.zst").write_bytes(pa.compress(lines.encode(), codec="zstd", asbytes=True))
    return str(folder / "edges.csv.zst")


def write_parquet(folder: Path, u: Ids, v: Ids, w: Ids | None, n: int) -> str:
    columns = {"src": u.astype(np.uint32), "dst": v, **({} if w is None else {"weight": w.astype(np.float64)})}
    half = len(u) // 2
    pq.write_table(pa.table({name: part[:half] for name, part in columns.items()}), folder / "a.parquet")
    pq.write_table(
        pa.table({name: part[half:] for name, part in columns.items()}), folder / "b.parquet", row_group_size=3
    )
    if not half:
        (folder / "a.parquet").unlink()
    return str(folder / "*.parquet")


def write_mtx(folder: Path, u: Ids, v: Ids, w: Ids | None, n: int) -> str:
    """Write entry A[v, u], row v and column u, for the edge u -> v."""
    values = np.ones(len(u)) if w is None else w.astype(np.float64)
    matrix = scipy.sparse.coo_array((values, (v, u)), shape=(n, n))
    field: Any = "pattern" if w is None else "real"
    scipy.io.mmwrite(folder / "edges.mtx", matrix, field=field, precision=9, symmetry="general")
    return str(folder / "edges.mtx")


def write_dimacs(folder: Path, u: Ids, v: Ids, w: Ids | None, n: int) -> str:
    weights = np.ones(len(u)) if w is None else w
    lines = [f"a {a + 1} {b + 1} {c}\n" for a, b, c in zip(u.tolist(), v.tolist(), weights.tolist(), strict=True)]
    (folder / "edges.gr").write_text(f"c by hand\np sp {n} {len(u)}\n{''.join(lines)}")
    return str(folder / "edges.gr")


def write_graph500(folder: Path, u: Ids, v: Ids, w: Ids | None, n: int) -> str:
    np.stack([u, v], axis=1).astype("<i8").tofile(folder / "edges.bin")
    return str(folder / "edges.bin")


def write_graph500_packed(folder: Path, u: Ids, v: Ids, w: Ids | None, n: int) -> str:
    with (folder / "edges.bin").open("wb") as file:
        for a, b in zip(u.tolist(), v.tolist(), strict=True):
            for word in (a & 0xFFFFFFFF, b & 0xFFFFFFFF, (a >> 32) | (b >> 32) << 16):
                file.write(word.to_bytes(4, "little"))
    return str(folder / "edges.bin")


def write_ogb_binary(folder: Path, u: Ids, v: Ids, w: Ids | None, n: int) -> str:
    (folder / "raw").mkdir(exist_ok=True)
    save = np.savez_compressed if len(u) % 2 else np.savez
    save(
        folder / "raw" / "data.npz",
        edge_index=np.stack([u, v]),
        num_nodes_list=np.array([n]),
        num_edges_list=np.array([len(u)]),
    )
    return str(folder)


def write_pyg(folder: Path, u: Ids, v: Ids, w: Ids | None, n: int) -> str:
    data = {"edge_index": torch.from_numpy(np.stack([u, v])), "num_nodes": n}
    if w is not None:
        data["edge_attr"] = torch.from_numpy(w)[:, None]
    torch.save(data, folder / "data.pt")
    return str(folder / "data.pt")


def write_pyg_deflated(folder: Path, u: Ids, v: Ids, w: Ids | None, n: int) -> str:
    """The same with compressed members, as torch never writes them."""
    plain = write_pyg(folder, u, v, w, n)
    with zipfile.ZipFile(plain) as read, zipfile.ZipFile(folder / "packed.pt", "w", zipfile.ZIP_DEFLATED) as written:
        for name in read.namelist():
            written.writestr(name, read.read(name))
    Path(plain).unlink()
    return str(folder / "packed.pt")


def write_planetoid(folder: Path, u: Ids, v: Ids, w: Ids | None, n: int) -> str:
    """Put all vertices except the last two into ``allx``, and only the last into ``tx``."""
    rng = np.random.default_rng(n)
    feature = scipy.sparse.csr_matrix((rng.random((n, 3)) < 0.5).astype(np.float32))
    label = np.eye(4, dtype=np.int32)[rng.integers(0, 4, n)]
    graph = defaultdict(list)
    for a, b in zip(u.tolist(), v.tolist(), strict=True):
        graph[a].append(b)
    known = n - 2
    parts = {"x": feature[:1], "y": label[:1], "allx": feature[:known], "ally": label[:known]}
    parts |= {"tx": feature[n - 1 :], "ty": label[n - 1 :], "graph": graph}
    for name, part in parts.items():
        with (folder / f"ind.tiny.{name}").open("wb") as file:
            pickle.dump(part, file, protocol=2)
    (folder / "ind.tiny.test.index").write_text(f"{n - 1}\n")
    return str(folder)


Writer = Callable[[Path, Ids, Ids, Any, int], str]

#: Format, options, whether it can store weights, the highest id to try, and the writer.
FORMATS: dict[str, tuple[str, dict[str, Any], bool, int, Writer]] = {
    "zst": ("snap", {}, True, 40_000, write_text_zst),
    "parquet": ("parquet", {}, True, 40_000, write_parquet),
    "mtx": ("mtx", {}, True, 40_000, write_mtx),
    "dimacs": ("dimacs", {}, True, 40_000, write_dimacs),
    "graph500": ("graph500", {}, False, 40_000, write_graph500),
    "graph500-packed": ("graph500", {"packed": True}, False, 40_000, write_graph500_packed),
    "ogb-binary": ("ogb-binary", {}, False, 40_000, write_ogb_binary),
    "pyg": ("pyg", {}, True, 40_000, write_pyg),
    "planetoid": ("planetoid", {}, False, 60, write_planetoid),
}
