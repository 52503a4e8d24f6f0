"""``link``: predicts whether pairs of vertices are edges."""

from __future__ import annotations

from gnnloom.trainer.links.choices import PAIR_LOSSES
from gnnloom.trainer.tasks.options import NEGATIVES, PAIRS
from gnnloom.trainer.tasks.task import Figure, Task

#: The training pairs are edges that the model has seen.
_HELD_OUT = ("val", "test")

TASK = Task(
    name="link",
    order=3,
    help="Which pairs are edges: AUC, average precision, Hits@K and MRR",
    on_pairs=True,
    place=("gnnloom.trainer.tasks.objectives.links", "Links"),
    width=lambda _: 1,
    # Pairs whose negatives are lists have no AUC; then MRR comes first.
    figures=(
        Figure("auc", "AUC", "positives above negatives", is_share=True, judges=True, prefixes=_HELD_OUT),
        Figure("mrr", "MRR", is_share=True, prefixes=_HELD_OUT),
        Figure("ap", "average precision", is_share=True, prefixes=_HELD_OUT),
        Figure("hits_20", "Hits@20", is_share=True, prefixes=_HELD_OUT),
        Figure("hits_50", "Hits@50", is_share=True, prefixes=_HELD_OUT),
        Figure("hits_100", "Hits@100", is_share=True, prefixes=_HELD_OUT),
    ),
    predicts={"vector": ("vertex", "dimension")},
    column="vector",
    losses=tuple(PAIR_LOSSES),
    options={**PAIRS, **NEGATIVES},
)
