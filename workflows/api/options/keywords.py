"""Keyword arguments of the API that stand for options of other components, such as a format."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.option import Option
from gnnloom.storage.wording import did_you_mean
from gnnloom.workflows.api.options.python_messages import speaking_python

Function = TypeVar("Function", bound=Callable[..., Any])


class StoredObject(Protocol):
    """An object that a stage returns, such as a graph, a partition, shards, links, samples or vertex data."""

    @property
    def artifact(self) -> Artifact:
        """The artifact, which has the key."""
        ...


#: Argument of a function that needs the key of an artifact.
ArtifactLike = str | StoredObject


@overload
def key_of(artifact: ArtifactLike) -> str: ...
@overload
def key_of(artifact: ArtifactLike | None) -> str | None: ...
def key_of(artifact: ArtifactLike | None) -> str | None:
    """Key of an artifact that is given by its key or as the object that a stage returned."""
    return artifact if artifact is None or isinstance(artifact, str) else artifact.artifact.key


def check_known(function: str, given: Collection[str], known: Collection[str]) -> None:
    """Check that a function has all given options.

    Raises:
        InputError: the function lacks an option; the message names the closest option that it has.
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
    """Options as the commands pass them on: lists as tuples, paths as text, and artifacts by their keys."""
    return {name: _plain(value) for name, value in options.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_plain(each) for each in value)
    artifact = getattr(value, "artifact", None)
    if isinstance(artifact, Artifact):
        return artifact.key
    return str(value) if isinstance(value, Path) else value
