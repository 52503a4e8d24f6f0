"""The workspace: memory goes from one tensor to the next, and never belongs to two at a time."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnloom.trainer.kernels.dispatch import give_up
from gnnloom.trainer.place.workspace import ALIGNMENT, SMALL, Workspace

#: Floats of the smallest tensor that is in the workspace.
COUNT = SMALL // 4


def test_a_tensor_gets_the_memory_of_one_that_is_gone() -> None:
    workspace = Workspace()
    address = workspace.empty((COUNT,), torch.float32).data_ptr()
    assert workspace.empty((4, COUNT // 4), torch.float32).data_ptr() == address
    assert workspace.nbytes == SMALL


def test_a_view_keeps_the_memory() -> None:
    workspace = Workspace()
    row = workspace.empty((2, COUNT), torch.float32).fill_(7)[1]
    workspace.empty((2, COUNT), torch.float32).zero_()
    assert bool((row == 7).all())


def test_the_backward_pass_keeps_the_memory_that_it_reads() -> None:
    workspace = Workspace()
    factor = torch.ones(1, requires_grad=True)
    result = factor * workspace.empty((COUNT,), torch.float32).fill_(3)
    workspace.empty((COUNT,), torch.float32).zero_()
    result.sum().backward()  # type: ignore[no-untyped-call]
    assert factor.grad is not None
    assert float(factor.grad) == 3 * COUNT


def test_a_tensor_outlives_its_workspace() -> None:
    tensor = Workspace().empty((COUNT,), torch.float64).fill_(5)
    assert bool((tensor == 5).all())


@given(st.lists(st.tuples(st.integers(0, 3 * COUNT), st.booleans()), max_size=40))
def test_tensors_that_exist_share_no_memory(steps: list[tuple[int, bool]]) -> None:
    workspace, existing, largest = Workspace(), list[torch.Tensor](), 0
    for number, (count, drops) in enumerate(steps):
        if drops and existing:
            existing.pop(count % len(existing))
        tensor = workspace.empty((count,), torch.float32).fill_(number)
        assert tensor.is_contiguous()
        assert tensor.nbytes < SMALL or tensor.data_ptr() % ALIGNMENT == 0
        existing.append(tensor)
        largest = max(largest, sum(each.nbytes for each in existing if each.nbytes >= SMALL))
        # Every tensor still has the one number that it was filled with.
        assert all(len(each) == 0 or bool((each == each[0]).all()) for each in existing)
    assert workspace.nbytes >= largest
    existing.clear()
    tensor, grown = torch.empty(0), workspace.nbytes
    # All of it is free again, in one piece.
    assert workspace.holds(workspace.empty((max(grown // 4, COUNT),), torch.float32))
    assert workspace.nbytes == max(grown, SMALL)


def test_a_matrix_that_is_given_up_is_empty_and_its_memory_reused_unless_it_is_shared() -> None:
    workspace = Workspace()
    spent, kept = (workspace.empty((SMALL,), torch.float32).zero_() for _ in range(2))
    address, view = spent.data_ptr(), kept.view(2, -1)
    for matrix in (spent, kept):
        give_up(matrix)
        assert matrix.numel() == 0
    assert workspace.empty((SMALL,), torch.float32).data_ptr() == address
    assert workspace.empty((SMALL,), torch.float32).data_ptr() != view.data_ptr()
    assert not view.any()
