"""Attention over the nonzeros equals a dense softmax, and its gradients equal torch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from gnnloom.storage import CSR
from gnnloom.storage.shards.shard_matrix import ShardMatrix
from gnnloom.trainer.comm.traffic import Traffic
from gnnloom.trainer.operators.attention import Attending, Attention
from gnnloom.trainer.operators.halo import Arrival, HaloFetch
from gnnloom.trainer.place.contract import AttentionInputs
from gnnloom.trainer.place.place import Place
from support.array_memory import tracing_arrays

ROWS, HALO, HEADS, DIM, SLOPE = 30, 12, 3, 4, 0.2


def _pattern(columns: int, seed: int) -> tuple[CSR, NDArray[np.bool_]]:
    """A pattern with some empty rows and columns, sparse and dense."""
    dense = np.random.default_rng(seed).random((ROWS, columns)) < 0.15
    dense[:2] = dense[:, 3] = False
    matrix = scipy.sparse.csr_array(dense)
    matrix.sort_indices()
    found = CSR(0, matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), None, columns)
    return found, matrix.toarray() != 0


def _attention() -> tuple[Attention, torch.Tensor]:
    """Attention over an own and a halo pattern, and the dense pattern of both side by side."""
    (own, own_dense), (halo, halo_dense) = _pattern(ROWS, 1), _pattern(HALO, 2)
    nothing = np.empty(0, np.int64)
    matrix = ShardMatrix(own, halo, nothing, nothing, nothing, nothing)
    return Attention(matrix, SLOPE, Place(), Traffic()), torch.from_numpy(np.hstack([own_dense, halo_dense]))


def _attend(
    attention: Attention,
    own: torch.Tensor,
    halo: torch.Tensor,
    source: torch.Tensor,
    halo_source: torch.Tensor,
    target: torch.Tensor,
) -> torch.Tensor:
    step = Attending(attention)
    return step.finish(step.begin(AttentionInputs(own, source, target)), AttentionInputs(halo, halo_source, target))


def _given(dtype: torch.dtype, scale: float) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(ROWS, HEADS, DIM), (HALO, HEADS, DIM), (ROWS, HEADS), (HALO, HEADS), (ROWS, HEADS)]
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    tensors[2:] = [scores * scale for scores in tensors[2:]]
    return [tensor.to(dtype).requires_grad_() for tensor in tensors]


def _dense(
    pattern: torch.Tensor,
    own: torch.Tensor,
    halo: torch.Tensor,
    source: torch.Tensor,
    halo_source: torch.Tensor,
    target: torch.Tensor,
) -> torch.Tensor:
    scores = target[:, None] + torch.cat([source, halo_source])[None]
    scores = torch.nn.functional.leaky_relu(scores, SLOPE).masked_fill(~pattern[:, :, None], -torch.inf)
    weights = torch.where(pattern.any(1)[:, None, None], scores, 0.0).softmax(1) * pattern[:, :, None]
    return torch.einsum("ijh,jhd->ihd", weights, torch.cat([own, halo]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_attention_and_its_gradients_equal_the_dense_softmax(dtype: torch.dtype, scale: float) -> None:
    attention, pattern = _attention()
    assert not pattern.any(1).all()
    mine, dense = _given(dtype, scale), [tensor.detach().double().requires_grad_() for tensor in _given(dtype, scale)]
    found, expected = _attend(attention, *mine), _dense(pattern, *dense)
    tolerance = 200 * torch.finfo(dtype).eps * max(1.0, scale)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)
    factor = torch.randn(found.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    (found * factor.to(dtype)).sum().backward()  # type: ignore[no-untyped-call]
    (expected * factor).sum().backward()  # type: ignore[no-untyped-call]
    for ours, theirs in zip(mine, dense, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=0, atol=tolerance)


def test_a_row_without_neighbors_is_zero_and_inputs_do_not_change() -> None:
    attention, pattern = _attention()
    given = _given(torch.float64, 1.0)
    before = [tensor.detach().clone() for tensor in given]
    found = _attend(attention, *given)
    assert (found[~pattern.any(1)] == 0).all()
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert all(torch.equal(tensor, old) for tensor, old in zip(given, before, strict=True))


class LargestTensor(TorchDispatchMode):
    """Records the bytes of the largest tensor that torch makes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # As in the rehearsal: torch's compiler would be imported only to leave this class alone, which takes seconds.
        return False

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.bytes = max(self.bytes, result.nbytes)
        return result


def test_memory_holds_nothing_of_the_size_of_edges_and_features() -> None:
    rng = np.random.default_rng(0)
    rows, degree, dim = 400, 300, 16
    indices = np.concatenate([np.sort(rng.choice(rows, degree, replace=False)) for _ in range(rows)]).astype(np.int32)
    own = CSR(0, np.arange(rows + 1, dtype=np.int64) * degree, indices, None, rows)
    halo = CSR(0, np.zeros(rows + 1, np.int64), np.empty(0, np.int32), None, 0)
    nothing = np.empty(0, np.int64)
    attention = Attention(ShardMatrix(own, halo, nothing, nothing, nothing, nothing), SLOPE, Place(), Traffic())
    given = [
        torch.randn(*shape, requires_grad=True) for shape in ((rows, 2, dim), (0, 2, dim), (rows, 2), (0, 2), (rows, 2))
    ]
    with LargestTensor() as largest:
        _attend(attention, *given).sum().backward()  # type: ignore[no-untyped-call]
    with tracing_arrays() as arrays:
        _attend(attention, *given).sum().backward()  # type: ignore[no-untyped-call]
        peak = arrays.peak()
    # Less than one float32 per edge and head. NumPy's arrays are traced, and torch's tensors recorded; the kernels
    # allocate nothing else.
    assert peak < own.nnz * 2 * 4
    assert largest.bytes < own.nnz * 2


class RecordedExchange:
    """Moves no rows, and records when they leave and when they are waited for."""

    def __init__(self, events: list[str]) -> None:
        self.events, self.comm = events, self
        self.traffic = Traffic()

    def begin(self, own: torch.Tensor, kind: str) -> Arrival:
        self.events.append("rows leave")
        return Arrival(own.detach()[:HALO].clone(), {}, [], own)

    def wait(self, requests: list[Any]) -> None:
        self.events.append("rows are waited for")

    def progress(self, requests: list[Any]) -> None:
        if self.events[-1] != "messages advance":
            self.events.append("messages advance")

    def begin_return(self, halo: torch.Tensor, kind: str) -> Arrival:
        self.events.append("gradients leave")
        return Arrival(halo, {}, [], halo)

    def add_returned(self, arrival: Arrival) -> torch.Tensor:
        self.events.append("gradients are waited for")
        return torch.cat([arrival.rows, arrival.rows.new_zeros(ROWS - HALO, DIM)])


def test_the_exchange_is_hidden_behind_the_own_columns_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    attention, _ = _attention()
    events: list[str] = []

    def recorded(method: Callable[..., Any], event: str) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            events.append(event)
            return method(*given, **options)

        return call

    for name, event in (("accumulate", "own sums"), ("gradients", "own gradients")):
        monkeypatch.setattr(attention.own, name, recorded(getattr(attention.own, name), event))
    values = torch.randn(ROWS, DIM, requires_grad=True)
    fetch = HaloFetch(RecordedExchange(events))  # type: ignore[arg-type]
    step = Attending(attention, fetch.progress)
    begun = fetch.begin(values)
    own = values.view(ROWS, 1, DIM).expand(ROWS, HEADS, DIM)
    attended = step.begin(AttentionInputs(own, own.sum(2), own.sum(2)))
    halo = fetch.finish(begun).view(HALO, 1, DIM).expand(HALO, HEADS, DIM)
    step.finish(attended, AttentionInputs(halo, halo.sum(2), own.sum(2))).sum().backward()  # type: ignore[no-untyped-call]
    assert events == [
        "rows leave",
        "own sums",
        "messages advance",
        "rows are waited for",
        "gradients leave",
        "own gradients",
        "messages advance",
        "gradients are waited for",
    ]
