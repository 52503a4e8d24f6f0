"""Common base of configurations: fields that carry their option, checks by type and value, and flat JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, Option, option_field, options_of, parse_named


def option(
    default: Any = dataclasses.MISSING,
    text: str = "",
    *,
    free: bool = False,
    **checks: Any,
) -> Any:
    """A field of a configuration.

    Args:
        default: none makes the field required.
        text: line for ``--help``.
        free: may change when a run is resumed, as it controls how far and where the run goes, not what it computes.
        checks: choices, bounds and more; see :class:`~gnnloom.storage.option.Option`.
    """
    given = Option(default=default, help=text, required=default is dataclasses.MISSING, **checks)
    return option_field(given, free=free)


class HasOptions(Protocol):
    """A descriptor with options of its own; descriptors that share a name share the option."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Mapping[str, Option]: ...


def names_with_option(kinds: Mapping[str, HasOptions], option: str) -> list[str]:
    """Names of the descriptors that have an option."""
    return [kind.name for kind in kinds.values() if option in kind.options]


def shared_option(kinds: Mapping[str, HasOptions], chosen_by: str, name: str, group: Group) -> Option:
    """An option of some descriptors, as the first of them declares it; its help text ends with their names.

    Args:
        chosen_by: name of the option that chooses a descriptor.
    """
    able = names_with_option(kinds, name)
    declared = kinds[able[0]].options[name]
    text = f"{declared.help} ({', '.join(able)})"
    return replace(declared, name=name, help=text, group=group, needs={chosen_by: able})


@dataclass(frozen=True, kw_only=True)
class Config:
    """A part of a configuration, or a whole one: every field is checked where the object is built (InputError)."""

    def __post_init__(self) -> None:
        for name in options_of(type(self)):
            self.settle(name, self.settled_field(name, getattr(self, name)))

    def settle(self, name: str, value: Any) -> None:
        """Replace the value that was given by the one it stands for; only while the object is built."""
        # Configurations are frozen, which this bypasses for the time of `__post_init__`.
        object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, Any]:
        """All fields, flat; tuples become lists."""
        content = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in content.items()}

    @classmethod
    def settled_field(cls, name: str, value: Any) -> Any:
        """The value that a field would get if the object were built with ``value``, as far as the field itself decides.

        Raises:
            InputError: there is no such field, or the value is not allowed.
        """
        field = cls.__dataclass_fields__.get(name)
        if field is None:
            raise InputError(f"configuration: unknown fields {[name]}, missing fields []")
        # JSON has no tuples.
        given = options_of(cls)[name]
        value = given.current(tuple(value) if isinstance(value, list) else value)
        _check_type(field, value)
        return given.check(value)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Build from JSON; missing fields take their defaults.

        Raises:
            InputError: a field is unknown, missing, or not of its type.
        """
        fields = dataclasses.fields(cls)
        required = {field.name for field in fields if field.default is dataclasses.MISSING}
        unknown, missing = sorted(content.keys() - {field.name for field in fields}), sorted(required - content.keys())
        if unknown or missing:
            raise InputError(f"configuration: unknown fields {unknown}, missing fields {missing}")
        # JSON has no tuples.
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in content.items()})


def named_code(kind: type[Config], content: Mapping[str, Any]) -> dict[str, str]:
    """Option to ``package.module:NAME`` of the code that the fields of a configuration name.

    Args:
        content: fields of a configuration of this kind, which need not be valid.
    """
    named = {name: option for name, option in options_of(kind).items() if option.importable}
    given = {name: (content.get(name), (option.default, *option.choices)) for name, option in named.items()}
    return {name: value for name, (value, own) in given.items() if isinstance(value, str) and value not in own}


def own_values(
    config: Config, component: type[Config], options: Mapping[str, Option], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of a descriptor by name, with defaults filled in.

    Args:
        component: the part of the configuration that has fields for the options of gnnloom's own descriptors.
        given: values of the options that are not among its fields.
    """
    fields = component.__dataclass_fields__
    return {
        name: getattr(config, name) if name in fields else given.get(name, option.default)
        for name, option in options.items()
    }


def other_values(field: str, given: tuple[str, ...], options: Mapping[str, Option]) -> dict[str, Any]:
    """Name to value of the options of other packages that a field holds, each as ``name=value``.

    Raises:
        InputError: an item is wrong.
    """
    return parse_named(field, given, options, "name=value with a name that an installed package declares")


# Keyed by text: with postponed annotations a field's type is the text of its annotation.
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "bool": (bool,),
    "tuple[int, ...]": (tuple,),
    "tuple[int, ...] | None": (tuple, type(None)),
    "tuple[str, ...]": (tuple,),
}
_ITEMS: dict[str, tuple[type, str]] = {
    "tuple[int, ...]": (int, "integers"),
    "tuple[int, ...] | None": (int, "integers"),
    "tuple[str, ...]": (str, "strings"),
}


def _check_type(field: dataclasses.Field[Any], value: Any) -> None:
    expected = _TYPES[str(field.type)]
    # In Python True is an int, but nobody who writes `epochs: true` means 1.
    is_wrong_bool = int in expected and isinstance(value, bool)
    if not isinstance(value, expected) or is_wrong_bool:
        raise InputError(f"{field.name} {value!r}: expected {field.type}")
    if isinstance(value, tuple):
        kind, noun = _ITEMS[str(field.type)]
        if any(type(item) is not kind for item in value):
            raise InputError(f"{field.name} {value!r}: expected {noun}")
