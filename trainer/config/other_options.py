"""Options of other packages' algorithms, modes and samplers, which are not fields of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.storage.option import Option
from gnnloom.trainer.config.algorithm_config import other_algorithm_options
from gnnloom.trainer.config.mode_config import other_mode_options


def other_options() -> dict[str, Option]:
    """The options by name."""
    return other_algorithm_options() | other_mode_options()


def gather_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a configuration from the options of a command line.

    Args:
        values: option name to value. Options that are not fields move into the field that holds them as texts, unless
            they are None.
    """
    others = {"algorithm_options": other_algorithm_options(), "mode_options": other_mode_options()}
    fields = {name: value for name, value in values.items() if not any(name in each for each in others.values())}
    for field, options in others.items():
        given = [f"{name}={each.shown(values[name])}" for name, each in options.items() if values.get(name) is not None]
        if given:
            fields[field] = (*fields.get(field, ()), *given)
    return fields
