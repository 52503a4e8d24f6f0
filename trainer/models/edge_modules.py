"""Reads the signatures of torch modules that take features and edges, as PyG's modules do.

A module for graphs with types takes ``(x_dict, edge_index_dict)``, and further arguments named like the attributes of a
PyG batch, such as ``edge_attr_dict``.

Imports no torch itself: the class that a user names has imported it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import Any, Final

from gnnloom.storage.errors import InputError
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT
from gnnloom.trainer.data.adjacency_scaling import NORMALIZATIONS
from gnnloom.trainer.models.kind import ModelKind

#: Arguments of a constructor that options of a training run set, and these options.
GIVEN: Final[Mapping[str, str]] = {
    "in_channels": "the features of the dataset",
    "hidden_channels": "--hidden",
    "num_layers": "--hidden",
    "out_channels": "the task",
    "dropout": "--dropout",
}
#: The same for a module for graphs with types. Widths are by type and by relation.
GIVEN_TYPES: Final[Mapping[str, str]] = {
    **GIVEN,
    "edge_dim": "the features of the edges",
    "num_nodes_dict": "the graph",
    "metadata": "the graph",
}
#: Optional arguments of ``forward``.
EDGE_WEIGHT: Final = "edge_weight"
#: The same for a module for graphs with types: values by type, or by (source type, name, target type).
BY_TYPE: Final = "_dict"
IDS: Final = "n_id_dict"
TYPED: Final = (
    IDS,
    "edge_attr_dict",
    "edge_weight_dict",
    "edge_label_dict",
    "time_dict",
    "num_sampled_nodes_dict",
    "num_sampled_edges_dict",
)
HOPS: Final = ("num_sampled_nodes_per_hop", "num_sampled_edges_per_hop")

_PLACE = ("gnnloom.trainer.models.networks.edge_model", "EdgeModel")
_TYPED_PLACE = ("gnnloom.trainer.models.networks.typed_model", "TypedModel")
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_WORDS: Final[Mapping[str, Any]] = {"true": True, "True": True, "false": False, "False": False, "None": None}
_NOUNS: Final[Mapping[type, str]] = {bool: "true or false", int: "an integer", float: "a number"}


def edge_module_kind(model: str, found: type[Any]) -> ModelKind:
    """The descriptor of a torch module whose ``forward`` takes features and edges.

    Args:
        model: as named by the user.

    Raises:
        InputError: its ``forward`` takes something else.
    """
    has_types = takes_types(found)
    _check_forward(model, found, has_types=has_types)
    weighs = takes_weights(found) and not has_types
    usual, *others = "none", "symmetric", "mean"
    return ModelKind(
        name=model,
        order=0,
        help=(found.__doc__ or model).strip().partition("\n")[0],
        source=found.__module__,
        # Convolutions normalize by themselves, unless they get edge weights.
        normalizations=(usual, *(name for name in others if name in NORMALIZATIONS)) if weighs else (usual,),
        place=_TYPED_PLACE if has_types else _PLACE,
        # Only row shards tell which rank owns a vertex.
        needs=frozenset({NEIGHBORS, ONE_LAYOUT}),
        takes_weights=weighs,
        on_edges=True,
        takes_types=has_types,
        takes_ids=has_types and IDS in forward_names(found),
        read_options=partial(read_options, found, given_by=GIVEN_TYPES if has_types else GIVEN),
    )


def takes_types(found: type[Any]) -> bool:
    """Whether a module takes batches of a graph with types: the first argument of its ``forward`` is ``x_dict``."""
    return any(name.endswith(BY_TYPE) for name in [*_signature(found.forward)][1:2])


def takes_weights(found: type[Any]) -> bool:
    """Whether a module uses edge weights; PyG's modules also accept edge weights that they ignore, and declare this."""
    return EDGE_WEIGHT in forward_names(found) and bool(getattr(found, "supports_edge_weight", True))


def forward_names(found: type[Any]) -> frozenset[str]:
    """Names of the arguments of ``forward``."""
    return frozenset(name for name, each in _signature(found.forward).items() if each.kind in _NAMED)


def _check_forward(model: str, found: type[Any], *, has_types: bool) -> None:
    known = TYPED if has_types else (EDGE_WEIGHT, *HOPS)
    taken = [each for name, each in _signature(found.forward).items() if name != "self"]
    positional = [each for each in taken if each.kind in _POSITIONAL]
    is_open = any(each.kind == Parameter.VAR_POSITIONAL for each in taken)
    required = [
        each.name
        for each in [*positional[2:], *(each for each in taken if each.kind == Parameter.KEYWORD_ONLY)]
        if each.default is Parameter.empty and each.name not in known
    ]
    if required or (len(positional) < 2 and not is_open):
        shown = ", ".join(str(each).partition(":")[0].partition("=")[0] for each in taken)
        expected = "(x, edge_index) or (x, edge_index, edge_weight)"
        if has_types:
            expected = f"(x_dict, edge_index_dict), optionally with {', '.join(TYPED)}"
        raise InputError(f"model {model}: its forward takes ({shown}), expected {expected}")


def _signature(function: Any) -> Mapping[str, Parameter]:
    return inspect.signature(function).parameters


@dataclass(frozen=True)
class Constructor:
    """The constructor arguments of a class, including arguments that it passes on to its base classes.

    Attributes:
        parameters: by name.
        is_open: it takes arguments of any other name.
    """

    parameters: Mapping[str, Parameter]
    is_open: bool

    @classmethod
    def of(cls, found: type[Any]) -> Constructor:
        parameters: dict[str, Parameter] = {}
        for each in found.__mro__:
            if "__init__" not in vars(each) or each.__module__.startswith("torch.nn.modules"):
                continue
            taken = _signature(vars(each)["__init__"])
            named = {name: parameter for name, parameter in taken.items() if parameter.kind in _NAMED}
            named.pop("self", None)
            parameters = named | parameters
            if not any(parameter.kind == Parameter.VAR_KEYWORD for parameter in taken.values()):
                return cls(parameters, is_open=False)
        return cls(parameters, is_open=bool(parameters))


def read_options(found: type[Any], given: Sequence[str], given_by: Mapping[str, str] = GIVEN) -> dict[str, Any]:
    """Constructor arguments by name, from items ``name=value`` that the user gives.

    A value has the type of the argument's default or annotation; without one, it is a Python literal or else a string.

    Args:
        given_by: arguments that a training run sets, and the source of each.

    Raises:
        InputError: the constructor has no such argument, a training run sets it, or the value has another type.
    """
    constructor, values = Constructor.of(found), dict[str, Any]()
    for item in given:
        name, equals, text = item.partition("=")
        if name in given_by:
            raise InputError(f"model_options {item!r}: {name} comes from {given_by[name]}")
        known = constructor.parameters.get(name)
        if not equals or not name.isidentifier() or (known is None and not constructor.is_open):
            names = ", ".join(each for each in constructor.parameters if each not in given_by) or "none"
            raise InputError(f"model_options {item!r}: expected name=value with the names {names}")
        values[name] = _value(item, text, known)
    return values


def arguments(
    model: str, found: type[Any], given: Mapping[str, Any], own: Mapping[str, Any], dropout: float
) -> dict[str, Any]:
    """Arguments for the constructor of a module.

    Args:
        given: values of :data:`GIVEN`, or of :data:`GIVEN_TYPES`, without ``dropout``; the constructor gets only values
            that it takes.
        own: see :func:`read_options`.
        dropout: probability of dropping a feature.

    Raises:
        InputError: the constructor requires other arguments, or has no dropout.
    """
    parameters = Constructor.of(found).parameters
    if dropout and "dropout" not in parameters:
        raise InputError(f"dropout {dropout}: the constructor of model {model} takes none; set it in the module")
    offered = {**given, "dropout": dropout}
    passed = {name: value for name, value in offered.items() if name in parameters} | dict(own)
    missing = [name for name, each in parameters.items() if each.default is Parameter.empty and name not in passed]
    if missing:
        raise InputError(
            f"model {model}: its constructor needs {', '.join(missing)}; give it with --model-options"
            f" {missing[0]}=VALUE, or use the names {', '.join(offered)}"
        )
    return passed


def _value(item: str, text: str, known: Parameter | None) -> Any:
    if text == "None":
        return None
    kind = None if known is None else _kind(known)
    if kind is str:
        return text
    if kind is bool and text not in _WORDS:
        raise InputError(f"model_options {item!r}: expected {_NOUNS[bool]}")
    value = _literal(text)
    # An integer is a number too, but True is not an integer.
    if kind in (int, float) and (isinstance(value, bool) or not isinstance(value, (int, kind))):
        raise InputError(f"model_options {item!r}: expected {_NOUNS[kind]}")
    return float(value) if kind is float else value


def _kind(known: Parameter) -> type | None:
    """bool, int, float or str, if an argument has such a type."""
    simple = {each.__name__: each for each in (bool, int, float, str)}
    if type(known.default) in simple.values():
        return type(known.default)
    # With postponed annotations, an annotation is a string.
    return simple.get(getattr(known.annotation, "__name__", str(known.annotation)))


def _literal(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
