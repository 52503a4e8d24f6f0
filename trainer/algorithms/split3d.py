"""``split3d`` (3D): c layers of a SUMMA grid share the sum over the vertices.

A product of width w on a p x q x c grid sends what SUMMA sends, within each layer, and (c - 1) n w words in
reduce-scatters over the layers.
"""

from __future__ import annotations

from gnnloom.trainer.algorithms.algorithm import Algorithm
from gnnloom.trainer.algorithms.summa import OPTIONS, build, footprint, steps
from gnnloom.trainer.data.open_shards import GRID_SHARDS

ALGORITHM = Algorithm(
    name="split3d",
    order=4,
    help="SUMMA on c layers of a p x q grid (3D); the layers share the work and are summed by a reduce-scatter",
    source="Tripathy, Yelick, Buluc, SC 2020, section IV-D; Azad et al., SIAM J. Sci. Comput. 38(6), 2016",
    axes=("row", "column", "layer"),
    reads=GRID_SHARDS,
    build=build,
    options=OPTIONS,
    footprint=footprint,
    steps=steps,
)
