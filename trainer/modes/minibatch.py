"""``minibatch``: all ranks train on the same batches of random vertices, each on the rows that it owns."""

from __future__ import annotations

from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT
from gnnloom.trainer.modes.batches import AHEAD, BATCH_SIZE
from gnnloom.trainer.modes.kind import ModeKind

MODE = ModeKind(
    name="minibatch",
    order=2,
    help="Batches of random vertices, which all ranks share; each trains on those that it owns",
    source="Demirci, Haldar, Ferhatosmanoglu, PVLDB 16(4), 2022, section 4.3",
    place=("gnnloom.trainer.training.modes.minibatch", "MinibatchMode"),
    needs=frozenset({NEIGHBORS, ONE_LAYOUT}),
    rows_in_memory=True,
    options={"batch_size": BATCH_SIZE, **AHEAD},
)
