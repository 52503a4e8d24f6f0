"""Finds all models: gnnloom's, models of other installed packages, and classes that a user names."""

from __future__ import annotations

from collections.abc import Mapping

import gnnloom.trainer.models
from gnnloom.storage.descriptors import load_class, load_descriptors, load_named
from gnnloom.storage.errors import InputError
from gnnloom.trainer.models.edge_modules import edge_module_kind
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
    from torch import nn  # noqa: PLC0415 - takes long

    from gnnloom.trainer.models.networks.model import Model  # noqa: PLC0415 - imports torch

    named = _load(model)
    if isinstance(named, type) and issubclass(named, nn.Module) and not issubclass(named, Model):
        return edge_module_kind(model, named)
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
        recomputes=found.recomputes,
        is_rowwise=found.is_rowwise,
        options=found.own_options,
    )


def _load(model: str) -> object:
    """Import the object that a user names.

    Raises:
        InputError: see :func:`gnnloom.storage.descriptors.load_named`.
    """
    try:
        return load_named("model", model)
    except InputError as error:
        if "No module named 'torch_geometric'" in str(error):
            raise InputError(f"{error}; install PyG with pip install 'gnnloom[interop]'") from error
        raise
