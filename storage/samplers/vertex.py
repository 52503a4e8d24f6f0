"""``vertex``: uniform vertices; all vertices of an epoch are different."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.storage.samplers.kind import SamplerKind


def _sizes(options: Mapping[str, Any], num_vertices: int, nnz: int) -> tuple[float, float]:
    rows = float(min(options["batch_size"], num_vertices))
    return rows, nnz * (rows / max(1, num_vertices)) ** 2 + rows


SAMPLER = SamplerKind(
    name="vertex",
    order=1,
    help="uniform vertices; all vertices of an epoch are different",
    source="Zeng et al., ICLR 2020, section 3.4, with equal probabilities",
    covers_epoch=True,
    place=("gnnloom.storage.sampling.vertex", "VertexSampler"),
    sizes=_sizes,
)
