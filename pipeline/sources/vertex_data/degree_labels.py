"""Vertex data with random features and classes by the degree of the vertex."""

from __future__ import annotations

from functools import partial

from gnnloom.pipeline.sources.generators.synthetic import SyntheticVertices
from gnnloom.pipeline.sources.vertex_data.kind import SYNTHETIC_OPTIONS, VertexKind

VERTEX_KIND = VertexKind(
    name="degree-labels",
    order=40,
    help="random features, classes by the degree of the vertex",
    open=partial(SyntheticVertices.open, labels="degree-labels"),
    options=SYNTHETIC_OPTIONS,
    is_synthetic=True,
)
