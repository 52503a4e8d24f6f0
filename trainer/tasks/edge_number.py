"""``edge-number``: a number for each pair of vertices, a regression."""

from __future__ import annotations

from gnnloom.trainer.tasks.options import PAIRS
from gnnloom.trainer.tasks.task import Figure, Task

TASK = Task(
    name="edge-number",
    order=5,
    help="A number for each pair of vertices (a regression): mean squared error, RMSE, MAE and R2",
    on_pairs=True,
    value="number",
    usual_decoder="mlp",
    place=("gnnloom.trainer.tasks.objectives.edges", "EdgeNumbers"),
    width=lambda sizes: sizes.num_targets,
    figures=(Figure("rmse", "RMSE", lower=True), Figure("mae", "MAE", lower=True), Figure("r2", "R2")),
    predicts={"vector": ("vertex", "dimension")},
    column="vector",
    options=PAIRS,
)
