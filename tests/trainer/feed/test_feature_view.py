"""Wherever features are, a step gets the same rows, and gradients reach the ranks of learned ones."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from queue import Queue
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from gnnloom.storage.disk.row_buffers import RowBuffers
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.feed.feature_view import (
    FeatureView,
    LearnedFeatures,
    MappedFeatures,
    OwnFeatures,
    PropagatedFeatures,
)
from gnnloom.trainer.layout.partial_parameters import ParameterPiece, PartialParameter
from gnnloom.trainer.place.place import Place
from support.thread_ranks import on_thread_ranks

N, WIDTH, RANKS = 40, 3, 3
RNG = np.random.default_rng(2)
FEATURE = RNG.random((N, WIDTH)).astype(np.float32)
SCALED = torch.from_numpy(FEATURE / FEATURE.sum(1, keepdims=True))
#: The last rank owns no vertex; ranks ask for any vertices, and one of them for none.
OWNER = RNG.integers(0, RANKS - 1, N).astype(np.int32)
ASKED = [RNG.permutation(N)[:25], np.empty(0, np.int64), RNG.permutation(N)[:9]]
KEPT = np.arange(0, N, 3)


def own_rows(comm: Communicator) -> tuple[NDArray[np.int64], Tensor]:
    """A rank's vertices, which do not ascend, and their rows."""
    vertex = np.flatnonzero(comm.rank == OWNER)[::-1].copy()
    return vertex, SCALED[torch.from_numpy(vertex)]


def exchange(comm: Communicator, place: Place, rows: Tensor | None = None) -> RowExchange:
    vertex, own = own_rows(comm)
    return RowExchange(comm, LocalNumbers.of(vertex), own if rows is None else rows, OWNER, place)


def make(kind: str, comm: Communicator, place: Place) -> FeatureView:
    match kind:
        case "own":
            return OwnFeatures(exchange(comm, place))
        case "mapped":
            return MappedFeatures(FEATURE, "row", place, "here")
        case "reused":
            return MappedFeatures(FEATURE, "row", place, buffers=RowBuffers(1))
        case _:
            order = RNG.permutation(N)
            # Two matrices side by side, each of which is scaled.
            packed = np.concatenate([FEATURE[order], 3 * FEATURE[order]], 1)
            return PropagatedFeatures(packed, order, WIDTH, "row", place)


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("kind", ["own", "mapped", "reused", "propagated"])
def test_every_view_gives_the_rows_that_are_asked_for(kind: str, keeps: bool) -> None:
    def rows(comm: Communicator) -> list[Tensor]:
        place = Place(torch.float32)
        features = make(kind, comm, place)
        if keeps:
            features.keep(KEPT)
        asked = ASKED[comm.rank]
        return [features.in_step(asked, features.ahead(asked)).clone() for _ in range(2)]

    for rank, found in enumerate(on_thread_ranks(RANKS, rows)):
        expected = SCALED[torch.from_numpy(ASKED[rank])]
        expected = expected.repeat(1, 2) if kind == "propagated" else expected
        for each in found:
            torch.testing.assert_close(each, expected)


def test_gradients_of_learned_rows_are_summed_where_the_rows_are() -> None:
    def gradient(comm: Communicator) -> NDArray[Any]:
        place, (vertex, rows) = Place(torch.float32), own_rows(comm)
        grid = ProcessGrid(comm, {"rank": comm.size}, place)
        piece = ParameterPiece(grid, (N, WIDTH), torch.from_numpy(vertex), slice(0, WIDTH))
        parameter, asked = PartialParameter.of(rows.clone(), piece), ASKED[comm.rank]
        features = LearnedFeatures(parameter, exchange(comm, place, parameter.detach()), place)
        # Nobody keeps rows that change.
        assert features.num_kept(1 << 20) == 0
        found = features.in_step(asked, features.ahead(asked))
        if len(asked):
            (found * (comm.rank + 1)).sum().backward()  # type: ignore[no-untyped-call]
        features.give_back(asked, found)
        given, whole = parameter.row_gradient, np.zeros((N, WIDTH))
        assert given is not None
        whole[vertex[given.rows.numpy()]] = given.values.numpy()
        return whole

    expected = np.zeros((N, WIDTH))
    for rank, asked in enumerate(ASKED):
        expected[asked] += rank + 1
    np.testing.assert_array_equal(sum(on_thread_ranks(RANKS, gradient)), expected)


def test_a_feature_that_is_not_finite_is_refused_by_the_vertex_that_has_it() -> None:
    stored = FEATURE.copy()
    stored[7, 1] = np.nan
    features = MappedFeatures(stored, "row", Place(torch.float32), "some array")
    assert len(features.rows(np.array([6, 8]))) == 2
    with pytest.raises(InputError, match="some array: vertex 7 has"):
        features.rows(np.array([6, 7]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rows_that_someone_refers_to_are_never_overwritten(dtype: type[Any]) -> None:
    stored = np.random.default_rng(8).random((4000, 300)).astype(dtype)
    features = MappedFeatures(stored, "none", Place(torch.float32), buffers=RowBuffers(4))
    rng, kept = np.random.default_rng(9), list[tuple[Callable[[], Any], Any]]()
    held = Queue[Any]()

    def release() -> None:
        while held.get() is not None:
            pass
        gc.collect()

    thread = Thread(target=release)
    thread.start()
    forms: list[Callable[[Tensor], tuple[Any, Callable[[Any], Any]]]] = [
        lambda rows: (rows, lambda kept: kept.numpy()),
        lambda rows: (rows[5:1500:3, ::2].t(), lambda kept: kept.t().numpy()),
        lambda rows: (rows.numpy()[5:1500:3, ::2], lambda kept: kept),
        lambda rows: (rows.detach().view(-1, 100), lambda kept: kept.view(-1, 300).numpy()),
        lambda rows: (rows.numpy().data, np.asarray),
        lambda rows: (from_dlpack(rows), lambda kept: kept.numpy()),
    ]
    for number in range(90):
        vertices = rng.permutation(4000)[: rng.integers(1500, 1700)]
        rows = features.rows(vertices)
        assert np.array_equal(rows.numpy(), stored[vertices].astype(np.float32))
        form = number % len(forms)
        alias, seen = forms[form](rows)
        expected = stored[vertices].astype(np.float32)
        expected = expected[5:1500:3, ::2] if form in {1, 2} else expected
        # The list keeps every fourth one to the end; another thread lets go of the others.
        if number % 4 == 0:
            kept.append((partial(seen, alias), expected))
        else:
            held.put((rows, alias))
        del rows, alias, seen
        for seen_now, values in kept[-3:]:
            np.testing.assert_array_equal(seen_now(), values)
    held.put(None)
    thread.join()
    for seen_now, values in kept:
        np.testing.assert_array_equal(seen_now(), values)


def test_another_process_has_rows_of_its_own() -> None:
    stored = np.random.default_rng(8).random((4000, 300)).astype(np.float16)
    features = MappedFeatures(stored, "none", Place(torch.float32), buffers=RowBuffers(4))
    vertices = np.arange(2000)
    rows = features.rows(vertices)
    queue = get_context("fork").SimpleQueue()

    def overwrite() -> None:
        rows.numpy()[:] = -1
        queue.put(features.rows(vertices)[7, 7].item())

    child = get_context("fork").Process(target=overwrite)
    child.start()
    assert queue.get() == stored[7, 7]
    child.join()
    np.testing.assert_array_equal(rows.numpy(), stored[:2000].astype(np.float32))
    # What is shared with other processes has been copied, and its buffer serves other rows.
    shared = features.rows(vertices).share_memory_()  # type: ignore[no-untyped-call]
    others = [features.rows(vertices + 2000) for _ in range(4)]
    np.testing.assert_array_equal(shared.numpy(), stored[:2000].astype(np.float32))
    assert all(np.array_equal(other.numpy(), stored[2000:].astype(np.float32)) for other in others)
