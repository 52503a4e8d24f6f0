"""A rank's session of a run: its share of the graph and the vertex data, its objective and its model."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from gnnloom.storage.meters import peak_memory
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.networks.model import Inputs, Model, build_model
from gnnloom.trainer.modes.epochs.mode import ModeContext
from gnnloom.trainer.modes.epochs.model_inputs import TypedInputs
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.passes.evaluation import Source
from gnnloom.trainer.passes.ranges import SeedsThatFit
from gnnloom.trainer.place.global_generator import Draws, derived_seed, seeded
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.objective import Objective, StepLoss
from gnnloom.trainer.training.share import Share, read_objective, read_share


@dataclass(frozen=True)
class Session:
    """One rank's part of a run: the data that it has read, its model and its objective.

    Attributes:
        objective: the task with the model; training adds the weights of classes and the user's loss.
        load_seconds: wall-clock time of reading the shards.
        load_memory: peak memory of the process while it read them, minus its memory before, in bytes.
    """

    comm: Communicator
    opened: OpenedRun
    share: Share
    model: Model
    objective: Objective[Any]
    load_seconds: float
    load_memory: int

    @classmethod
    def of(
        cls,
        comm: Communicator,
        opened: OpenedRun,
        share: Share,
        objective: Objective[Any],
        load_seconds: float = 0.0,
        load_memory: int = 0,
    ) -> Session:
        """Build the model of a share, and give the objective its part of the model. Communicates nothing.

        Args:
            objective: the task without a model.
        """
        config = opened.config
        model = build_model(config.model.kind, share.operator, share.options, config.model.dropout, config.run.seed)
        return cls(comm, opened, share, model, objective.attached(model, share.operator), load_seconds, load_memory)

    @property
    def config(self) -> TrainConfig:
        return self.opened.config

    @property
    def operator(self) -> Operator:
        return self.share.operator

    @property
    def place(self) -> Place:
        """Place of this rank's tensors."""
        return self.operator.grid.place

    def drawing(self, draws: Draws, epoch: int) -> AbstractContextManager[torch.Generator]:
        """Seed torch's global generator inside a block, for the draws of this rank's rows in an epoch."""
        return seeded(derived_seed(self.config.run.seed, draws, epoch, self.comm.rank))

    def take_inputs(self) -> Inputs:
        """The model's input: features, learned features, or the constant part of the first layer. Collective.

        The session drops the features, so they are freed as soon as nothing else needs them.
        """
        return self.share.inputs.take(self.model)

    def mode_context(
        self, inputs: Inputs, labels: Any, loss: StepLoss, first_epoch: int, measured: torch.Tensor | None = None
    ) -> ModeContext:
        """Context for the mode; for arguments and attributes see :class:`ModeContext`."""
        config = self.config
        return ModeContext(
            options=config.mode.own_options(),
            seed=config.run.seed,
            epochs=range(first_epoch, config.optimization.epochs),
            normalization=config.model.normalization,
            model_name=config.model.name,
            dataset=self.opened.dataset,
            shards=self.opened.shards.shards,
            label_rows=self.share.label_rows,
            objective=self.objective,
            operator=self.operator,
            model=self.model,
            inputs=inputs,
            labels=labels,
            loss=loss,
            given=self.share.inputs,
            counter=self.opened.counter,
            source=self.streamed_source(self.share.inputs.norm, config.run.evaluation_memory),
            measured=measured,
        )

    def streamed_source(self, feature_norm: str, memory: int) -> Source:
        """Source of an evaluation from disk.

        Args:
            feature_norm: how the features are scaled, or ``auto``.
            memory: bytes for this rank; 0 for its share of the machine's free memory.
        """
        opened = self.opened
        return Source(
            comm=self.comm,
            shards=opened.shards.shards,
            dataset=opened.dataset,
            counter=opened.counter,
            normalization=self.config.model.normalization,
            feature_norm=feature_norm,
            num_threads=self.place.threads.num_threads,
            memory=memory,
        )


def open_session(
    comm: Communicator, opened: OpenedRun, num_threads: int, *, streams: bool = False, reads_features: bool = True
) -> Session:
    """Read this rank's shards and build its operator and model. Communicates nothing.

    Args:
        streams: leave the features and the adjacency on disk, for an evaluation from there.
        reads_features: read the input features; without them the session has no inputs.

    Raises:
        InputError: as :func:`~gnnloom.trainer.training.share.read_objective` and
            :func:`~gnnloom.trainer.training.share.read_share`; or the model cannot be built.
    """
    started, config = time.perf_counter(), opened.config
    # Before the first measurement of memory, so that compiled code does not count as memory of the shards.
    config.reads.load_kernels()
    before = peak_memory()
    # By default torch uses all cores in every rank.
    torch.set_num_threads(num_threads)
    place = Place(getattr(torch, config.model.feature_dtype), num_threads)
    objective = read_objective(comm, opened)
    share = read_share(comm, opened, objective.num_outputs, place, streams=streams, reads_features=reads_features)
    # Before the model is built: its parameters are not part of the shards.
    seconds, memory = time.perf_counter() - started, peak_memory() - before
    session = Session.of(comm, opened, share, objective, seconds, memory)
    if config.model.kind.on_edges:
        attach_inference(session.model, opened, share)
    return session


def attach_inference(model: Model, opened: OpenedRun, share: Share, fit: SeedsThatFit | None = None) -> None:
    """Attach to a model on edges the inference that forms its scores on the whole graph. Communicates nothing.

    Args:
        fit: see :class:`gnnloom.trainer.modes.epochs.typed_inference.TypedInference`.
    """
    # Only such models, and modes that sample, load them.
    from gnnloom.trainer.models.networks.edge_model import EdgeModel  # noqa: PLC0415
    from gnnloom.trainer.models.networks.typed_model import TypedModel  # noqa: PLC0415
    from gnnloom.trainer.modes.epochs.typed_inference import TypedInference  # noqa: PLC0415
    from gnnloom.trainer.modes.neighbor import fanouts  # noqa: PLC0415
    from gnnloom.trainer.passes.edge_inference import WholeInference  # noqa: PLC0415

    config, inputs = opened.config, share.inputs
    if isinstance(model, TypedModel) and isinstance(inputs, TypedInputs):
        num_hops = len(fanouts(config.mode.fanout, model.num_layers, on_edges=True))
        model.inference = TypedInference(inputs, share.operator, model, num_hops, fit)
    elif isinstance(model, EdgeModel):
        model.inference = WholeInference(
            dataset=opened.dataset,
            inputs=opened.shards.shards.artifact.inputs,
            operator=share.operator,
            model=model,
            normalization=config.model.normalization,
            # Known once the features are.
            feature_norm=lambda: inputs.norm,
            reads_features=config.mode.reads_batches,
        )
