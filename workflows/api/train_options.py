"""The options of a training as keyword arguments, derived from its configuration."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gnnloom.trainer.config.algorithm_config import gather_fields, other_options
from gnnloom.trainer.config.fields import option_of
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.api.keywords import check_known, plain_values

Function = TypeVar("Function", bound=Callable[..., Any])

#: Fields of the training that follow from the dataset.
_SETTLED = frozenset({"catalog", "dataset", "algorithm_options"})


def training_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a :class:`TrainConfig` from keyword arguments; a single number stands for a list of one.

    Raises:
        InputError: a training has no such option.
    """
    known = train_options()
    given = plain_values(options)
    check_known("train", given, known)
    lists = {name for name, default in known.items() if isinstance(default, tuple)}
    return gather_fields(
        {name: (value,) if name in lists and isinstance(value, int) else value for name, value in given.items()}
    )


def train_options() -> dict[str, Any]:
    """The options of a training and their defaults, including those of other packages' algorithms."""
    fields = {each.name: each.default for each in dataclasses.fields(TrainConfig) if each.name not in _SETTLED}
    return fields | {name: option.default for name, option in other_options().items()}


def with_train_options(function: Function) -> Function:
    """Give a function that takes the options of a training as ``**options`` a signature and docstring that list them.

    Notebooks and ``help`` show both.
    """
    fields = [field for field in dataclasses.fields(TrainConfig) if field.name not in _SETTLED]
    texts = {field.name: option_of(field).help for field in fields}
    texts |= {name: option.help for name, option in other_options().items()}
    lines = [f"    {name}: {texts[name]} (default: {default!r})" for name, default in train_options().items()]
    function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Options:", *lines])
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in train_options().items()
    ]
    setattr(function, "__signature__", signature.replace(parameters=[*own, *added]))  # noqa: B010 - not in its type
    return function
