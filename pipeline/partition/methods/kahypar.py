"""KaHyPar: sequential and slow, sometimes better than Mt-KaHyPar."""

from __future__ import annotations

from gnnloom.pipeline.partition.native.kahypar_program import KAHYPAR
from gnnloom.pipeline.partition.native.native_partitioner import native_partitioner

PARTITIONER = native_partitioner(
    KAHYPAR,
    order=20,
    help_line="Sequential multilevel partitioning in memory (KaHyPar, GPL).",
    models=("hypergraph", "stochastic"),
)
