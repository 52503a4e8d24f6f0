"""``replicated`` (1.5D): c copies of every row block share the broadcasts.

A product of width w on P / c blocks of c copies sends (P / c - 1) n w words in broadcasts and 2 (c - 1) n w words in
all-reduces over the copies.
"""

from __future__ import annotations

from gnnloom.trainer.algorithms.algorithm import Algorithm
from gnnloom.trainer.algorithms.broadcast import build, footprint, steps
from gnnloom.trainer.data.open_shards import GRID_SHARDS

ALGORITHM = Algorithm(
    name="replicated",
    order=2,
    help="Row blocks in c copies (1.5D); each copy takes part of the broadcasts, then the copies are summed",
    source="Tripathy, Yelick, Buluc, SC 2020, section IV-B",
    axes=("row", "replica"),
    reads=GRID_SHARDS,
    build=build,
    footprint=footprint,
    steps=steps,
)
