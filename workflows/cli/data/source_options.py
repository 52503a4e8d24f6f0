"""Options of commands that come from the descriptors of formats, generators and kinds of vertex data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import click
from click.core import ParameterSource

from gnnloom.pipeline.sources.format import merge_options
from gnnloom.storage.option import Group, Option


class _Source(Protocol):
    """A descriptor with options."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> tuple[Option, ...]: ...


def options_by_flag(
    sources: Mapping[str, _Source], chooser: str, group: Group, *, names_owners: bool = True
) -> dict[str, Option]:
    """The options of all descriptors of a kind, by flag.

    Args:
        chooser: the command's parameter that chooses between the descriptors.
        group: heading in help.
        names_owners: the help of an option that only some descriptors have begins with their names.
    """
    merged = merge_options({name: source.options for name, source in sources.items()}, lambda option: option.flag)
    found = {}
    for flag, one in merged.items():
        is_special = len(one.owners) < len(sources)
        prefix = f"{', '.join(one.owners)}: " if is_special and names_owners else ""
        needs = {chooser: one.owners} if is_special else {}
        text, kind = prefix + one.option.help, one.option.value_type
        found[flag] = replace(one.option, kind=kind, help=text, group=group, needs=needs)
    return found


def given_flags(options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the values of the options that the user gave, by flag."""
    # The value alone does not show it: a given value may equal the default.
    context = click.get_current_context()
    return {
        flag: context.params[flag]
        for flag in options
        if context.get_parameter_source(flag) is not ParameterSource.DEFAULT
    }


def option_value(option: Option, given: Mapping[str, Any]) -> Any:
    """Return an option's value for the function that opens the source; its default if the user did not give it."""
    if option.flag not in given:
        return option.default
    return not given[option.flag] if option.flag_name else given[option.flag]


def given_values(options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the values of the options that the user gave, by name, for the function that opens the source."""
    given = given_flags(options)
    return {options[flag].name: option_value(options[flag], given) for flag in given}


def dashed(flags: Mapping[str, Any]) -> str:
    """Return flags as the user writes them, for messages."""
    return ", ".join(f"--{flag.replace('_', '-')}" for flag in flags)
