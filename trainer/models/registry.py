"""All models: those of this room, those that installed packages announce, and classes that a user names."""

from __future__ import annotations

from collections.abc import Mapping

import gnnloom.trainer.models
from gnnloom.storage.descriptors import load_class, load_descriptors
from gnnloom.trainer.models.kind import ModelKind

#: Models by name, in the order of choices.
MODELS: Mapping[str, ModelKind] = load_descriptors(gnnloom.trainer.models, "MODEL", "gnnloom.models", ModelKind)


def model_kind(model: str) -> ModelKind:
    """The descriptor of a model, or one made from a class that is named as ``package.module:Class``.

    Raises:
        InputError: there is no such class, or it is not a model.
    """
    if model in MODELS:
        return MODELS[model]
    from gnnloom.trainer.models.networks.model import Model  # noqa: PLC0415 - imports torch

    found, (module, _, name) = load_class("model", model, Model), model.partition(":")
    return ModelKind(
        name=model,
        order=0,
        help=(found.__doc__ or model).strip().partition("\n")[0],
        source=found.__module__,
        normalizations=found.normalizations,
        place=(module, name),
        needs=found.needs,
        takes_weights=found.takes_weights,
        options=found.own_options,
    )
