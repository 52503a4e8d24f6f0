"""The options of samples on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, Final

from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import artifact_key
from gnnloom.storage.format.schema import FORMAT_VERSION, TYPED_VERSION
from gnnloom.storage.option import Group, Option, check_options, option, option_field
from gnnloom.storage.sampling.layers.options import (
    FANOUT_TOTAL,
    FANOUTS,
    NEIGHBOR_OPTIONS,
    RELATION_FANOUT,
    REVERSE,
    check_neighbor_options,
    relation_fanouts,
)

#: Modes whose batches can be drawn ahead of training.
MODES: Final = ("neighbor",)
#: Options that only graphs with types have.
OF_TYPES: Final = ("of_type", "relation_fanout", "fanout_total", "reverse")
#: Options that the first samples did not have: they are parameters only where they differ from their defaults, so that
#: keys of samples stay the same.
_LATER: Final = ("draw_once", "neighbor_sampler", *OF_TYPES)

_option = partial(option, group=Group.SAMPLING)


def _sampling(given: Option, **changes: Any) -> Any:
    return option_field(replace(given, group=Group.SAMPLING, **changes))


def _neighbor_option(name: str, **changes: Any) -> Any:
    return _sampling(NEIGHBOR_OPTIONS[name], **changes)


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Options that decide which batches to draw."""

    mode: str = _option("neighbor", "Training mode that reads the samples.", choices=MODES)
    fanout: tuple[int, ...] = option_field(replace(FANOUTS, group=Group.SAMPLING, is_common=True))
    batch_size: int = _neighbor_option("batch_size", help="Training vertices per batch", is_common=True)
    epochs: int = _option(5, "Number of epochs to draw; longer runs reuse them.", is_common=True, least=1)
    ranks: int = _option(1, "Number of training ranks.", is_common=True, least=1)
    seed: int = _option(
        0,
        "Seed of the batches; a training run with the same seed and without samples draws the same batches.",
        least=0,
    )
    neighbor_sampler: str = _neighbor_option("neighbor_sampler")
    replace: bool = _neighbor_option("replace")
    draw_once: bool = _neighbor_option("draw_once")
    of_type: str | None = _option(
        None, "In a graph with types, the type of the training vertices", kind=str, metavar="TYPE"
    )
    relation_fanout: tuple[str, ...] = _sampling(RELATION_FANOUT)
    fanout_total: bool = _sampling(FANOUT_TOTAL)
    reverse: bool = _sampling(REVERSE)
    cache_memory: int = _neighbor_option(
        "cache_memory", help="Memory per training rank for features of frequent vertices, which are stored only once"
    )

    def __post_init__(self) -> None:
        check_options(self)
        if not self.fanout:
            raise InputError("fanout (): expected one number per layer, each 1 or more, or -1 for all")
        check_neighbor_options(asdict(self))
        relation_fanouts(self.relation_fanout, self.fanout, None)

    @property
    def of_types(self) -> list[str]:
        """Names of the given options that only graphs with types have."""
        return [name for name in OF_TYPES if getattr(self, name)]

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that determine the bytes of the samples."""
        parameters = {**asdict(self), "fanout": list(self.fanout), "relation_fanout": list(self.relation_fanout)}
        usual: dict[str, Any] = {each.name: each.default for each in fields(self) if each.name in _LATER}
        usual["relation_fanout"] = []
        if self.of_type is not None:
            # One graph serves all hops of a batch of a graph with types.
            del parameters["draw_once"]
        return {name: value for name, value in parameters.items() if name not in usual or value != usual[name]}


def samples_key(inputs: Mapping[str, str], options: SampleOptions) -> str:
    """Compute the key of the artifact that :func:`write_samples` makes or finds.

    Args:
        inputs: kind to key of the graph, of vertex data and, for several ranks, of the partition.
    """
    version = FORMAT_VERSION if options.of_type is None else TYPED_VERSION
    return artifact_key("samples", options.parameters, inputs, version)
