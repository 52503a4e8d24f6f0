"""Ranks on a grid: numbering, spans, and factorizations of the number of ranks."""

from __future__ import annotations

import pytest

from gnnloom.storage.errors import InputError
from gnnloom.trainer.algorithms.algorithm import factorizations, most_square
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.place.place import Place
from support.lone import LoneCommunicator

AXES = {"x": 2, "y": 3, "z": 2}


def grid_of(rank: int) -> ProcessGrid:
    comm = LoneCommunicator()
    comm.rank, comm.size = rank, 12
    return ProcessGrid(comm, AXES, Place())


def test_the_last_axis_varies_fastest() -> None:
    coordinates = [tuple(grid_of(rank).coordinate[axis] for axis in AXES) for rank in range(12)]
    assert coordinates == [(x, y, z) for x in range(2) for y in range(3) for z in range(2)]
    assert [grid_of(rank).index(AXES) for rank in range(12)] == list(range(12))


def test_spans_along_axes_cover_the_vertices_without_overlap() -> None:
    for axes in (("x",), ("y", "x"), ("z", "x", "y"), ()):
        spans = {grid_of(rank).span(17, axes) for rank in range(12)}
        assert sorted(vertex for span in spans for vertex in range(*span)) == list(range(17))
        assert grid_of(0).sizes(17, axes) == [stop - start for start, stop in sorted(spans)]


def test_sizes_along_the_last_axis_are_those_of_the_ranks_that_differ_there() -> None:
    grid = grid_of(7)  # (1, 0, 1)
    others = [{**grid.coordinate, "y": y} for y in range(3)]
    spans = [grid.span(17, ("x", "y"), coordinate) for coordinate in others]
    assert grid.sizes_along_last(17, ("x", "y")) == [stop - start for start, stop in spans]


def test_a_grid_of_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(InputError, match="12 ranks, the job has 1"):
        ProcessGrid(LoneCommunicator(), AXES, Place())


def test_factorizations_are_complete_and_the_most_even_one_is_chosen() -> None:
    assert factorizations(12, 2) == [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]
    assert len(factorizations(12, 3)) == 18
    assert [most_square(number, 3) for number in (1, 7, 8, 12)] == [(1, 1, 1), (7, 1, 1), (2, 2, 2), (3, 2, 2)]
