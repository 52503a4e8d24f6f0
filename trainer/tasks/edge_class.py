"""``edge-class``: one class per pair of vertices, by the highest score."""

from __future__ import annotations

from gnnloom.trainer.tasks.options import PAIRS
from gnnloom.trainer.tasks.task import Figure, Task

TASK = Task(
    name="edge-class",
    order=4,
    help="One class per pair of vertices: cross-entropy, accuracy",
    on_pairs=True,
    value="class",
    usual_decoder="mlp",
    place=("gnnloom.trainer.tasks.objectives.edges", "EdgeClasses"),
    width=lambda sizes: sizes.num_classes,
    figures=(Figure("accuracy", "accuracy", "labels predicted correctly", is_share=True),),
    predicts={"vector": ("vertex", "dimension")},
    column="vector",
    options=PAIRS,
)
