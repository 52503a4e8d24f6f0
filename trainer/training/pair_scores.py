"""Scores pairs of vertices with a trained run, from the vectors of its predictions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from gnnloom.storage.artifacts.links import CLASS, Links
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.memory_map import RecordedArray, map_copy
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.runs.checkpoint import StoredCheckpoint, checkpoint_epochs, read_checkpoint
from gnnloom.storage.runs.predictions import Predictions
from gnnloom.storage.runs.run import Run
from gnnloom.storage.runs.transfer import links_of_run
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.unconnected import UnconnectedRank
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.owners import EndOwners
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.links.all_targets import top_targets
from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.links.pair_rows import PairRows
from gnnloom.trainer.links.scoring import AllTargets, Lists, score_all
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.objective import TASK_MODULE
from gnnloom.trainer.tasks.objectives.pairs import build_decoder
from gnnloom.trainer.tasks.options import AUTO
from gnnloom.trainer.tasks.registry import TASKS
from gnnloom.trainer.tasks.task import Task
from gnnloom.trainer.training.state.checkpoint import module_state

#: Number of pairs whose vectors are in memory at one time.
_PAIRS: Final = 1 << 16


def check_on_pairs(config: TrainConfig, where: Path) -> Task:
    """The task of a run, which predicts pairs.

    Raises:
        InputError: the run does not predict pairs.
    """
    if not config.task.on_pairs:
        able = ", ".join(task.name for task in TASKS.values() if task.on_pairs)
        raise InputError(f"{where}: this run predicts vertices, not pairs; train with --task {able}")
    return TASKS[config.task.name]


@dataclass(frozen=True)
class PairModel:
    """Scores pairs by the vectors that a run has predicted.

    Attributes:
        task: task of the run.
        is_logit: scores belong to a binary cross-entropy, so the logistic function maps them to probabilities.
        links: the pairs that the run was trained on.
        decoder: makes scores of the vectors of both ends.
        vectors: (num_vertices, dim) the stored vectors; of a relation between two types, rows of sources come first.
    """

    task: Task
    is_logit: bool
    links: Links
    decoder: Decoder
    vectors: ArrayReader

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the vectors, and of scores."""
        return self.vectors.dtype

    @classmethod
    def of(cls, dataset: Dataset, run: Run, threads: int = 0, decoder: str | None = None) -> PairModel:
        """Open the predictions of a run.

        Args:
            threads: threads of this process; 0 for one per core that it may use.
            decoder: the run's decoder, to confirm the import of a decoder that is not gnnloom's.

        Raises:
            NotFoundError: the run has no predictions, or no longer has the checkpoint that made them.
            InputError: the run predicts vertices, or its decoder is not confirmed.
        """
        config = TrainConfig.of_run(run, decoder=decoder)
        task, stored = check_on_pairs(config, run.path), run.predictions()
        links = links_of_run(dataset, run)
        vectors = stored.array(task.prediction)
        place = Place(getattr(torch, config.model.feature_dtype), threads or len(os.sched_getaffinity(0)))
        # Every parameter comes from the checkpoint.
        options, width = config.own_task_options(task), vectors.shape[1]
        scorer = build_decoder(task, options, width, task.width(links), 0, place).eval()
        state = scorer.state_dict()
        if state:
            scorer.load_state_dict(module_state(_checkpoint(run, stored), TASK_MODULE))
        loss = task.losses[0] if task.losses and config.task.loss == AUTO else config.task.loss
        return cls(task, loss == "bce", links, scorer, vectors)

    def owners(self, num_ranks: int) -> EndOwners:
        """The rank that has the vector of each vertex, among several ranks."""
        return EndOwners(self.links.first_target, len(self.vectors), num_ranks)

    def check_sources(self, vertices: NDArray[Any]) -> None:
        """Check that numbers are vertices that may be sources; raises as :meth:`check_targets`."""
        relation = self.links.relation
        _check_ends(vertices, self.links.source_vertices, None if relation is None else relation.source)

    def check_targets(self, vertices: NDArray[Any]) -> None:
        """Check that numbers are vertices that may be targets.

        Raises:
            InputError: one is not.
        """
        relation = self.links.relation
        _check_ends(vertices, self.links.target_vertices, None if relation is None else relation.target)


@dataclass(frozen=True)
class PairScorer(PairModel):
    """Scores of any pairs, from the vectors of all vertices; on several ranks, the best targets of any vertices.

    Attributes:
        comm: the ranks; each has the vectors of an even range of the vertices, or of sources and of targets.
        copy: (num_mine, dim) vectors of this rank, in a temporary file.
        vector: the same vectors, mapped. Readers must check the copy afterwards.
    """

    comm: Communicator
    copy: RecordedArray
    vector: NDArray[Any]

    @classmethod
    @contextmanager
    def open(
        cls,
        dataset: Dataset,
        run: Run,
        comm: Communicator | None = None,
        threads: int = 0,
        decoder: str | None = None,
    ) -> Iterator[PairScorer]:
        """Open the predictions of a run; their vectors are copied to a temporary file for as long as the block lasts.

        Communicates nothing.

        Args:
            comm: ranks that all open it; None for this process alone.
            threads, decoder: as for :meth:`PairModel.of`.

        Raises:
            NotFoundError, InputError: as :meth:`PairModel.of`.
        """
        model, comm = PairModel.of(dataset, run, threads, decoder), comm or UnconnectedRank(0, 1)
        spans = model.owners(comm.size).spans(comm.rank)
        with own_folder() as folder:
            copy = map_copy(model.vectors, folder, spans)
            yield cls(model.task, model.is_logit, model.links, model.decoder, model.vectors, comm, copy, copy.values)

    def scores(self, pairs: NDArray[np.int64]) -> NDArray[Any]:
        """Score some pairs, in a process that has all vectors.

        Args:
            pairs: (num_pairs, 2) int64 sources and targets.

        Returns:
            (num_pairs,) scores, or (num_pairs, num_classes) scores before the softmax.

        Raises:
            InputError: the pairs have another shape, or are not vertices.
            DamagedWorkError: the temporary file has changed.
        """
        given = np.asarray(pairs)
        if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
            raise InputError(f"pairs: expected (num_pairs, 2) integers, found {given.dtype} of shape {given.shape}")
        self.check_sources(given[:, 0])
        self.check_targets(given[:, 1])
        # Rows of sources come before rows of targets.
        given = given.astype(np.int64) + np.array([0, self.links.first_target])
        several = self.decoder.num_outputs
        found = np.empty((len(given), several) if self.links.kind == CLASS else len(given), self.vector.dtype)
        for start in range(0, len(given), _PAIRS):
            some = given[start : start + _PAIRS]
            found[start : start + _PAIRS] = self._scores(some)
        self.copy.check(distinct(given))
        return found

    def _scores(self, pairs: NDArray[np.int64]) -> NDArray[Any]:
        # Only the rows of the pairs are read from the mapped file.
        vertices, numbers = np.unique(pairs, return_inverse=True)
        rows: NDArray[Any] = np.ascontiguousarray(self.vector[vertices])
        numbers = numbers.reshape(pairs.shape)
        if not self.task.losses:
            # In the same way as tasks on the values of pairs predict.
            with torch.no_grad():
                source, target = (self.decoder.place.from_numpy(rows[each]) for each in numbers.T)
                several: NDArray[Any] = self.decoder.place.to_numpy(self.decoder(source, target))
            return several if self.links.kind == CLASS else several.reshape(len(pairs))
        grid = ProcessGrid(UnconnectedRank(0, 1), {"row": 1}, self.decoder.place)
        layout = Layout(grid, np.arange(len(rows)), ("row",))
        pair_rows = PairRows(layout, self.vector.shape[1], len(rows), None)
        place = self.decoder.place
        return place.to_numpy(score_all(pair_rows, place.from_numpy(rows), self.decoder, numbers))

    def top(
        self, sources: NDArray[np.int64], count: int, known: Lists
    ) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
        """The best targets of this rank's sources; see :func:`gnnloom.trainer.links.all_targets.top_targets`.

        Collective. Exact. A rank needs memory for its vertices' numbers and for blocks of vectors.

        Raises:
            InputError: the decoder gives several scores.
        """
        check_ranks(self.task)
        rows, (num_vertices, dim) = self.decoder.place.from_numpy(self.vector), self.vectors.shape
        grid = ProcessGrid(self.comm, {"row": self.comm.size}, self.decoder.place)
        owners, first = self.owners(self.comm.size), self.links.first_target
        layout = Layout(grid, owners.of(self.comm.rank), ("row",))
        pair_rows = PairRows(layout, dim, num_vertices, owners if self.comm.size > 1 else None)
        targets = AllTargets(pair_rows, rows, self.decoder, first_target=first)
        vertex, score = top_targets(targets, sources, count, known.moved(first))
        numbers = self.decoder.place.to_numpy(vertex)
        return np.where(numbers < 0, numbers, numbers - first), self.decoder.place.to_numpy(score)


def _check_ends(vertices: NDArray[Any], count: int, of_type: str | None) -> None:
    wrong = vertices[(vertices < 0) | (vertices >= count)]
    if len(wrong):
        where = "of the graph" if of_type is None else f"of type {of_type}"
        raise InputError(f"{int(wrong[0])} is not one of the {counted(count, 'vertex')} {where}")


def check_ranks(task: Task) -> None:
    """Check that the targets of a source can be ranked.

    Raises:
        InputError: the task predicts a class of each pair, which has no order.
    """
    if task.name == "edge-class":
        raise InputError(f"task {task.name}: its pairs have a score for each class, so targets have no order")


def _checkpoint(run: Run, stored: Predictions) -> StoredCheckpoint:
    """The checkpoint that the predictions of a run were made with.

    Raises:
        NotFoundError: the run no longer has this checkpoint.
    """
    epoch = int(stored.facts["epoch"])
    for folder in (run.checkpoints, run.best_checkpoint):
        if epoch in checkpoint_epochs(folder):
            return read_checkpoint(folder, epoch)
    raise NotFoundError(
        f"{run.path}: the checkpoint of epoch {epoch}, which made the stored vectors, is gone; run `gnnloom predict`"
    )
