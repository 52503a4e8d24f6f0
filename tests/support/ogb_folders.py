"""Small graphs in the folder layouts of OGB."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

_VERTICES = 30
_SPLITS = ("train", "valid", "test")


def write_ogb_folder(folder: Path) -> Path:
    """Write thirty vertices as text, in the layout of ogbn-products and others."""
    random = np.random.default_rng(2)
    edges = np.stack([np.arange(_VERTICES), (np.arange(_VERTICES) + 7) % _VERTICES], 1)
    for name, rows in (
        ("num-node-list", [[_VERTICES]]),
        ("num-edge-list", [[len(edges)]]),
        ("edge", edges),
        ("node-feat", random.standard_normal((_VERTICES, 4)).round(3)),
        ("node-label", (np.arange(_VERTICES) % 3)[:, None]),
    ):
        _write_rows(folder / "raw" / f"{name}.csv.gz", rows)
    _write_splits(folder / "split" / "public")
    return folder


def write_ogb_link_folder(folder: Path, split: str) -> Path:
    """Write thirty vertices and their edges in the layout of ogbl-collab, and a folder for a split of pairs."""
    edges = np.stack([np.arange(_VERTICES), (np.arange(_VERTICES) + 7) % _VERTICES], 1)
    for name, rows in (("num-node-list", [[_VERTICES]]), ("num-edge-list", [[len(edges)]]), ("edge", edges)):
        _write_rows(folder / "raw" / f"{name}.csv.gz", rows)
    (folder / "split" / split).mkdir(parents=True)
    (folder / "split" / split / "train.pt").touch()
    return folder


def write_ogb_binary_folder(folder: Path) -> Path:
    """Write thirty vertices in the binary layout of papers100M."""
    (folder / "raw").mkdir(parents=True)
    random = np.random.default_rng(1)
    edges = random.integers(0, _VERTICES, (2, 90))
    counts: dict[str, Any] = {"num_nodes_list": np.array([_VERTICES]), "num_edges_list": np.array([90])}
    feature = random.standard_normal((_VERTICES, 4), np.float32)
    label = random.integers(0, 5, (_VERTICES, 1)).astype(np.float32)
    np.savez(folder / "raw" / "data.npz", edge_index=edges, node_feat=feature, **counts)
    np.savez(folder / "raw" / "node-label.npz", node_label=label)
    _write_splits(folder / "split" / "time")
    return folder


def write_ogb_typed_folder(folder: Path) -> dict[tuple[str, str, str], np.ndarray]:
    """Write three types in the layout of ogbn-mag; returns (m, 2) heads and tails of each relation."""
    sizes = {"author": 12, "institution": 4, "paper": 9}
    random = np.random.default_rng(3)
    relations = {
        ("author", "affiliated_with", "institution"): 15,
        ("author", "writes", "paper"): 30,
        ("paper", "cites", "paper"): 20,
        ("paper", "paper-paper_like", "paper"): 5,
    }
    edges = {}
    _write_rows(folder / "raw" / "num-node-dict.csv.gz", [list(sizes), list(sizes.values())])
    _write_rows(folder / "raw" / "triplet-type-list.csv.gz", [list(each) for each in relations])
    _write_rows(folder / "raw" / "nodetype-has-feat.csv.gz", [list(sizes), ["False", "False", "True"]])
    for (head, word, tail), count in relations.items():
        # The last vertex of each type has no edges.
        ends = np.stack(
            [random.integers(0, sizes[head] - 1, count), random.integers(0, sizes[tail] - 1, count)], axis=1
        )
        where = folder / "raw" / "relations" / f"{head}___{word}___{tail}"
        _write_rows(where / "edge.csv.gz", ends)
        _write_rows(where / "num-edge-list.csv.gz", [[count]])
        _write_rows(where / "edge_reltype.csv.gz", [[0]] * count)
        edges[head, word, tail] = ends
    _write_rows(folder / "raw" / "node-feat" / "paper" / "node-feat.csv.gz", random.random((9, 3)).round(3))
    _write_rows(folder / "raw" / "node-feat" / "paper" / "node_year.csv.gz", [[2010 + k] for k in range(9)])
    _write_rows(folder / "raw" / "node-label" / "paper" / "node-label.csv.gz", [[k % 4] for k in range(9)])
    for number, name in enumerate(_SPLITS):
        _write_rows(folder / "split" / "time" / "paper" / f"{name}.csv.gz", [[number + 3 * k] for k in range(2)])
    return edges


def _write_splits(folder: Path) -> None:
    for number, name in enumerate(_SPLITS):
        _write_rows(folder / f"{name}.csv.gz", [[10 * number + place] for place in range(10)])


def _write_rows(path: Path, rows: Iterable[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.write("".join(",".join(map(str, row)) + "\n" for row in rows))
