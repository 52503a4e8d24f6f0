"""``multilabel``: several labels per vertex, each decided separately."""

from __future__ import annotations

from gnnloom.trainer.tasks.task import Figure, Task

TASK = Task(
    name="multilabel",
    order=1,
    help="Several labels per vertex: binary cross-entropy, accuracy and F1",
    array="multilabel",
    place=("gnnloom.trainer.tasks.objectives.multilabel", "Multilabel"),
    width=lambda sizes: sizes.num_classes,
    figures=(
        Figure("accuracy", "accuracy", "labels predicted correctly", is_share=True),
        # Most labels are 0, so accuracy is less informative.
        Figure("f1", "micro F1", is_share=True, judges=True),
        Figure("macro_f1", "macro F1", is_share=True),
    ),
    predicts={"multilabel": ("vertex", "class"), "score": ("vertex", "class")},
    column="class",
    automatic=True,
    refused_weights=lambda own_loss: (
        "a loss of your own over several labels per vertex has to weight them itself" if own_loss else ""
    ),
)
