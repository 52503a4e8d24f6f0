"""``number``: numbers for each vertex, a regression."""

from __future__ import annotations

from gnnloom.trainer.tasks.task import Figure, Task

TASK = Task(
    name="number",
    order=2,
    help="Numbers for each vertex (a regression): mean squared error, RMSE, MAE and R2",
    array="target",
    place=("gnnloom.trainer.tasks.objectives.numbers", "Numbers"),
    width=lambda sizes: sizes.num_targets,
    figures=(Figure("rmse", "RMSE", lower=True), Figure("mae", "MAE", lower=True), Figure("r2", "R2")),
    predicts={"target": ("vertex", "target")},
    column="target",
    automatic=True,
    refused_weights=lambda _: "the labels are numbers to predict, not classes; remove the option",
)
