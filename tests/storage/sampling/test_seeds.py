"""The vertices of a split, and the batches that take them as seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gnnloom.storage.artifacts import mapped_vertices
from gnnloom.storage.artifacts.mapped_vertices import SplitVertices, split_vertices
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from support.covering import few_of

N = 500
_RNG = np.random.default_rng(0)
LABELS: dict[str, Any] = {
    "label": _RNG.integers(-1, 3, N).astype(np.int32),
    "multilabel": np.where(_RNG.random((N, 2)) < 0.5, -1, 1).astype(np.int8),
    "target": np.where(_RNG.random((N, 2)) < 0.5, np.nan, 1).astype(np.float32),
}
KNOWN: dict[str, Any] = {"label": LABELS["label"] >= 0, "multilabel": (LABELS["multilabel"] >= 0).any(1)}
KNOWN["target"] = (~np.isnan(LABELS["target"])).any(1)
CODES = _RNG.integers(0, 4, N).astype(np.uint8)


@pytest.mark.parametrize(("piece", "name"), few_of([1, 7, N], LABELS, together=1))
def test_a_split_has_its_vertices_with_a_label_wherever_pieces_end(
    name: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_vertices, "_PIECE", piece)
    some: Any = np.arange(1, N, 3, dtype=np.int32)
    arrays = {name: LABELS[name], "split": CODES}
    for split in ("train", "valid", "test"):
        for labeled in (False, True):
            chosen: Any = np.equal(CODES, SPLIT[split])
            if labeled:
                chosen &= KNOWN[name]
            found = split_vertices(arrays, split, labeled=labeled)
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, np.flatnonzero(chosen))
            found = split_vertices(arrays, split, labeled=labeled, among=some)
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, some[chosen[some]])


@pytest.mark.parametrize(("counted", "name"), few_of([1, 5, 64, 4 * N], LABELS, together=1))
def test_vertices_of_a_split_are_found_without_an_array_of_them(
    name: str, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_vertices, "COUNTED", counted)
    arrays = {name: LABELS[name], "split": CODES}
    for split in ("train", "valid", "test"):
        found, wanted = SplitVertices(arrays, split), split_vertices(arrays, split, labeled=True)
        assert len(found) == len(wanted)
        for places in (np.arange(len(wanted)), np.arange(0, len(wanted), 3), np.array([len(wanted) - 1]), np.arange(0)):
            vertices = found[places]
            assert vertices.dtype == np.int64
            np.testing.assert_array_equal(vertices, wanted[places])
            np.testing.assert_array_equal(found.places(vertices), places)
        for shuffle in (True, False):
            seeds, same = (VertexSeeds(each, 7, 3, shuffle) for each in (found, wanted))
            for number in range(same.num_batches):
                np.testing.assert_array_equal(seeds.of(1, number), same.of(1, number))


def test_batches_have_every_seed_once_in_a_random_order_or_ascending() -> None:
    vertices = np.arange(3, 200, 2)
    shuffled, ascending = (VertexSeeds(vertices, 16, 5, shuffle) for shuffle in (True, False))
    for seeds in (shuffled, ascending):
        batches = [seeds.begin(1)(number).vertices for number in range(seeds.num_batches)]
        assert [len(batch) for batch in batches] == [16] * 6 + [3]
        assert all((np.diff(batch) > 0).all() for batch in batches)
        np.testing.assert_array_equal(np.sort(np.concatenate(batches)), vertices)
    np.testing.assert_array_equal(np.concatenate([ascending.of(1, number) for number in range(7)]), vertices)
    assert not np.array_equal(shuffled.of(1, 0), shuffled.of(2, 0))
    typed = VertexSeeds(vertices, 16, 5, of_type="paper").begin(1)(2).vertices
    assert list(typed) == ["paper"]
    np.testing.assert_array_equal(typed["paper"], shuffled.of(1, 2))
