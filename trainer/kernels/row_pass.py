"""Chooses what computes a pass over rows of features: C, or numba where the library was not built."""

from __future__ import annotations

from gnnloom.trainer.kernels.c.library import chosen_library
from gnnloom.trainer.kernels.c.rows import c_rows
from gnnloom.trainer.kernels.contract import RowPass
from gnnloom.trainer.place.place import Place


def run_pass(given: RowPass, place: Place) -> None:
    """Compute the result of a pass; both implementations give the same bits."""
    if place.rehearses:
        return
    library = chosen_library()
    if library is None:
        # Importing numba takes 0.4 s and 60 MB, which the library in C saves.
        from gnnloom.trainer.kernels.numba_rows import numba_rows  # noqa: PLC0415

        kernel = numba_rows(given)
    else:
        kernel = c_rows(library, given)
    # Rows of a dense matrix all take the same time, so the ranges are even.
    place.threads.run(kernel, place.threads.even_ranges(len(given.source)))
