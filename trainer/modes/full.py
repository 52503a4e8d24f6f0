"""``full``: the whole graph in every epoch."""

from __future__ import annotations

from gnnloom.trainer.modes.kind import INPUT_GRADIENT, LEARNED, PAIRS, Adjacency, ModeKind
from gnnloom.trainer.modes.options import INPUTS

MODE = ModeKind(
    name="full",
    order=0,
    help="One step per epoch, with the exact gradient of the whole graph",
    source="Kipf, Welling, ICLR 2017, section 3.2",
    place=("gnnloom.trainer.modes.epochs.mode", "FullMode"),
    adjacency=Adjacency.WHOLE,
    offers=frozenset({PAIRS, LEARNED, INPUT_GRADIENT}),
    options={"inputs": INPUTS},
)
