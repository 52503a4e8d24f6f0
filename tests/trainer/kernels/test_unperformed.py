"""Operations that are not performed: the shapes are right, and no large tensor is read or written."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from gnnloom.storage import CSR
from gnnloom.trainer.kernels.dispatch import (
    AttentionInputs,
    SoftmaxGradient,
    Unperformed,
    Unwritten,
    edge_softmax,
    place_without_values,
    rectify,
    softmax_state,
    sparse_product,
    with_values,
)
from gnnloom.trainer.place.contract import HUB_ENTRIES
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.workspace import SMALL

ROWS, DIM = SMALL, 3


def _given() -> torch.Tensor:
    return torch.full((ROWS, DIM), 7.0)


def test_large_results_have_their_shapes_and_large_operands_keep_their_values() -> None:
    given, weight = _given(), torch.ones(DIM, 5)
    with Unperformed(Unwritten(place_without_values())):
        product = given @ weight
        given.mul_(3)
        torch.add(given, given, out=given)
        wide, sums, mean = given.double(), given.sum(0), given.mean()
        totals = given.sum(), (given > 9).sum(), given.sum(dtype=torch.float64)
        found, half = (given > 9).nonzero(), given[: ROWS // 2]
    assert (product.shape, product.dtype) == ((ROWS, 5), torch.float32)
    assert (wide.shape, wide.dtype) == ((ROWS, DIM), torch.float64)
    assert torch.equal(given, _given())
    # Small results are zeros. The sum of all numbers is 1, so that no step is left out for lack of terms.
    assert torch.equal(sums, torch.zeros(DIM))
    assert float(mean) == 0
    assert [(float(each), each.dtype) for each in totals] == [
        (1, torch.float32), (1, torch.int64), (1, torch.float64)
    ]  # fmt: skip
    assert found.shape == (ROWS * DIM, 2)
    assert half.data_ptr() == given.data_ptr()


def test_arrays_of_numpy_count_and_objects_of_python_do_not() -> None:
    with Unwritten(place_without_values()) as memory:
        objects = [object() for _ in range(ROWS)]
        assert memory.held == 0
        kept = np.arange(ROWS, dtype=np.int64)
        assert memory.held == kept.nbytes
        # It is gone when it is asked for.
        (kept + 1).sum()
        memory.observe()
        assert memory.peak >= 2 * kept.nbytes
        del kept
        assert memory.held == 0
    assert not tracemalloc.is_tracing()
    assert len(objects) == ROWS


def test_small_operations_are_performed() -> None:
    with Unperformed(Unwritten(place_without_values())):
        assert float(torch.ones(10).sum()) == 10


def test_operations_on_whole_numbers_with_values_are_performed() -> None:
    given, numbers = _given(), torch.arange(ROWS) % 100
    assert with_values(numbers) is numbers
    with Unwritten(place_without_values()) as memory, Unperformed(memory):
        known = with_values(numbers)
        held = memory.held
        is_low = known.view(2, -1)[0] < 10
        found, kept, counts = known[: ROWS // 2][is_low], given[: ROWS // 2][is_low], torch.bincount(known)
        largest = int(known.max())
        assert memory.held - held >= is_low.nbytes
        # What is not known may be anything.
        known.copy_(given[:, 0])
        anything = given[known < 10]
    assert torch.equal(found, numbers[: ROWS // 2][numbers[: ROWS // 2] < 10])
    assert kept.shape == (len(found), DIM)
    assert torch.equal(counts, torch.bincount(numbers))
    assert (largest, len(anything)) == (99, ROWS)


def test_kernels_leave_their_outputs_alone_and_gradients_have_shapes() -> None:
    place = place_without_values()
    pattern = CSR(0, np.zeros(ROWS + 1, np.int64), np.empty(0, np.int32), None, ROWS)
    given, out = _given(), _given()
    with Unperformed(Unwritten(place)):
        sparse_product(pattern, place).multiply(given, out, torch.empty(0))
        values = given.view(ROWS, 1, DIM)
        scores = values[:, :, 0].contiguous()
        state = softmax_state(values, ROWS, 1, place)
        softmax = edge_softmax(pattern, 0.2, place)
        attended, result = (AttentionInputs(each, scores, scores) for each in (values, out.view(ROWS, 1, DIM)))
        softmax.accumulate(attended, state, result.values)
        rows = place.empty((ROWS, 4, 1), values.dtype)
        softmax.gradients(attended, SoftmaxGradient(rows, values), result)
        parameter = _given().requires_grad_()
        rectify(parameter, torch.zeros(DIM), None, place).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(out, _given())
    assert parameter.grad is not None
    assert parameter.grad.shape == (ROWS, DIM)


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_sums_of_hubs_are_taken_in_a_rehearsal_too(dynamic: bool) -> None:
    rows, columns, heads, dim = 1100, HUB_ENTRIES + 1, 8, 2
    indices = np.tile(np.arange(columns, dtype=np.int32), rows)
    pattern = CSR(0, np.arange(rows + 1, dtype=np.int64) * columns, indices, None, columns)

    def taken(place: Place) -> int:
        softmax = edge_softmax(pattern, 0.2, place, dynamic=dynamic)
        values, source = (
            torch.ones(columns, heads, dim),
            torch.ones(heads, dim) if dynamic else torch.ones(columns, heads),
        )
        target = torch.ones(rows, heads, dim) if dynamic else torch.ones(rows, heads)
        given, result = (AttentionInputs(values.clone(), source.clone(), target.clone()) for _ in range(2))
        numbers = torch.ones(rows, 3 if dynamic else 4, heads)
        softmax.gradients(given, SoftmaxGradient(numbers, torch.ones(rows, heads, dim)), result)
        return place.workspace.nbytes

    measured, rehearsed = taken(Place()), place_without_values()
    with Unperformed(Unwritten(rehearsed)):
        expected = taken(rehearsed)
    # Two parts of 1100 hubs with 8 heads each, of 8 bytes.
    assert dynamic or measured >= 2 * rows * heads * 8
    assert measured <= expected <= 1.1 * measured + 2 * SMALL


def _losses(scores: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """What losses of pairs and their decoders are made of."""
    positive, negative = scores[order][:, 0], scores[:, 1:]
    one = functional.softplus(-positive).sum(dtype=torch.float64) + functional.softplus(negative).sum()
    margin = (1 + negative - positive.unsqueeze(1)).clamp_min(0).sum(dtype=torch.float64)
    column = positive.unsqueeze(1)
    scores = functional.linear(functional.linear(scores, torch.ones(2, DIM), torch.ones(2)), torch.ones(4, 2))
    return scores.sum() + one + margin + torch.logsumexp(torch.cat([column, negative], 1) - column, 1).sum()


@pytest.fixture
def all_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask torch for no shape."""

    def unknown(tensor: torch.Tensor) -> torch.Tensor:
        raise AssertionError(f"{tuple(tensor.shape)}: torch imports its compiler for tensors without values")

    monkeypatch.setattr("gnnloom.trainer.kernels.unperformed._on_meta", unknown)


@pytest.mark.usefixtures("all_known")
def test_shapes_of_predicted_classes_are_known() -> None:
    given = _given()
    with Unperformed(Unwritten(place_without_values())):
        highest, lowest, best = given.amax(1), given.amin(1, keepdim=True), given.argmax(1)
    assert (highest.shape, highest.dtype) == ((ROWS,), torch.float32)
    assert lowest.shape == (ROWS, 1)
    assert (best.shape, best.dtype) == ((ROWS,), torch.int64)


@pytest.mark.usefixtures("all_known")
def test_shapes_of_losses_of_pairs_and_of_their_gradients_are_known() -> None:
    scores, few = _given().requires_grad_(), torch.ones(5, DIM, requires_grad=True)
    order = torch.arange(ROWS)
    with Unperformed(Unwritten(place_without_values())):
        loss = _losses(scores, order)
        loss.backward()  # type: ignore[no-untyped-call]
    expected = _losses(few, torch.arange(5))
    expected.backward()  # type: ignore[no-untyped-call]
    assert (loss.shape, loss.dtype) == (expected.shape, expected.dtype)
    assert scores.grad is not None
    assert few.grad is not None
    assert (scores.grad.shape, scores.grad.dtype) == ((ROWS, DIM), few.grad.dtype)


def test_a_rehearsed_workspace_may_be_larger_than_the_memory() -> None:
    strict = Path("/proc/sys/vm/overcommit_memory")
    if strict.exists() and strict.read_text().strip() == "2":
        pytest.skip("the system counts address space as memory")
    place = place_without_values()
    tensor = place.empty((1 << 38,), torch.float32)
    with Unperformed(Unwritten(place)):
        tensor.add_(1)
    assert place.workspace.nbytes == 1 << 40
