"""Every stored CSR matrix has the attributes by which SciPy and anndata users know it."""

from __future__ import annotations

from pathlib import Path

import zarr

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.csr_group import Window, csr_attributes, write_csr_group
from support.graphs import random_adjacency, store_graph


def test_a_block_says_where_it_lies_in_the_whole_matrix(tmp_path: Path) -> None:
    write_csr_group(tmp_path / "block", (4, 10), 7, Window(6, 0, (10, 10)))
    assert dict(zarr.open_group(str(tmp_path / "block"), mode="r").attrs) == {
        "encoding-type": "csr_matrix",
        "encoding-version": "0.1.0",
        "shape": [4, 10],
        "row_offset": 6,
        "col_offset": 0,
        "global_shape": [10, 10],
        "nnz": 7,
    }


def test_a_matrix_that_is_not_a_block_has_no_offsets() -> None:
    assert csr_attributes((4, 10), 7).keys() == {"encoding-type", "encoding-version", "shape", "nnz"}


def test_blocks_of_a_graph_have_these_attributes(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("web"), random_adjacency(9, 20, 0, symmetric=True), symmetric=True, num_blocks=1)
    attributes = dict(zarr.open_group(str(graph.artifact.path / "block/00000"), mode="r").attrs)
    assert attributes == csr_attributes((9, 9), graph.nnz, Window(0, 0, (9, 9)))
