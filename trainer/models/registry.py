"""The models by name: what the configuration must know of each one, without loading torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT

if TYPE_CHECKING:
    from gnnloom.trainer.models.model import Model


@dataclass(frozen=True, kw_only=True)
class ModelKind:
    """A model that can be chosen.

    Attributes:
        help: one line of help text.
        source: the paper.
        normalizations: normalizations of the adjacency that the model is defined for; the usual one comes first.
        load: imports the class.
        needs: capabilities that an algorithm must have to run the model.
        takes_weights: defined for weighted edges.
        options: fields of the configuration that only this model, or a few models, read.
    """

    help: str
    source: str
    normalizations: tuple[str, ...]
    load: Callable[[], type[Model]]
    needs: frozenset[str] = frozenset()
    takes_weights: bool = False
    options: tuple[str, ...] = ()


def _gcn() -> type[Model]:
    from gnnloom.trainer.models.gcn import GCN  # noqa: PLC0415 - imports torch

    return GCN


def _sage() -> type[Model]:
    from gnnloom.trainer.models.sage import GraphSAGE  # noqa: PLC0415 - imports torch

    return GraphSAGE


def _gin() -> type[Model]:
    from gnnloom.trainer.models.gin import GIN  # noqa: PLC0415 - imports torch

    return GIN


def _gat() -> type[Model]:
    from gnnloom.trainer.models.gat import GAT  # noqa: PLC0415 - imports torch

    return GAT


MODELS: Mapping[str, ModelKind] = {
    "gcn": ModelKind(
        help="Graph convolutional network",
        source="Kipf, Welling, ICLR 2017",
        normalizations=("symmetric", "mean", "none"),
        load=_gcn,
        takes_weights=True,
    ),
    "sage": ModelKind(
        help="GraphSAGE with the mean aggregator",
        source="Hamilton, Ying, Leskovec, NeurIPS 2017",
        normalizations=("mean",),
        load=_sage,
    ),
    "gin": ModelKind(
        help="Graph isomorphism network",
        source="Xu, Hu, Leskovec, Jegelka, ICLR 2019",
        normalizations=("none",),
        load=_gin,
        needs=frozenset({ONE_LAYOUT}),
    ),
    "gat": ModelKind(
        help="Graph attention network",
        source="Velickovic et al., ICLR 2018",
        normalizations=("none",),
        load=_gat,
        needs=frozenset({NEIGHBORS, ONE_LAYOUT}),
        options=("heads", "negative_slope"),
    ),
}
