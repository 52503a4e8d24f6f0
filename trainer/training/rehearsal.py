"""The workspace of a training before it runs: an epoch on tensors without values, one rank at a time.

A rehearsed epoch runs the code of a real one: operator, model, loss and optimizer take and return the memory of the
workspace in the same order. It reads no entry of the shards, computes no product, sends no message and touches no large
tensor, so it takes a fraction of a second, once torch is imported, and some bytes per vertex of a rank.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.catalog import Catalog
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.comm.unconnected import UnconnectedRank
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import ROW_SHARDS, OpenedShards
from gnnloom.trainer.data.unread_shards import unread
from gnnloom.trainer.kernels.dispatch import Unperformed
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.objective import Objective
from gnnloom.trainer.training.build import build_model, build_objective
from gnnloom.trainer.training.clipping import clip_gradients
from gnnloom.trainer.training.modes.full import FullMode
from gnnloom.trainer.training.modes.mode import ModeContext
from gnnloom.trainer.training.optimizer import build_optimizer, sum_gradients, trained_parameters
from gnnloom.trainer.training.requested import model_options
from gnnloom.trainer.training.session import Loaded, Session, build_share
from gnnloom.trainer.training.shard_sizes import RowSizes

#: From the second epoch on, the workspace does not grow.
_EPOCHS = 2
#: Ranks that are rehearsed: of many, those with most rows.
_MOST_RANKS = 4


def workspace_memory(config: TrainConfig) -> int | None:
    """Bytes that the workspace of the rank with the largest one will have. Starts nothing.

    Assumes that all vertices are in the training split and that the entries of a grid's cells are spread evenly. Reads
    manifests and, for row shards, how many rows the ranks exchange.

    Returns:
        None for sampled modes, and for models or algorithms of the user's, which may need the values of their tensors.

    Raises:
        NotFoundError: the dataset or its shards do not exist.
        InputError: the shards do not fit the configuration.
    """
    algorithm = config.chosen_algorithm
    is_known = config.model_kind.work is not None and (algorithm.footprint is not None or algorithm.reads is ROW_SHARDS)
    if config.mode_kind.is_sampled or not is_known:
        return None
    return max(_rehearse(config, rank) for rank in _chosen_ranks(config))


def _chosen_ranks(config: TrainConfig) -> list[int]:
    opened = _open(config, 0)
    if not isinstance(opened.shards, RowShards):
        # Ranges of vertices or columns that do not divide evenly are longer at the end.
        return sorted({0, config.ranks - 1})
    sizes = RowSizes.of(opened.shards, lambda _: 0)
    rows = [rank.own + rank.halo + rank.sent for rank in sizes.ranks]
    return sorted(range(config.ranks), key=lambda rank: -rows[rank])[:_MOST_RANKS]


def _open(config: TrainConfig, rank: int) -> OpenedShards:
    dataset = Catalog(config.catalog).dataset(config.dataset)
    opened: OpenedShards = config.chosen_algorithm.reads.open(dataset, config, rank, config.ranks, ReadCounter())
    return opened


def _rehearse(config: TrainConfig, rank: int) -> int:
    """Bytes of the workspace of one rank after some epochs and an evaluation."""
    place = Place(getattr(torch, config.feature_dtype), rehearses=True)
    # Small tensors are computed, from meaningless values.
    with np.errstate(all="ignore"), Unperformed():  # type: ignore[no-untyped-call]
        _Rehearsal(config, rank, place).run()
    return place.workspace.nbytes


def _any_loss(scores: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG001 - called as a user's loss is
    return scores.sum(1)


class _Rehearsal:
    """What :class:`gnnloom.trainer.training.loop.Training` has of one rank's training, as far as tensors go."""

    def __init__(self, config: TrainConfig, rank: int, place: Place) -> None:
        self.config, self.comm = config, UnconnectedRank(rank, config.ranks)
        opened = unread(_open(config, rank), rank)
        self.session = self._session(opened, place)
        session = self.session
        labels = session.objective.read(session.label_rows, place)
        inputs = session.take_inputs()
        self.optimizer = build_optimizer(session.model, config)
        layout = session.operator.layout(session.model.num_layers)
        loss = session.objective.loss(layout, labels)
        self.mode = FullMode(ModeContext(session, inputs, labels, loss, 0))

    def _session(self, opened: OpenedShards, place: Place) -> Session:
        """As :func:`gnnloom.trainer.training.session.open_session` makes it, with features that are zeros."""
        config, shards, counter = self.config, opened.shards, ReadCounter()
        objective = build_objective(opened, config)
        options = model_options(config, shards.num_features, objective.num_outputs)
        share = build_share(self.comm, config, opened, options, place, counter)
        operator, feature_rows, label_rows = share
        feature = place.from_numpy(feature_rows.read("feature", np.dtype(config.dtype)))
        return Session(
            self.comm,
            config,
            Catalog(config.catalog).dataset(config.dataset),
            shards,
            label_rows,
            self._weighted(objective, place),
            operator,
            build_model(operator, config, options),
            feature,
            counter,
            Loaded(0.0, 0),
        )

    def _weighted(self, objective: Objective, place: Place) -> Objective:
        # What a function of the user's takes is not in the workspace, whatever it computes.
        own = None if self.config.loss == "auto" else _any_loss
        # The values of weights do not matter, but they take memory.
        ones = place.lasting((objective.num_outputs,), torch.float64).fill_(1)
        weights = None if self.config.class_weights == "none" else ones
        return replace(objective, class_weights=weights, own_loss=own)

    def run(self) -> None:
        model = self.session.model
        for epoch in range(_EPOCHS):
            model.train()
            self.mode.train_epoch(epoch, self._update)
        model.eval()
        with torch.no_grad():
            self.mode.scores()

    def _update(self) -> None:
        operator, parameters = self.session.operator, trained_parameters(self.session.model)
        sum_gradients(parameters, operator)
        if self.config.clip_norm:
            clip_gradients(parameters, self.config.clip_norm, operator.grid)
        self.optimizer.step()
