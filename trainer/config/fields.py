"""Common base of configurations: options in fields or in parts, checks by type and value, and JSON without parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, Option, option_field, option_fields, options_of, parse_named


def option(
    default: Any = dataclasses.MISSING,
    text: str = "",
    *,
    free: bool = False,
    **checks: Any,
) -> Any:
    """A field of a configuration.

    Args:
        default: default value; without one, the field is required.
        text: line in ``--help``.
        free: may change when a run is resumed, because it affects how long and where the run goes, not its computation.
        checks: choices, bounds and more; see :class:`~gnnloom.storage.option.Option`.
    """
    given = Option(default=default, help=text, required=default is dataclasses.MISSING, **checks)
    return option_field(given, free=free)


class HasOptions(Protocol):
    """A descriptor with its own options; descriptors that share a name share the option."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Mapping[str, Option]: ...


def names_with_option(kinds: Mapping[str, HasOptions], option: str) -> list[str]:
    """Names of the descriptors that have an option."""
    return [kind.name for kind in kinds.values() if option in kind.options]


def check_owner(name: str, kinds: Mapping[str, HasOptions], what: str, chosen: str) -> None:
    """Check that an option of some descriptors belongs to the chosen descriptor.

    Args:
        what: kind of the descriptors, for the message.

    Raises:
        InputError: only other descriptors have the option.
    """
    able = names_with_option(kinds, name)
    if able and chosen not in able:
        raise InputError(f"{name}: {what} {chosen} has no such option, only {', '.join(able)}")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A configuration: of one component, or composed of such parts. Checked when the object is built (InputError)."""

    def __post_init__(self) -> None:
        # Parts have settled and checked their own fields.
        for field in dataclasses.fields(self):
            if "option" in field.metadata:
                name = field.metadata["option"].name or field.name
                self.settle(field.name, self.settled_option(name, getattr(self, field.name)))

    def settle(self, field: str, value: Any) -> None:
        """Replace a given value by its meaning, as for ``auto``; only while the object is built."""
        # Configurations are frozen; this bypasses that during `__post_init__`.
        object.__setattr__(self, field, value)

    @classmethod
    def of(cls, /, **options: Any) -> Self:
        """Build a configuration from options by name, each for its part; other options take their defaults.

        Args:
            options: Python values, or values from JSON, in which lists stand for tuples.

        Raises:
            InputError: an option is unknown, missing, or has a value that is not allowed.
        """
        known = option_fields(cls)
        required = {name for name, each in known.items() if each.is_required}
        unknown, missing = sorted(options.keys() - known.keys()), sorted(required - options.keys())
        if unknown or missing:
            raise InputError(f"configuration: unknown fields {unknown}, missing fields {missing}")
        values = dict[str, Any]()
        for field in dataclasses.fields(cls):
            part, name = field.metadata.get("part"), field.name
            if part is not None:
                values[name] = part.of(**{each: options[each] for each in options_of(part) if each in options})
            elif (option := field.metadata["option"].name or name) in options:
                values[name] = options[option]
        return cls(**values)

    def with_options(self, **options: Any) -> Self:
        """A copy of this configuration with other values of some options."""
        return self.of(**self.values() | options)

    def value(self, name: str) -> Any:
        """The value of an option."""
        return option_fields(type(self))[name].value(self)

    def values(self) -> dict[str, Any]:
        """All options of all parts by name."""
        return {name: each.value(self) for name, each in option_fields(type(self)).items()}

    def changed(self) -> list[str]:
        """Names of the options that differ from their defaults."""
        fields = option_fields(type(self))
        return [name for name, each in fields.items() if each.value(self) != each.option.default]

    def to_json(self) -> dict[str, Any]:
        """All options by name; tuples become lists."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self.values().items()}

    @classmethod
    def settled_option(cls, name: str, value: Any) -> Any:
        """The value that an option would get if the object were built with ``value``, as far as this option decides it.

        Raises:
            InputError: there is no such option, or the value is not allowed.
        """
        found = option_fields(cls).get(name)
        if found is None:
            raise InputError(f"configuration: unknown fields {[name]}, missing fields []")
        # JSON has no tuples.
        value = found.option.current(tuple(value) if isinstance(value, list) else value)
        _check_type(name, str(found.field.type), value)
        return found.option.check(value)


def deciding_options(kind: type[Config]) -> list[str]:
    """Names of the options that must not change when a run is resumed."""
    return [name for name, each in option_fields(kind).items() if not each.field.metadata["free"]]


def named_code(kind: type[Config], content: Mapping[str, Any]) -> dict[str, str]:
    """Option to ``package.module:NAME`` of the code that a configuration names.

    Args:
        content: options of a configuration of this kind, which need not be valid.
    """
    named = {name: option for name, option in options_of(kind).items() if option.importable}
    given = {name: (content.get(name), (option.default, *option.choices)) for name, option in named.items()}
    return {name: value for name, (value, own) in given.items() if isinstance(value, str) and value not in own}


def own_values(config: Config, options: Mapping[str, Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a descriptor by name, with defaults filled in.

    Args:
        config: the component that has fields for the options of gnnloom's own descriptors.
        given: values of the options that are not among its fields.
    """
    fields = option_fields(type(config))
    return {
        name: fields[name].value(config) if name in fields else given.get(name, option.default)
        for name, option in options.items()
    }


@dataclass(frozen=True)
class DescriptorOptions:
    """The own options of all descriptors of one kind, such as modes, in the component that chooses a descriptor.

    The component has a field for each option of gnnloom's own descriptors. Options of other packages are items
    ``name=value`` of one more field, such as ``mode_options``.

    Attributes:
        kinds: the descriptors by name.
        chosen_by: name of the option that chooses a descriptor, such as ``mode``.
        further: descriptors that may have the options as well, by the option that chooses one.
    """

    kinds: Mapping[str, HasOptions]
    chosen_by: str
    group: Group
    further: Mapping[str, Mapping[str, HasOptions]] = dataclasses.field(default_factory=dict)

    def option(self, name: str) -> Option:
        """An option as its first descriptor declares it; the help text ends with the names of its descriptors."""
        able = names_with_option(self.kinds, name)
        declared = self.kinds[able[0]].options[name]
        owners = {each: names_with_option(kinds, name) for each, kinds in self.further.items()}
        needs = {self.chosen_by: able} | {each: names for each, names in owners.items() if names}
        text = f"{declared.help} ({', '.join(able)})"
        return replace(declared, name=name, help=text, group=self.group, needs=needs)

    def field(self, name: str, *, free: bool = False) -> Any:
        """The field of an option; for ``free`` see :func:`option`."""
        return option_field(self.option(name), free=free)

    def others(self, component: type[Config]) -> dict[str, Option]:
        """The options by name for which a component has no field."""
        names = [name for kind in self.kinds.values() for name in kind.options]
        return {name: self.option(name) for name in names if name not in option_fields(component)}

    def other_values(self, component: Config) -> dict[str, Any]:
        """Name to value of the options for which a component has no field.

        Raises:
            InputError: an item is wrong.
        """
        field, options = f"{self.chosen_by}_options", self.others(type(component))
        expected = "name=value with a name that an installed package declares"
        return parse_named(field, component.value(field), options, expected)

    def values(self, component: Config, options: Mapping[str, Option]) -> dict[str, Any]:
        """The options of a descriptor by name, with defaults filled in."""
        return own_values(component, options, self.other_values(component))


# Keyed by string: with postponed annotations, a field's type is the string of its annotation.
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "bool | None": (bool, type(None)),
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


def _check_type(name: str, annotation: str, value: Any) -> None:
    expected = _TYPES[annotation]
    # In Python True is an int, but `epochs: true` does not mean 1.
    is_wrong_bool = int in expected and isinstance(value, bool)
    if not isinstance(value, expected) or is_wrong_bool:
        raise InputError(f"{name} {value!r}: expected {annotation}")
    if isinstance(value, tuple):
        kind, noun = _ITEMS[annotation]
        if any(type(item) is not kind for item in value):
            raise InputError(f"{name} {value!r}: expected {noun}")
