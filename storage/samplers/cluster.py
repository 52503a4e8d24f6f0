"""``cluster``: whole parts of a partition, several per batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.storage.option import Option
from gnnloom.storage.samplers.kind import SamplerKind, whole_rows


def _sizes(options: Mapping[str, Any], num_vertices: int, nnz: int) -> tuple[float, float]:
    # A partition that a recipe has yet to make: the size of its parts is not known.
    parts = options["cluster_parts"]
    rows = -(-num_vertices * options["parts_per_batch"] // parts) if parts else num_vertices
    return whole_rows(rows, num_vertices, nnz)


SAMPLER = SamplerKind(
    name="cluster",
    order=4,
    help="whole parts of a partition, several per batch",
    source="Chiang et al., KDD 2019, section 3.2",
    covers_epoch=True,
    place=("gnnloom.storage.sampling.cluster", "ClusterSampler"),
    draws_parts=True,
    options={
        "cluster_parts": Option(
            default=0, help="Number of parts of the partition that defines the clusters; 0: the only partition", least=0
        ),
        "cluster_key": Option(default="", help="Key of the partition, if there are several"),
        "parts_per_batch": Option(default=1, help="Clusters per batch", least=1),
    },
    arguments={"cluster_parts": "", "cluster_key": ""},
    sizes=_sizes,
)
