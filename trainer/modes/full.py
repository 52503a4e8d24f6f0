"""``full``: the whole graph in every epoch."""

from __future__ import annotations

from gnnloom.trainer.modes.kind import ModeKind
from gnnloom.trainer.modes.options import INPUTS

MODE = ModeKind(
    name="full",
    order=0,
    help="One step per epoch, with the exact gradient of the whole graph",
    source="Kipf, Welling, ICLR 2017, section 3.2",
    place=("gnnloom.trainer.modes.epochs.mode", "FullMode"),
    is_sampled=False,
    takes_pairs=True,
    learns_features=True,
    options={"inputs": INPUTS},
)
