"""Edges from ``.npz`` archives: several arrays, or a SciPy matrix."""

from __future__ import annotations

from gnnloom.pipeline.sources.format import WEIGHTS, Format
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges

FORMAT = Format(
    name="npz",
    order=40,
    help="NumPy edge_index, or row and col, or a SciPy matrix",
    open_edges=NumpyEdges.open,
    options=(WEIGHTS,),
    suffixes=("npz",),
)
