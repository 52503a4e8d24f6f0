"""``class``: one class per vertex, by the highest score."""

from __future__ import annotations

from gnnloom.trainer.tasks.task import Figure, Task

TASK = Task(
    name="class",
    order=0,
    help="One class per vertex: cross-entropy, accuracy",
    array="label",
    place=("gnnloom.trainer.tasks.objectives.classes", "Classes"),
    width=lambda sizes: sizes.num_classes,
    figures=(Figure("accuracy", "accuracy", "labels predicted correctly", is_share=True),),
    predicts={"label": ("vertex",), "score": ("vertex", "class")},
    column="class",
    automatic=True,
    couples_columns=True,
    # Any loss of a vertex can be weighted.
    refused_weights=lambda _: "",
)
