"""Options that are not fields of the configuration, given as ``name=value``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option


def parse_named(
    field: str, given: tuple[str, ...], options: Mapping[str, Option], else_expected: str
) -> dict[str, Any]:
    """Name to checked value.

    Args:
        field: name of the field that holds the texts, for messages.
        options: the options that are allowed.
        else_expected: what to expect, for the message if no option is allowed.

    Raises:
        InputError: an item is not ``name=value``, there is no such option, or its value is not allowed.
    """
    found = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or name not in options:
            known = f"name=value with the names {', '.join(options)}" if options else else_expected
            raise InputError(f"{field} {item!r}: expected {known}")
        found[name] = replace(options[name], name=name).parse(text)
    return found
