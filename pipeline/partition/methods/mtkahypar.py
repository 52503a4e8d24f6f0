"""Mt-KaHyPar, the default method."""

from __future__ import annotations

from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.native.native_partitioner import native_partitioner

PARTITIONER = native_partitioner(
    MT_KAHYPAR,
    order=10,
    help_line="Parallel multilevel partitioning in memory (Mt-KaHyPar).",
    models=("hypergraph", "graph", "stochastic"),
)
