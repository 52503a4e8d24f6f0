"""Vertex data that are random: normal features, uniform classes and a random split."""

from __future__ import annotations

from functools import partial

from gnnloom.pipeline.sources.generators.synthetic import SyntheticVertices
from gnnloom.pipeline.sources.vertex_data.kind import SYNTHETIC_OPTIONS, VertexKind

VERTEX_KIND = VertexKind(
    name="random",
    order=30,
    help="random features and labels",
    open=partial(SyntheticVertices.open, labels="random"),
    options=SYNTHETIC_OPTIONS,
    is_synthetic=True,
)
