"""Edges from ``.npy`` files: one array of pairs of ids."""

from __future__ import annotations

from gnnloom.pipeline.sources.format import WEIGHTS, Format
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges

FORMAT = Format(
    name="npy",
    order=30,
    help="NumPy pairs of ids",
    open_edges=NumpyEdges.open,
    options=(WEIGHTS,),
    suffixes=("npy",),
)
