"""``replicated`` (1.5D): c copies of every row block share the broadcasts.

A product of width w on P / c blocks of c copies sends (P / c - 1) n w words in broadcasts, (c - 1) n w words in
reduce-scatters over the copies, and (1 - 1 / c) n w words to the copies that broadcast. Between products a rank holds
1 / c of its block's rows.
"""

from __future__ import annotations

from gnnloom.trainer.algorithms.algorithm import Algorithm
from gnnloom.trainer.algorithms.broadcast import build, footprint, steps
from gnnloom.trainer.data.open_shards import GRID_SHARDS

ALGORITHM = Algorithm(
    name="replicated",
    order=2,
    help="Row blocks in c copies (1.5D); each copy takes part of the broadcasts, and the sums are scattered",
    source="Tripathy, Yelick, Buluc, SC 2020, section IV-B",
    axes=("row", "replica"),
    reads=GRID_SHARDS,
    build=build,
    footprint=footprint,
    steps=steps,
)
