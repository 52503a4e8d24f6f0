"""METIS: cuts the graph model, the usual baseline."""

from __future__ import annotations

from gnnloom.pipeline.partition.native.metis import METIS
from gnnloom.pipeline.partition.native.native_partitioner import native_partitioner

PARTITIONER = native_partitioner(
    METIS,
    order=30,
    help_line="Multilevel partitioning by the edge cut, fast (METIS).",
    models=("graph",),
    is_baseline=True,
)
