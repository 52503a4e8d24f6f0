"""KaMinPar, which starts most partitions of ``--quality``."""

from __future__ import annotations

from gnnloom.pipeline.partition.native.ka_min_par import KAMINPAR
from gnnloom.pipeline.partition.native.native_partitioner import native_partitioner

PARTITIONER = native_partitioner(
    KAMINPAR,
    order=35,
    help_line="Multilevel partitioning by the edge cut, faster and for larger graphs (KaMinPar).",
    models=("graph",),
    is_baseline=True,
)
