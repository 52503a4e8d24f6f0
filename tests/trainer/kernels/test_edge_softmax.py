"""Attention over a pattern and its gradients equal those of dense arrays, whatever implements it, with the same bits on
every processor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.c import library
from gnnloom.trainer.kernels.c.edge_softmax import CEdgeSoftmax
from gnnloom.trainer.kernels.dispatch import edge_softmax, head_sums, softmax_state
from gnnloom.trainer.place.contract import AttentionInputs, EdgeSoftmax, SoftmaxGradient
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.threads import Threads
from support.covering import examples

SLOPE = 0.2
#: Widths of heads around those of vectors, and of panels of several of them.
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 64, 65, 130)


@pytest.fixture(autouse=True, scope="module")
def threads_for_the_smallest_patterns() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gnnloom.trainer.kernels.c.calls._WORTH_A_THREAD", 1)
        yield


@dataclass(frozen=True)
class Case:
    """Attention over two patterns side by side.

    Attributes:
        dense: (num_rows, own + halo columns) the pattern.
        num_own: leading columns, of the first pattern.
        scale: of the scores.
        dynamic: scores are those of GATv2.
    """

    dense: NDArray[np.bool_]
    num_own: int
    heads: int
    dim: int
    dtype: torch.dtype
    scale: float
    wide: bool
    seed: int
    dynamic: bool = False

    @property
    def patterns(self) -> list[tuple[CSR, slice]]:
        """The two patterns and their columns."""
        parts = slice(0, self.num_own), slice(self.num_own, self.dense.shape[1])
        return [(_csr(self.dense[:, part], wide=self.wide), part) for part in parts]

    def tensors(self) -> list[Tensor]:
        """What is attended, and the gradient of the output; none begins where a vector would."""
        (rows, columns), heads, dim = self.dense.shape, self.heads, self.dim
        rng, sums = np.random.default_rng(self.seed), torch.float32 if self.dtype == torch.bfloat16 else self.dtype
        given: tuple[tuple[tuple[int, ...], float, torch.dtype], ...]
        if self.dynamic:
            # The scale of a score is that of its vector, times the root of the width.
            vector = (heads, dim), self.scale / dim**0.5, sums
            given = vector, ((rows, heads, dim), 1, self.dtype)
        else:
            given = ((columns, heads), self.scale, sums), ((rows, heads), self.scale, sums)
        found = []
        for shape, scale, dtype in ((columns, heads, dim), 1, self.dtype), *given, ((rows, heads, dim), 1, self.dtype):
            memory = torch.empty(int(np.prod(shape)) + 1, dtype=dtype)
            memory[1:] = torch.from_numpy(rng.standard_normal(shape).ravel() * scale)
            found.append(memory[1:].view(shape))
        return found


def _csr(dense: NDArray[np.bool_], *, wide: bool = False) -> CSR:
    indptr = np.concatenate([[0], np.cumsum(dense.sum(1))]).astype(np.int64)
    return CSR(0, indptr, np.nonzero(dense)[1].astype(np.int64 if wide else np.int32), None, dense.shape[1])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    seed = draw(st.integers(0, 2**32 - 1))
    rng, rows = np.random.default_rng(seed), draw(st.integers(1, 40))
    own, halo = draw(st.integers(1, 150)), draw(st.sampled_from([0, 0, 1, 20]))
    dense = rng.random((rows, own + halo)) < draw(st.sampled_from([0.0, 0.05, 0.5, 1.0]))
    dense[rng.random(rows) < draw(st.sampled_from([0.0, 0.3]))] = False
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
    heads, dim = draw(st.integers(1, 11)), draw(st.sampled_from(WIDTHS))
    scale = draw(st.sampled_from([1.0, 30.0, 1000.0]))
    return Case(dense, own, heads, dim, dtype, scale, draw(st.booleans()), seed, draw(st.booleans()))


def _implementations(pattern: CSR, num_threads: int, *, dynamic: bool = False) -> list[EdgeSoftmax]:
    """One for every instruction set of this processor."""
    place = Place(num_threads=num_threads)
    return [CEdgeSoftmax(chosen, pattern, SLOPE, place, dynamic=dynamic) for chosen in library.all_libraries()]


def _computed(case: Case, number: int, num_threads: int) -> list[Tensor]:
    """The output, and the gradients of what is attended, by one of the implementations."""
    values, source, target, gradient = case.tensors()
    rows, place = len(target), Place()
    shape = rows, case.heads, case.dim
    patterns = [
        (_implementations(pattern, num_threads, dynamic=case.dynamic)[number], part) for pattern, part in case.patterns
    ]
    state = softmax_state(torch.full(shape, torch.nan, dtype=source.dtype), rows, case.heads, place)
    output = torch.full(shape, torch.nan, dtype=values.dtype)
    for begins, (softmax, part) in zip((True, False), patterns, strict=True):
        given = AttentionInputs(values[part], source if case.dynamic else source[part], target)
        softmax.accumulate(given, state, None if begins else output, begins=begins, progress=None)
    along = head_sums(gradient, output, place)
    scores = [] if case.dynamic else [target]
    of_rows = SoftmaxGradient(torch.stack([*scores, state.maximum, 1 / state.total, along], 1), gradient)
    of_values, of_source, of_target = torch.empty_like(values), torch.zeros_like(source), torch.zeros_like(target)
    for softmax, part in patterns:
        of_scores, partly = (torch.full_like(tensor, torch.nan) for tensor in (source, target))
        given = AttentionInputs(values[part], source if case.dynamic else source[part], target)
        softmax.gradients(given, of_rows, AttentionInputs(of_values[part], of_scores[: len(given.source)], partly))
        # A vector has parts of both patterns, and a column's score one.
        of_source[slice(None) if case.dynamic else part] += of_scores[: len(given.source)]
        of_target += partly
    return [output, of_values, of_source, of_target]


def _expected(case: Case) -> list[tuple[NDArray[np.float64], float]]:
    """What :func:`_computed` returns, each with the largest sum of the magnitudes of what is added in one number."""
    values, source, target, gradient = (tensor.double().numpy() for tensor in case.tensors())
    if case.dynamic:
        total = target[:, None] + values[None]
        slopes = np.where(total > 0, 1, SLOPE)
        activated = np.einsum("hd,ijhd->ijh", source, slopes * total)
    else:
        total = target[:, None] + source[None]
        slopes = np.where(total > 0, 1, SLOPE)
        activated = slopes * total
    pattern = case.dense[:, :, None]
    masked: NDArray[np.float64] = np.where(pattern, activated, -np.inf)
    has_columns = np.diff(_csr(case.dense).indptr)[:, None] > 0
    highest = np.where(has_columns, masked.max(1), 0)
    weights = np.exp(masked - highest[:, None])
    weights /= np.maximum(weights.sum(1, keepdims=True), 1)

    def gradients(values: NDArray[Any], gradient: NDArray[Any], source: NDArray[Any], sign: int) -> list[NDArray[Any]]:
        """With magnitudes and a sign of 1, everything is added that is else subtracted."""
        of_weights = np.einsum("ihd,jhd->ijh", gradient, values)
        of_scores = weights * (of_weights + sign * (weights * of_weights).sum(1, keepdims=True))
        output, of_values = (np.einsum("ijh,jhd->ihd", weights, values), np.einsum("ijh,ihd->jhd", weights, gradient))
        if case.dynamic:
            of_total = of_scores[..., None] * source * slopes
            activation = slopes * (total if sign < 0 else np.abs(total))
            of_vectors = np.einsum("ijh,ijhd->hd", of_scores, activation)
            return [output, of_values + of_total.sum(0), of_vectors, of_total.sum(1)]
        of_scores = of_scores * slopes
        return [output, of_values, of_scores.sum(0), of_scores.sum(1)]

    exact = gradients(values, gradient, source, -1)
    magnitudes = gradients(np.abs(values), np.abs(gradient), np.abs(source), 1)
    return [(each, float(most.max(initial=0.0))) for each, most in zip(exact, magnitudes, strict=True)]


@settings(max_examples=examples(30), deadline=None)
@given(case=cases(), num_threads=st.integers(1, 3))
def test_attention_and_its_gradients_are_those_of_dense_arrays(case: Case, num_threads: int) -> None:
    # A score has rounding errors of its own size, and a weight as many as the score has.
    width = case.scale if case.dtype != torch.bfloat16 else max(1.0, case.scale / 2**16)
    tolerance = 40 * torch.finfo(case.dtype).eps * width
    found = [_computed(case, number, num_threads) for number in range(len(library.all_libraries()))]
    expected = _expected(case)
    for implementation in found:
        for tensor, (reference, magnitude) in zip(implementation, expected, strict=True):
            allowed = tolerance * max(1.0, magnitude)
            np.testing.assert_allclose(tensor.double().numpy(), reference, rtol=0, atol=allowed)
    for one, other in pairwise(found):
        assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@settings(max_examples=examples(20), deadline=None)
@given(case=cases())
def test_the_number_of_threads_changes_no_bit(case: Case) -> None:
    for number in range(len(library.all_libraries())):
        alone, shared = _computed(case, number, 1), _computed(case, number, 3)
        assert all(torch.equal(*pair) for pair in zip(alone, shared, strict=True))


@pytest.mark.parametrize("dynamic", [False, True])
def test_without_openmp_a_pool_of_threads_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, dynamic: bool) -> None:
    dense = np.random.default_rng(0).random((60, 90)) < 0.4
    case = Case(dense, 70, 4, 32, torch.float32, 1.0, False, 1, dynamic)
    expected = [_computed(case, number, 3) for number in range(len(library.all_libraries()))]
    monkeypatch.setattr(library, "_openmp_team", lambda: None)
    for number, before in enumerate(expected):
        assert all(torch.equal(*pair) for pair in zip(before, _computed(case, number, 3), strict=True))


@pytest.mark.parametrize(("dtype", "least"), [(torch.float32, -86.0), (torch.float64, -700.0)])
def test_weights_are_exponentials_to_two_units_in_the_last_place(dtype: torch.dtype, least: float) -> None:
    # One row, whose maximum and total are given: the gradient of a column's value 0 is its weight.
    count = 40_000
    source = torch.linspace(least, 0, count, dtype=dtype).view(count, 1)
    values, gradient = torch.zeros((count, 1, 1), dtype=dtype), torch.ones((1, 1, 1), dtype=dtype)
    rows = torch.tensor([0, 0, 1, 0], dtype=dtype).view(1, 4, 1)
    # With a slope of 1, scores below 0 stay what they are.
    for chosen in library.all_libraries():
        softmax = CEdgeSoftmax(chosen, _csr(np.ones((1, count), bool)), 1.0, Place())
        weight, of_source, of_target = torch.empty_like(values), torch.empty_like(source), rows[:, 0].clone()
        result = AttentionInputs(weight, of_source, of_target)
        softmax.gradients(AttentionInputs(values, source, rows[:, 0]), SoftmaxGradient(rows, gradient), result)
        exact = np.exp(source.numpy().astype(np.longdouble)).ravel()
        units = np.abs(weight.numpy().ravel() - exact) / np.spacing(exact.astype(weight.numpy().dtype))
        assert units.max() <= 2


@pytest.mark.parametrize("number", range(len(library.all_libraries())))
def test_scores_that_are_not_finite_do_not_pass_silently(number: int) -> None:
    dense = np.ones((3, 5), bool)
    softmax = _implementations(_csr(dense), 1)[number]
    values, source, target = torch.ones((5, 1, 8)), torch.zeros((5, 1)), torch.zeros((3, 1))
    target[1], target[2] = torch.nan, -torch.inf
    # All columns are seen at once, so no weighted sums are kept.
    state, output = softmax_state(torch.empty((0, 1, 8)), 3, 1, Place()), torch.empty((3, 1, 8))
    softmax.accumulate(AttentionInputs(values, source, target), state, output)
    assert torch.equal(output[0], torch.ones((1, 8)))
    assert output[1:].isnan().all()
    # Columns with a score of minus infinity have no weight.
    source[2:] = -torch.inf
    values[2:] = 7
    softmax.accumulate(AttentionInputs(values, source, torch.zeros((3, 1))), state, output)
    assert torch.equal(output, torch.ones((3, 1, 8)))


class NearlyEqual(Case):
    """Numbers that float32 sums of very many of them lose digits of, one after the other."""

    def tensors(self) -> list[Tensor]:
        (rows, columns), heads, dim = self.dense.shape, self.heads, self.dim
        rng = np.random.default_rng(self.seed)
        # Scores of both signs, with larger values for one of them: gradients do not cancel out.
        odd = np.arange(columns) % 2
        scores = np.where(odd, 0.1, -0.2)[:, None]
        values = ((columns, heads, dim), (1 + odd)[:, None, None])
        given: list[tuple[tuple[int, ...], Any]]
        if self.dynamic:
            given = [values, ((heads, dim), 1 / dim), ((rows, heads, dim), 1.0)]
        else:
            given = [values, ((columns, heads), scores), ((rows, heads), 0.1)]
        given.append(((rows, heads, dim), 1.0))
        found = [scale * (1.0009 + 1e-4 * rng.standard_normal(shape)) for shape, scale in given]
        return [torch.from_numpy(array).to(self.dtype) for array in found]


@pytest.mark.parametrize("shape", ["row", "column"])
@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "count", [pytest.param(30_000, id="small"), pytest.param(1_000_000, id="million", marks=pytest.mark.long)]
)
def test_sums_over_a_hub_in_float32_are_those_in_float64_to_5e_6(
    count: int, dynamic: bool, heads: int, shape: str
) -> None:
    dense = np.ones((1, count) if shape == "row" else (count, 2), bool)
    case = NearlyEqual(dense, count // 3 if shape == "row" else 2, heads, 4, torch.float32, 1.0, False, 1, dynamic)
    expected = _expected(case)
    for number in range(min(2, len(library.all_libraries()))):
        for tensor, (reference, magnitude) in zip(_computed(case, number, 1), expected, strict=True):
            np.testing.assert_allclose(tensor.double().numpy(), reference, rtol=0, atol=5e-6 * magnitude)


def test_operands_of_another_dtype_or_layout_are_refused() -> None:
    softmax = edge_softmax(_csr(np.ones((3, 3), bool)), SLOPE, Place())
    values, scores = torch.ones((3, 2, 4)), torch.ones((3, 2))
    state = softmax_state(torch.ones((3, 2, 4)), 3, 2, Place())
    with pytest.raises(ValueError, match=r"attention:"):
        softmax.accumulate(AttentionInputs(values, scores.double(), scores), state)
    with pytest.raises(ValueError, match="attention: values are"):
        softmax.accumulate(AttentionInputs(values.transpose(0, 1), scores, scores), state)


def test_ranges_of_columns_are_as_many_for_any_number_of_threads() -> None:
    indptr = np.arange(100, dtype=np.int64) * 20
    assert Threads(1).balanced_ranges(indptr, 8) == Threads(3).balanced_ranges(indptr, 8)
