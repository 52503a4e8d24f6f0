"""The kernel in C gives the same bits with every instruction set, and nothing is computed where it was not built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnnloom.storage.errors import MissingPackageError
from gnnloom.trainer.kernels.c import library
from gnnloom.trainer.kernels.c.calls import CSparseProduct
from gnnloom.trainer.kernels.dispatch import (
    Dropout,
    edge_softmax,
    head_sums,
    rectify,
    sparse_product,
    sparse_product_kernel,
)
from gnnloom.trainer.kernels.sparse_rows import listed_rows
from gnnloom.trainer.kernels.without_values import WithoutValues
from gnnloom.trainer.place.contract import RowPass, SparseProduct, SparseRows
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.threads import Threads
from support.covering import examples
from support.sparse_products import Case, cases, random_csr

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True, scope="module")
def threads_for_the_smallest_products() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gnnloom.trainer.kernels.c.calls._WORTH_A_THREAD", 1)
        yield


def _products(rows: SparseRows, threads: int, dtype: torch.dtype) -> list[SparseProduct]:
    """The product for every instruction set of this processor."""
    pool = Threads(threads)
    return [CSparseProduct(chosen, rows, pool, dtype) for chosen in library.all_libraries()]


def test_the_library_is_built_where_there_is_a_compiler() -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    assert library.all_libraries()
    assert sparse_product_kernel() == f"C with {library.all_libraries()[0].instruction_set}"


@settings(max_examples=examples(60), deadline=None)
@given(case=cases(), threads=st.integers(1, 3))
def test_every_instruction_set_gives_the_same_bits(case: Case, threads: int) -> None:
    found = []
    for product in _products(listed_rows(case.matrix), threads, case.dtype):
        out = case.before()
        chosen = product if case.rows is None else product.restricted(case.rows)
        chosen.multiply(
            case.dense(), out, case.row_scale(), accumulate=case.accumulate, column_scale=case.column_scale()
        )
        found.append(_bits(out))
    for other in found[1:]:
        assert torch.equal(found[0], other)


def _bits(values: Tensor) -> Tensor:
    """Zeros of either sign are equal: a row that is skipped keeps its sign."""
    return (values + 0.0).view({2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()])


def test_sums_are_rounded_to_the_nearest_even_bfloat16_and_nan_stays_nan() -> None:
    matrix = random_csr(40, 30, 0.3, weighted=False)
    dense = torch.randn((30, 70), generator=torch.Generator().manual_seed(0)).bfloat16()
    dense[3, :] = torch.nan
    dense[4, :] = torch.inf
    expected = torch.empty((40, 70))
    sparse_product(matrix, Place()).multiply(dense.float(), expected, torch.empty(0))
    for product in _products(listed_rows(matrix), 1, torch.bfloat16):
        out = torch.empty((40, 70), dtype=torch.bfloat16)
        product.multiply(dense, out, torch.empty(0))
        torch.testing.assert_close(out, expected.bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_large_outputs_are_written_around_the_caches_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = random_csr(50, 60, 0.2, weighted=False)
    dense, aligned = torch.randn((60, 64)), torch.empty((50, 64))
    found = []
    for limit in (1 << 30, 0):
        monkeypatch.setattr("gnnloom.trainer.kernels.c.calls._STREAMED_BYTES", limit)
        for product in _products(listed_rows(matrix), 2, torch.float32):
            product.multiply(dense, aligned.zero_(), torch.empty(0))
            found.append(aligned.clone())
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_without_the_library_what_computes_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_found_library", lambda: None)
    matrix, row = random_csr(4, 4, 0.5, weighted=False), torch.ones((1, 4))
    for compute in (
        lambda: sparse_product(matrix, Place()),
        lambda: edge_softmax(matrix, 0.2, Place()),
        lambda: rectify(row, None, None, Place()),
        lambda: head_sums(row.view(1, 2, 2), row.view(1, 2, 2), Place()),
    ):
        with pytest.raises(MissingPackageError, match="install a C compiler, and then gnnloom again"):
            compute()


class Noting(WithoutValues):
    """Notes which kernels are asked for, and computes nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def pass_rows(self, given: RowPass, place: Place) -> None:
        self.asked.append(given.step.name)

    def sparse_product(self, matrix: Any, place: Place, dtype: torch.dtype) -> Any:
        self.asked.append(str(dtype))
        return super().sparse_product(matrix, place, dtype)


def test_the_kernels_of_a_place_are_those_that_it_was_made_with() -> None:
    kernels = Noting()
    place, row = Place(kernels=kernels), torch.ones((1, 4))
    sparse_product(random_csr(4, 4, 0.5, weighted=False), place, torch.float64)
    rectify(row, None, None, place)
    Dropout(0.5, 0, place).apply(row, np.zeros(1, np.int64), 0, 0, 0)
    assert kernels.asked == ["torch.float64", "RECTIFY", "DROP"]


def test_a_library_of_older_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_ABI", -1)
    assert library.all_libraries() == []


def test_without_openmp_a_pool_of_threads_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = listed_rows(random_csr(300, 200, 0.1, weighted=True))
    dense, found = torch.randn((200, 40)), []
    for team in (library._openmp_team, lambda: None):
        monkeypatch.setattr(library, "_openmp_team", team)
        for product in _products(rows, 3, torch.float32):
            out = torch.empty((300, 40))
            product.multiply(dense, out, torch.empty(0))
            found.append(out)
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.long
@pytest.mark.parametrize("compiler", ["/bin/false", "cc"])
def test_one_wheel_serves_every_python_and_is_built_without_a_compiler_too(compiler: str, tmp_path: Path) -> None:
    _copy_of_the_sources(tmp_path)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."]
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"CC": compiler}, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "-cp311-abi3-" in wheel.name
    assert ("gnnloom/trainer/kernels/c/_kernels.abi3.so" in names) == (compiler == "cc")


def _copy_of_the_sources(folder: Path) -> None:
    """The tracked files, without what a build has left among them."""
    archive = folder / "sources.tar"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with tarfile.open(archive, "w") as tar:
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                tar.add(ROOT / name, name)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
