"""Plans a training run; the options are options of `plan` and `simulate`, and keywords of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gnnloom.storage.catalog import Catalog
from gnnloom.storage.option import Group, Option, options_of
from gnnloom.trainer.algorithms.p2p import COVER, ROWS
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.profile import LOCAL, MachineProfile, open_profile

if TYPE_CHECKING:
    from gnnloom.trainer.planner.candidates import Plan

#: Fields of a training run that determine the cost of an epoch, in addition to the algorithm.
MODEL_FIELDS: Final = (
    "model", "mode", "hidden", "heads", "attention", "precision", "norm", "residual", "dropout", "product_order",
    "train_features", "embed", "permutation",
)  # fmt: skip
#: Further fields that determine the cost if pairs of vertices are predicted.
PAIR_FIELDS: Final = (
    "task", "links", "output_dim", "link_batch", "exclude_targets", "negatives", "negative_sampler",
)  # fmt: skip
#: Precisions that a plan compares unless one is given.
PRECISIONS: Final = ("float32", "bf16")
#: Options of the model that a plan is for.
MODEL_OPTIONS: Final = tuple(options_of(TrainConfig)[name] for name in MODEL_FIELDS)
#: Options of the task, if pairs of vertices are predicted.
PAIR_OPTIONS: Final = tuple(options_of(TrainConfig)[name] for name in PAIR_FIELDS)
#: Sizes of a graph that is not stored.
SIZE_OPTIONS: Final = (
    Option("vertices", int, "Number of vertices, for a graph that is not stored.", least=1, group=Group.GRAPH),
    Option(
        "edges",
        int,
        "Number of nonzeros of the adjacency: both directions of every edge, and self loops.",
        least=1,
        group=Group.GRAPH,
    ),
    Option("features", int, "Number of input features.", 128, least=1, group=Group.GRAPH),
    Option("classes", int, "Number of classes.", 32, least=1, group=Group.GRAPH),
    Option(
        "training_share",
        float,
        "Fraction of the vertices that are training vertices with a label.",
        0.5,
        above=0,
        most=1,
        group=Group.GRAPH,
    ),
)
#: Options of the machine that a plan is for.
MACHINE_OPTIONS: Final = (
    Option(
        "memory_per_rank",
        int,
        "Memory limit per rank, such as 16G.",
        group=Group.EXECUTION,
        is_common=True,
        is_size=True,
        default_text="the profile's",
    ),
    Option(
        "profile",
        str,
        "Profile of the machine: one that `gnnloom calibrate` stored, summit, perlmutter or frontier (published"
        " figures), generic (a small machine), or a JSON file.",
        LOCAL,
        group=Group.EXECUTION,
        is_common=True,
    ),
)


def plan_options() -> dict[str, Option]:
    """The options of a plan by name."""
    return {option.name: option for option in (*MODEL_OPTIONS, *PAIR_OPTIONS)}


def planned(
    config: TrainConfig, graph: str | None, profile: str, memory: int, *, is_open: bool
) -> tuple[MachineProfile, list[Plan]]:
    """The profile of a machine, and plans of a training run on this machine, best first.

    Args:
        graph: key of the graph; None for the only one.
        memory: memory limit per rank, in bytes; 0 for the limit in the profile.
        is_open: compare precisions, in place of the configured one.
    """
    from gnnloom.trainer.planner.candidates import make_plans
    from gnnloom.trainer.planner.stored import situation_of

    catalog = Catalog(config.data.catalog)
    machine = open_profile(catalog.root, profile)
    situation = situation_of(catalog.dataset(config.data.dataset), graph, config=config)
    precisions = PRECISIONS if is_open else (config.model.precision,)
    exchanges = (ROWS, COVER)
    return machine, make_plans(config, situation, machine, memory, precisions=precisions, exchanges=exchanges)
