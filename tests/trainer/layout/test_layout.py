"""Which rows and columns a rank holds, and which of several copies counts."""

from __future__ import annotations

import numpy as np
import torch

from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import PartialParameter, columns_of, held, vertex_piece
from gnnloom.trainer.place.place import Place
from support.lone import LoneCommunicator

AXES = {"row": 2, "column": 3, "copy": 2}
NUM_VERTICES, DIM = 7, 5


def layout_of(rank: int) -> Layout:
    """Rows over ``row``, columns over ``column``, copies along ``copy``."""
    comm = LoneCommunicator()
    comm.rank, comm.size = rank, 12
    grid = ProcessGrid(comm, AXES, Place())
    return Layout(grid, np.arange(*grid.span(NUM_VERTICES, ("row",))), ("row",), ("column",))


def test_the_ranks_that_speak_hold_every_entry_once() -> None:
    layouts = [layout_of(rank) for rank in range(12)]
    count = np.zeros((NUM_VERTICES, DIM), int)
    for layout in layouts:
        if layout.speaks_for_piece(AXES):
            count[layout.vertex, layout.columns(DIM)] += 1
    assert (count == 1).all()
    rows = np.concatenate([layout.vertex for layout in layouts if layout.speaks_for_rows])
    assert sorted(rows.tolist()) == list(range(NUM_VERTICES))
    assert layouts[0].widths(DIM) == [1, 2, 2]


def test_pieces_put_together_are_the_matrix() -> None:
    whole = torch.arange(NUM_VERTICES * DIM, dtype=torch.float64).view(NUM_VERTICES, DIM)
    found = torch.full_like(whole, -1)
    for rank in range(12):
        piece = vertex_piece(layout_of(rank), NUM_VERTICES, DIM)
        parameter = held(whole, piece)
        assert isinstance(parameter, PartialParameter)
        assert parameter.piece is piece
        assert parameter.detach().is_contiguous()
        found[piece.rows, piece.columns] = parameter.detach()
    assert torch.equal(found, whole)
    assert not isinstance(held(whole, None), PartialParameter)


def test_gradients_of_a_vector_that_all_ranks_hold_add_up_to_the_whole_one() -> None:
    vector = torch.arange(float(DIM))
    total = torch.zeros(DIM)
    for rank in range(12):
        parameter = vector.clone().requires_grad_()
        layout = layout_of(rank)
        columns = columns_of(parameter, layout, tuple(AXES))
        assert torch.equal(columns.detach(), vector[layout.columns(DIM)])
        (columns.sum() * len(layout.vertex)).backward()  # type: ignore[no-untyped-call]
        assert parameter.grad is not None
        total += parameter.grad
    assert torch.equal(total, torch.full((DIM,), float(NUM_VERTICES)))
