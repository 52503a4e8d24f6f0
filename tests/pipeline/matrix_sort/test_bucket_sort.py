"""The sort gives what NumPy gives, with any buffer, for any skew."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.external_sort import spill
from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment, grouped
from gnnloom.pipeline.external_sort.radix import merge_equal_keys, sort_keys, unique_keys
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.matrix_sort import blocks as row_blocks
from gnnloom.pipeline.matrix_sort import sort_plan
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import CorruptError
from support.edge_files import write_edges

NONE = np.empty(0, dtype=np.float32)


@pytest.mark.parametrize("count", [0, 1, 2, 31, 32, 1000, 300_000])
@pytest.mark.parametrize("bits", [0, 1, 7, 11, 12, 40, 63, 64])
def test_keys_are_sorted_as_numpy_sorts_them(count: int, bits: int) -> None:
    keys = np.random.default_rng(count + bits).integers(0, (1 << bits) - 1, count, dtype=np.uint64, endpoint=True)
    expected = np.sort(keys)
    sort_keys(keys, NONE, np.empty_like(keys), NONE, bits)
    np.testing.assert_array_equal(keys, expected)


@pytest.mark.parametrize("count", [5, 40, 200_000])
def test_equal_keys_keep_their_order(count: int) -> None:
    keys = np.random.default_rng(count).integers(0, 7, count).astype(np.uint64) << np.uint64(30)
    weights = np.arange(count, dtype=np.float32)
    order = np.argsort(keys, kind="stable")
    sort_keys(keys, weights, np.empty_like(keys), np.empty_like(weights), 40)
    np.testing.assert_array_equal(weights, order.astype(np.float32))


def test_skewed_keys_are_sorted() -> None:
    rng = np.random.default_rng(3)
    keys = (rng.zipf(1.3, 400_000).astype(np.uint64) % np.uint64(1 << 40)) << np.uint64(3)
    expected = np.unique(keys)
    sort_keys(keys, NONE, np.empty_like(keys), NONE, 43)
    np.testing.assert_array_equal(keys[: unique_keys(keys)], expected)


@pytest.mark.parametrize(("mode", "expected"), [(0, [6.0, 4.0]), (1, [1.0, 4.0]), (2, [3.0, 4.0]), (3, [2.0, 4.0])])
def test_weights_of_equal_keys_are_merged(mode: int, expected: list[float]) -> None:
    keys = np.array([5, 5, 5, 9], dtype=np.uint64)
    weights = np.array([2, 1, 3, 4], dtype=np.float32)
    assert merge_equal_keys(keys, weights, mode) == 2
    assert keys[:2].tolist() == [5, 9]
    assert weights[:2].tolist() == expected


def _key_range(folder: Path, keys: np.ndarray, weights: np.ndarray, cuts: int) -> KeyRange:
    path = folder / "keys"
    spill.write_file(path, [keys, weights])
    edges = np.linspace(0, len(keys), cuts + 1).astype(int).tolist()
    segments = [Segment(path, a, b, 0, 8 * len(keys), None) for a, b in itertools.pairwise(edges)]
    return KeyRange(0, (1 << 45) - 1, segments)


@given(
    st.lists(st.integers(0, 40) | st.integers(0, (1 << 45) - 1), min_size=1, max_size=300),
    st.sampled_from(["sum", "min", "max", "first"]),
    st.integers(1, 30),
    st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_a_small_buffer_gives_what_a_large_one_gives(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], merge: str, capacity: int, cuts: int
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    keys = np.array(values, dtype=np.uint64)
    weights = np.random.default_rng(len(values)).random(len(values), dtype=np.float32)
    whole = _key_range(folder, keys, weights, cuts)
    found = [
        (piece.keys.copy(), piece.weights.copy(), piece.entries, piece.first_key, piece.last_key)
        for piece in KeySorter(folder / "split", capacity, merge).slices(whole)
    ]
    distinct, inverse = np.unique(keys, return_inverse=True)
    of_key = [weights[inverse == k].astype(np.float64) for k in range(len(distinct))]
    reduce = {"sum": lambda w: np.cumsum(w)[-1], "min": np.min, "max": np.max, "first": lambda w: w[0]}[merge]
    np.testing.assert_array_equal(np.concatenate([piece[0] for piece in found]), distinct)
    expected = np.array([reduce(w) for w in of_key]).astype(np.float32)
    np.testing.assert_array_equal(np.concatenate([piece[1] for piece in found]), expected)
    assert sum(piece[2] for piece in found) == len(keys)
    bounds = [bound for piece in found for bound in piece[3:]]
    assert bounds == sorted(bounds)
    assert (bounds[0], bounds[-1]) == (0, whole.last_key)
    assert not list((folder / "split").glob("*"))


def test_groups_keep_to_the_limit_unless_one_item_exceeds_it() -> None:
    assert list(grouped(np.array([3, 3, 3, 9, 1, 0, 5]), 6)) == [(0, 2), (2, 3), (3, 4), (4, 7)]
    assert list(grouped(np.array([], dtype=np.int64), 6)) == []


def _ingest(catalog: Catalog, name: str, source: object, **options: object) -> str:
    graph = ingest_graph(catalog.create(name), source, IngestOptions(**options), InProcessCluster())
    return graph.artifact.digest


@pytest.mark.parametrize("weighted", [False, True])
def test_bytes_do_not_depend_on_the_buffer(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    rng = np.random.default_rng(1)
    u, v = rng.integers(0, 9000, (2, 60_000))
    v[:20_000] = 77  # a hub
    u[:3000], v[:3000] = 5, 6  # many copies of one edge
    source = write_edges(tmp_path / "edges", u, v, rng.random(60_000) if weighted else None)
    monkeypatch.setattr(sort_plan, "BLOCK_ENTRIES", 50_000)
    large = _ingest(catalog, "large", source, undirected=True)
    for capacity in (300, 30_000):
        monkeypatch.setattr(row_blocks._Block, "_capacity", lambda self, capacity=capacity: capacity)
        assert _ingest(catalog, f"small-{capacity}", source, undirected=True) == large


def test_bytes_do_not_depend_on_how_the_source_is_cut(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sort_plan, "BLOCK_ENTRIES", 20_000)
    rng = np.random.default_rng(2)
    # Ids rise along the source, so that the runs have buckets of different sizes.
    u, v = np.sort((rng.random((2, 50_000)) ** 8 * (1 << 21)).astype(np.int64))
    digests = set()
    for number, (range_edges, chunk_edges) in enumerate([(50_000, 50_000), (7777, 1000), (20_000, 333)]):
        source = write_edges(tmp_path / "edges", u, v, u % 7 + 0.1, range_edges=range_edges, chunk_edges=chunk_edges)
        digests.add(_ingest(catalog, f"cut-{number}", source, self_loops="keep", undirected=True))
    assert len(digests) == 1


def test_entries_of_wide_matrices_are_decoded_exactly() -> None:
    """Row and column share the 64 bits of an entry: here ids beyond 2^34."""
    n = (1 << 34) + 5
    shift, bits = spill.unit_shift(n - 1), (n - 1).bit_length()
    column = np.array([0, n - 1, n - 2], dtype=np.uint64)
    row = np.array([0, 1, (1 << shift) - 1], dtype=np.uint64)
    entries = (row << np.uint64(bits)) | column
    low, high = entries.astype(np.uint32), (entries >> np.uint64(32)).astype(np.uint32)
    keys = np.empty(3, dtype=np.uint64)
    spill.decode_entries(low, high, 0, np.array([0, 1, 3], dtype=np.int64), 0, shift, bits, bits, keys)
    np.testing.assert_array_equal(keys >> np.uint64(bits), row + np.array([0, 1, 1], np.uint64) * np.uint64(1 << shift))
    np.testing.assert_array_equal(keys & np.uint64((1 << bits) - 1), column)


def test_the_widest_matrix_fits_64_bits() -> None:
    highest = spill.MAX_VERTICES - 1
    assert spill.unit_shift(highest) + highest.bit_length() <= 64
    assert spill.unit_shift(highest) <= spill.unit_shift(highest + 1)


def test_a_short_spill_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"12345678")
    with pytest.raises(CorruptError, match=r"short: ends at byte 8, expected 8 bytes more"):
        spill.read_bytes(tmp_path / "short", 0, np.empty(2, dtype=np.uint64))
