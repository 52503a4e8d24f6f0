"""Label matrices from every format become the same array, and errors name invalid labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.format import open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from support.covering import few_of
from support.graphs import random_adjacency, store_graph

N, CLASSES = 50, 4


@pytest.fixture
def label() -> np.ndarray:
    label = np.random.default_rng(0).integers(-1, 2, (N, CLASSES)).astype(np.int8)
    label[3] = -1
    return label


def as_float(label: np.ndarray) -> np.ndarray:
    return np.where(label == -1, np.nan, label)


def write_npy(folder: Path, label: np.ndarray) -> tuple[str, list[str], dict[str, str]]:
    np.save(folder / "y.npy", label.astype(np.int64))
    return "files", [], {"label": str(folder / "y.npy")}


def write_npz(folder: Path, label: np.ndarray) -> tuple[str, list[str], dict[str, str]]:
    np.savez_compressed(folder / "y.npz", label=as_float(label).astype(np.float16))
    return "files", [], {"label": str(folder / "y.npz")}


def write_csv(folder: Path, label: np.ndarray) -> tuple[str, list[str], dict[str, str]]:
    np.savetxt(folder / "y.csv", as_float(label), fmt="%g", delimiter=",")
    return "files", [], {"label": str(folder / "y.csv")}


def write_parquet(folder: Path, label: np.ndarray) -> tuple[str, list[str], dict[str, str]]:
    columns = {f"c{number}": label[:, number] for number in range(CLASSES)}
    pq.write_table(pa.table(columns), folder / "y.parquet", row_group_size=7)
    return "files", [], {"label": str(folder / "y.parquet")}


def write_ogb(folder: Path, label: np.ndarray) -> tuple[str, list[str], dict[str, str]]:
    (folder / "raw").mkdir()
    (folder / "raw" / "num-node-list.csv").write_text(f"{N}\n")
    np.savetxt(folder / "raw" / "node-label.csv.gz", as_float(label), fmt="%g", delimiter=",")
    return "ogb", [str(folder)], {}


def write_ogb_binary(folder: Path, label: np.ndarray) -> tuple[str, list[str], dict[str, str]]:
    (folder / "raw").mkdir()
    np.savez(folder / "raw" / "data.npz", num_nodes_list=np.array([N]))
    np.savez(folder / "raw" / "node-label.npz", node_label=as_float(label))
    return "ogb-binary", [str(folder)], {}


def write_pyg(folder: Path, label: np.ndarray) -> tuple[str, list[str], dict[str, str]]:
    torch.save({"y": torch.from_numpy(as_float(label)).float()}, folder / "data.pt")
    return "pyg", [str(folder / "data.pt")], {}


WRITERS = [write_npy, write_npz, write_csv, write_parquet, write_ogb, write_ogb_binary, write_pyg]


@pytest.mark.parametrize("write", WRITERS)
def test_every_format_gives_the_same_matrix(
    catalog: Catalog, tmp_path: Path, label: np.ndarray, write: Callable[..., Any]
) -> None:
    name, locations, options = write(tmp_path, label)
    dataset = catalog.create("g")
    store_graph(dataset, random_adjacency(N, 100, 1, symmetric=True), symmetric=True)
    vertices = ingest_vertices(dataset, open_vertices(name, locations, options), InProcessCluster())
    assert not vertices.has_label
    assert vertices.num_classes == CLASSES
    assert vertices.artifact.facts["unlabeled"] == int((label < 0).all(1).sum())
    np.testing.assert_array_equal(vertices.multilabel(), label)
    vertices.artifact.verify()


@pytest.mark.parametrize(
    ("write", "value"), few_of([write_npy, write_csv, write_parquet, write_ogb], [2, -2], together=1)
)
def test_an_invalid_label_is_named(tmp_path: Path, label: np.ndarray, write: Callable[..., Any], value: int) -> None:
    label[17, 2] = value
    name, locations, options = write(tmp_path, label)
    source = open_vertices(name, locations, options)
    with pytest.raises(InputError, match=r"(row 17|line 18)\b.*expected labels of 0 or 1"):
        list(source.read_rows("multilabel", 0, N))
