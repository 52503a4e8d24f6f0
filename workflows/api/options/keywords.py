"""Keyword arguments of the API that are options of something else, such as a format."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option
from gnnloom.storage.wording import did_you_mean
from gnnloom.workflows.api.options.python_messages import speaking_python

Function = TypeVar("Function", bound=Callable[..., Any])


def check_known(function: str, given: Collection[str], known: Collection[str]) -> None:
    """Check that a function has all options that it was given.

    Raises:
        InputError: it does not have one; the message names the closest one that it has.
    """
    for name in given:
        if name not in known:
            raise InputError(f"{function}: no option {name}; {did_you_mean(name, known, 'it has')}")


def split_fields(options: Mapping[str, Any], *kinds: type[Any]) -> list[dict[str, Any]]:
    """Divide options into the fields of each dataclass, in order, and all others."""
    found, others = [], dict(options)
    for kind in kinds:
        names = {field.name for field in dataclasses.fields(kind)} & others.keys()
        found.append({name: others.pop(name) for name in [*others] if name in names})
    return [*found, others]


def with_options(options: Mapping[str, Option]) -> Callable[[Function], Function]:
    """Give a function that takes options as ``**options`` a signature and a docstring that list them.

    Notebooks and ``help`` show both. The messages of its errors name keywords instead of flags.
    """
    lines = [f"    {name}: {option.help} (default: {option.default!r})" for name, option in options.items()]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default)
        for name, option in options.items()
    ]

    def describe(function: Function) -> Function:
        function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Options:", *lines])
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        whole = signature.replace(parameters=[*own, *added])
        setattr(function, "__signature__", whole)  # noqa: B010 - not in its type
        return speaking_python(function, options)

    return describe


def plain_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the commands pass them on: lists as tuples, and paths as text."""
    return {name: _plain(value) for name, value in options.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return str(value) if isinstance(value, Path) else value
