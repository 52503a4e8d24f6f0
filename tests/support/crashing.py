"""Public operations of a catalog that crash tests interrupt, and the properties that hold after any interruption."""

from __future__ import annotations

import shutil

import numpy as np

from gnnloom.storage import Dataset
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.runs.checkpoint import Checkpoint, checkpoint_epochs, read_checkpoint, write_checkpoint
from gnnloom.storage.runs.run import Run, sole_writer

ROWS = np.arange(50, dtype=np.int32) % 3


def store_partition(dataset: Dataset, seed: int) -> None:
    """Make an artifact of two tasks, as a stage does."""
    with ArtifactWriter.begin(
        dataset.path, "partition", {"parts": 3, "seed": seed, "method": "given"}, {"file": "g"}
    ) as writer:
        if writer.is_complete:
            return
        if "part/0" not in writer.recorded():
            with writer.task("part/0") as output:
                output.add(write_array(writer.path, "part", ROWS + 0 * seed, ("vertex",), chunk_rows=20))
        writer.commit(["part/0"], {"vertex": 50, "part": 3}, {"quality": {}})


def train(dataset: Dataset, epochs: int) -> None:
    """Train a run from its last checkpoint on, to so many epochs."""
    run = Run(dataset.run_path("run"))
    with sole_writer(run):
        done = checkpoint_epochs(run.checkpoints)
        first = done[-1] if done and run.exists else 0
        # The trainer refuses to train for fewer epochs than there are.
        epochs = max(epochs, first)
        run.start({"epochs": epochs}, first, {"file": "g"})
        for epoch in range(first, epochs):
            run.append_metrics({"epoch": epoch, "loss": 1.0 / (epoch + 1)})
            write_checkpoint(run.checkpoints, Checkpoint(epoch + 1, {"w": np.full(4, epoch + 1.0)}, {"step": epoch}))
        aside = run.predictions_aside()
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        record = write_array(aside, "label", np.full(50, epochs, np.int32), ("vertex",))
        run.publish_predictions([record], {"epoch": epochs})
        run.finish({"epochs": epochs, "loss": [1.0 / (epoch + 1) for epoch in range(epochs)]})


def complete_seeds(dataset: Dataset) -> set[int]:
    """Seeds of the complete partitions, each of which is read and compared."""
    found = set()
    for info in dataset.artifacts("partition"):
        if info.state == "complete":
            try:
                rows = Artifact(info.path).array("part").read()
            except GnnloomError:
                # Another process may have removed it in the meantime; nothing is damaged then.
                if not info.path.exists():
                    continue
                raise
            assert np.array_equal(rows, ROWS)
            found.add(int(info.parameters["seed"]))
    return found


def check_run(dataset: Dataset) -> None:
    """The run of a dataset has whole checkpoints and predictions, and its epochs in order."""
    run = Run(dataset.run_path("run"))
    for epoch in checkpoint_epochs(run.checkpoints):
        try:
            weights = read_checkpoint(run.checkpoints, epoch).arrays["w"]
        except (GnnloomError, FileNotFoundError):
            if epoch not in checkpoint_epochs(run.checkpoints):
                continue
            raise
        assert weights.tolist() == [float(epoch)] * 4
    metrics = run.metrics()
    assert [line["epoch"] for line in metrics] == list(range(len(metrics)))
    try:
        label = run.predictions().label()
    except GnnloomError:
        return
    assert len(set(label.tolist())) == 1


def end_well(dataset: Dataset) -> None:
    """Whatever was cut short before, the same operations come to their end, and leave nothing unexplained."""
    store_partition(dataset, 1)
    train(dataset, 2)
    dataset.collect_garbage()
    problems = [finding.problem for finding in dataset.verify() if finding.problem]
    assert not [problem for problem in problems if "not finished" not in problem], problems
