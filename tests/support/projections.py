"""The parts of the projected memory of a training run."""

from __future__ import annotations

from gnnloom.trainer.training.rehearsal.projection import TrainProjection


def parts_of(found: TrainProjection) -> tuple[int, ...]:
    """The parts of the memory of the busiest rank, besides the process."""
    return found.adjacency_memory, found.feature_memory, found.workspace_memory, found.batch_memory
