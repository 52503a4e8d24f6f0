"""A rank's session of a run: its share of the graph and the vertex data, its objective and its model."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from gnnloom.storage.meters import peak_memory
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.model_config import ModelConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.models.networks.norm import share_batch_norms
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.modes.epochs.mode import ModeContext
from gnnloom.trainer.modes.epochs.model_inputs import TypedInputs
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.operators.p2p import PointToPoint
from gnnloom.trainer.passes.evaluation import Source
from gnnloom.trainer.passes.ranges import SeedsThatFit
from gnnloom.trainer.place.global_generator import Draws, derived_seed, seeded
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.objective import Objective, StepLoss, TaskContext
from gnnloom.trainer.training.share import Share, read_share


@dataclass
class Session(Share):
    """One rank's part of a run: what it has read, its objective and its model.

    Attributes:
        objective: the task; a training adds the weights of classes and the user's loss.
        load_seconds: wall-clock time of reading the shards.
        load_memory: peak memory of the process while it read them, minus its memory before, in bytes.
    """

    comm: Communicator
    opened: OpenedRun
    objective: Objective[Any]
    model: Model = field(init=False)
    load_seconds: float = field(init=False)
    load_memory: int = field(init=False)

    @classmethod
    def read(
        cls, comm: Communicator, opened: OpenedRun, place: Place, *, streams: bool = False, reads_features: bool = True
    ) -> Session:
        """Read a rank's share of a run; the session still lacks its model. Communicates nothing.

        Args:
            streams, reads_features: see :func:`gnnloom.trainer.training.share.read_share`.

        Raises:
            InputError: as ``read_share``; or the shards lack what the task predicts, or the weights of the classes do
                not fit them.
        """
        config, shards = opened.config, opened.shards.shards
        config.model.check_graph(shards)
        objective = _objective(comm, opened)
        outputs = objective.num_outputs
        share = read_share(comm, opened, outputs, place, streams=streams, reads_features=reads_features)
        return cls(**vars(share), comm=comm, opened=opened, objective=objective)

    @property
    def config(self) -> TrainConfig:
        return self.opened.config

    @property
    def place(self) -> Place:
        """Place of this rank's tensors."""
        return self.operator.grid.place

    def drawing(self, draws: Draws, epoch: int) -> AbstractContextManager[torch.Generator]:
        """Seed torch's global generator inside a block, for the draws of this rank's rows in an epoch."""
        return seeded(derived_seed(self.config.run.seed, draws, epoch, self.comm.rank))

    def build(self) -> None:
        """Build the model, and give the objective what it has of it. Communicates nothing."""
        self.model = build_model(self.operator, self.config.model, self.config.run.seed, self.options)
        self.objective = self.objective.attached(self.model, self.operator)

    def take_inputs(self) -> Inputs:
        """The model's input: the features, those to learn, or the constant part of the first layer. Collective.

        The session drops the features, so they are freed as soon as nothing else needs them.
        """
        return self.inputs.take(self.model)

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
            label_rows=self.label_rows,
            objective=self.objective,
            operator=self.operator,
            model=self.model,
            inputs=inputs,
            labels=labels,
            loss=loss,
            given=self.inputs,
            counter=self.opened.counter,
            source=self.streamed_source(self.inputs.norm, config.run.evaluation_memory),
            measured=measured,
        )

    def streamed_source(self, feature_norm: str, memory: int) -> Source:
        """Source of an evaluation from disk.

        Args:
            feature_norm: how the features are scaled, or ``auto``.
            memory: bytes of this rank; 0 for its share of what the machine has left.
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
        InputError: the shards lack features.
    """
    started, config = time.perf_counter(), opened.config
    # Before the first look at the memory, so that compiled code does not count as memory of the shards.
    config.reads.load_kernels()
    before = peak_memory()
    # By default torch uses all cores in every rank.
    torch.set_num_threads(num_threads)
    place = Place(getattr(torch, config.model.feature_dtype), num_threads)
    session = Session.read(comm, opened, place, streams=streams, reads_features=reads_features)
    session.load_seconds, session.load_memory = time.perf_counter() - started, peak_memory() - before
    # After the measurement of loading: the model's own parameters are not part of the shards.
    session.build()
    if config.model.kind.on_edges:
        attach_inference(session)
    return session


def agree_on_shards(session: Session) -> None:
    """Check that the shards that the ranks have read belong together, before rows are exchanged. Collective.

    Raises:
        CollectiveError: the rows that a rank would send differ from the rows that another rank needs.
    """
    if isinstance(session.operator, PointToPoint):
        session.operator.exchanged.agree()


def build_model(operator: Operator, config: ModelConfig, seed: int, options: ModelOptions) -> Model:
    """The configured model, with weights from a seed, the same on every rank. Communicates nothing.

    Modules of torch, such as ``nn.Linear``, are created in the dtype of the run.
    """
    place = operator.grid.place
    dropout = Dropout(config.dropout, seed, place)
    # What a class draws outside `create_parameters`, in an `__init__` of its own.
    with place.creating_modules(), seeded(derived_seed(seed, Draws.CREATION)):
        model: Model = config.kind.load()(operator, options, dropout, seed)
    share_batch_norms(model, lambda: model.operator)
    return model


def _objective(comm: Communicator, opened: OpenedRun) -> Objective[Any]:
    """The objective of a run's task, on this rank.

    Raises:
        InputError: the shards lack what the task predicts, or the weights of the classes do not fit them.
    """
    config, shards, task = opened.config, opened.shards.shards, opened.task()
    objective: Objective[Any] = task.load().of(
        task,
        TaskContext(
            rank=comm.rank,
            num_ranks=comm.size,
            dataset=opened.dataset,
            shards=shards,
            width=config.task.output_width(task, opened.label_sizes),
            links=opened.links(),
            options=config.own_task_options(task),
            loss=config.task.loss,
            seed=config.run.seed,
            steps_on_graph=not config.mode.kind.is_sampled,
            counter=opened.counter,
        ),
    )
    return objective


def attach_inference(session: Session, fit: SeedsThatFit | None = None) -> None:
    """Give a model that takes edges what forms its scores on the whole graph. Communicates nothing.

    Args:
        fit: see :class:`gnnloom.trainer.modes.epochs.typed_inference.TypedInference`.
    """
    # They import numba, which only such models, and modes that sample, load.
    from gnnloom.trainer.models.networks.edge_model import EdgeModel  # noqa: PLC0415
    from gnnloom.trainer.models.networks.typed_model import TypedModel  # noqa: PLC0415
    from gnnloom.trainer.modes.epochs.typed_inference import TypedInference  # noqa: PLC0415
    from gnnloom.trainer.modes.neighbor import fanouts  # noqa: PLC0415
    from gnnloom.trainer.passes.edge_inference import WholeInference  # noqa: PLC0415

    config, model = session.config, session.model
    if isinstance(model, TypedModel) and isinstance(session.inputs, TypedInputs):
        num_hops = len(fanouts(config.mode.fanout, model.num_layers, on_edges=True))
        model.inference = TypedInference(session.inputs, session.operator, model, num_hops, fit)
        return
    if not isinstance(model, EdgeModel):
        return
    model.inference = WholeInference(
        dataset=session.opened.dataset,
        inputs=session.opened.shards.shards.artifact.inputs,
        operator=session.operator,
        model=model,
        normalization=config.model.normalization,
        # Known when the features are.
        feature_norm=lambda: session.inputs.norm,
        reads_features=config.mode.reads_batches,
    )
