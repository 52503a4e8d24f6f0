"""Options of commands that are derived from the descriptors of formats, generators and kinds of vertex data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from gnnloom.pipeline.sources.option import Option, SharedOption
from gnnloom.workflows.cli.options import Sizes

Command = TypeVar("Command", bound=Callable[..., Any])


def source_options(
    shared: Mapping[str, SharedOption], *, num_owners: int | None = None
) -> Callable[[Command], Command]:
    """Add options to a command, which gets each as the keyword ``option.flag``.

    Args:
        shared: options by flag, as :func:`~gnnloom.pipeline.sources.option.merge_options` gives them.
        num_owners: number of descriptors that the options come from. The help of an option that only some of them
            have begins with their names. None adds no names.
    """

    def add(command: Command) -> Command:
        # Decorators apply from the bottom up.
        for flag, one in reversed(list(shared.items())):
            is_special = num_owners is not None and len(one.owners) < num_owners
            prefix = f"{', '.join(one.owners)}: " if is_special else ""
            command = _click_option(flag, one.option, prefix + one.option.help)(command)
        return command

    return add


def _click_option(flag: str, option: Option, text: str) -> Callable[[Command], Command]:
    name = _dashed(flag)
    if option.deniable:
        # Neither flag by default: None differs from both True and False.
        return click.option(f"{name}/--no-{name.removeprefix('--')}", flag, default=None, help=text)
    if option.kind is bool:
        return click.option(name, flag, is_flag=True, help=text)
    return click.option(
        name,
        flag,
        type=_value_type(option),
        default="x".join(map(str, option.default)) if option.kind is tuple else option.default,
        show_default=option.default is not None,
        metavar=option.metavar,
        help=text,
    )


def _value_type(option: Option) -> click.ParamType[Any, Any]:
    lowest, highest = option.minimum, option.maximum if option.below is None else option.below
    if option.kind is int:
        return click.IntRange(_whole(lowest), _whole(highest), max_open=option.below is not None)
    if option.kind is float:
        return click.FloatRange(lowest, highest, max_open=option.below is not None)
    return Sizes() if option.kind is tuple else click.STRING


def _whole(limit: float | None) -> int | None:
    return None if limit is None else int(limit)


def given_flags(shared: Mapping[str, SharedOption]) -> dict[str, Any]:
    """Return the values of the options that the user gave, by flag."""
    # The value alone does not say: one that was given may equal the default.
    context = click.get_current_context()
    return {
        flag: context.params[flag]
        for flag in shared
        if context.get_parameter_source(flag) is not ParameterSource.DEFAULT
    }


def option_value(option: Option, given: Mapping[str, Any]) -> Any:
    """Return an option's value for the function that opens the source; its default if the user did not give it."""
    if option.flag not in given:
        return option.default
    return not given[option.flag] if option.off_flag else given[option.flag]


def dashed(flags: Mapping[str, Any]) -> str:
    """Return flags as the user writes them, for messages."""
    return ", ".join(map(_dashed, flags))


def _dashed(flag: str) -> str:
    return f"--{flag.replace('_', '-')}"
