"""A task's descriptor states what its class computes, and decides what the data suggest."""

from __future__ import annotations

import pytest
import torch

from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.vertex_objective import VertexObjective
from gnnloom.trainer.tasks.registry import AUTO, TASKS, task_of_data, task_of_run
from support.lone import LoneCommunicator

WIDTH = 3
LABELS = {
    "class": torch.tensor([0, 2, -1, 1]),
    "multilabel": torch.tensor([[1, 0, -1], [0, 0, 1], [-1, -1, -1], [1, 1, 0]], dtype=torch.int8),
    "number": torch.tensor([[0.5, torch.nan, 1.0], [1.0, 2.0, 3.0], [torch.nan] * 3, [0.0, 1.0, 2.0]]),
}


#: Those on pairs need links: `test_pairs.py`.
ON_VERTICES = [name for name, task in TASKS.items() if not task.on_pairs]


@pytest.mark.parametrize("name", ON_VERTICES)
def test_a_descriptor_names_what_the_class_measures_and_predicts(name: str) -> None:
    task = TASKS[name]
    objective: VertexObjective = task.load()(task, WIDTH)
    layout = Layout(ProcessGrid(LoneCommunicator(), {"row": 1}, Place()), torch.arange(4).numpy(), ("row",))
    labels = Labels(LABELS[name], torch.tensor([SPLIT[split] for split in ("train", "valid", "test", "test")]))
    scores = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(0))
    found = objective.metrics(layout, labels)(scores)
    assert list(found) == [metric for figure in task.figures for metric in figure.names]
    predicted = objective.predict(layout, scores)
    assert {each: rows.dim() for each, rows in predicted.items()} == {
        each: len(dims) for each, dims in task.predicts.items()
    }
    # The third row has no label.
    assert objective.known(labels, "test").tolist() == [False, False, False, True]
    assert objective.loss(layout, labels).num_examples == 1


@pytest.mark.parametrize(
    ("arrays", "name"),
    [
        ({"feature", "label", "split"}, "class"),
        ({"feature", "multilabel"}, "multilabel"),
        ({"target", "split"}, "number"),
        # Reading the data says what is missing.
        ({"feature"}, "class"),
    ],
)
def test_the_data_and_the_predictions_suggest_the_task(arrays: set[str], name: str) -> None:
    assert task_of_data(AUTO, arrays, "here").name == name
    assert task_of_run({"model": "gcn"}, arrays).name == name
    assert task_of_run({"task": "number"}, arrays).name == "number"
