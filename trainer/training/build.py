"""Builds what a configuration asks for: the operator of its algorithm, its model, and what its task computes."""

from __future__ import annotations

from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.algorithms.algorithm import OperatorContext
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import OpenedShards
from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.networks.model import Model
from gnnloom.trainer.networks.options import ModelOptions
from gnnloom.trainer.networks.whole_batch_norm import share_batch_norms
from gnnloom.trainer.operators.layer_plan import LayerPlan
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.place.global_generator import Draws, derived_seed, seeded
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.objective import Objective
from gnnloom.trainer.tasks.registry import task_of_data


def build_operator(
    comm: Communicator,
    shards: OpenedShards,
    config: TrainConfig,
    plan: LayerPlan,
    place: Place,
    counter: ReadCounter,
) -> Operator:
    """The operator of the configured algorithm. Reads this rank's adjacency and communicates nothing."""
    algorithm = config.chosen_algorithm
    context = OperatorContext(
        comm=comm,
        axes=algorithm.settled_grid(config.grid, comm.size),
        shards=shards,
        normalization=config.normalization,
        place=place,
        plan=plan,
        # Sampled training differentiates the products with its batches only.
        differentiates=config.model_kind.load().multiplies and not config.mode_kind.is_sampled,
        counter=counter,
        options=config.own_options(),
    )
    return algorithm.build(context)


def build_objective(shards: OpenedShards, config: TrainConfig) -> Objective:
    """The objective of the configured task, or of that which the vertex data suggest. Communicates nothing.

    Raises:
        InputError: the shards lack what the task predicts.
    """
    # Any rows say which arrays the shards have.
    task = task_of_data(config.task, shards.vertex_rows("rows", (0, 0)), shards.shards.artifact.path)
    found: Objective = task.load()(task, task.width(shards.shards))
    return found


def build_model(operator: Operator, config: TrainConfig, options: ModelOptions) -> Model:
    """The configured model, with weights from ``config.seed``, the same on every rank. Communicates nothing.

    Modules of torch, such as ``nn.Linear``, are created in the dtype of the run.
    """
    place = operator.grid.place
    dropout = Dropout(config.dropout, config.seed, place)
    # What a class draws outside `create_parameters`, in an `__init__` of its own.
    with place.creating_modules(), seeded(derived_seed(config.seed, Draws.CREATION)):
        model = config.model_kind.load()(operator, options, dropout, config.seed)
    share_batch_norms(model, lambda: model.operator)
    return model
