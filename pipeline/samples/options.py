"""The options of samples on disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, check_options, option, option_field
from gnnloom.storage.sampling.layers.options import FANOUTS, NEIGHBOR_OPTIONS, check_neighbor_options

#: Modes whose batches can be drawn ahead of training.
MODES: Final = ("neighbor",)
#: Options that the first samples did not have: they are parameters where they differ from their defaults only, so that
#: keys of samples stay.
_LATER: Final = ("draw_once", "neighbor_sampler")

_option = partial(option, group=Group.SAMPLING)


def _neighbor_option(name: str, **changes: Any) -> Any:
    return option_field(replace(NEIGHBOR_OPTIONS[name], group=Group.SAMPLING, **changes))


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Options that decide which batches to draw."""

    mode: str = _option("neighbor", "Mode of the training that reads the samples.", choices=MODES)
    fanout: tuple[int, ...] = option_field(replace(FANOUTS, group=Group.SAMPLING, is_common=True))
    batch_size: int = _neighbor_option("batch_size", help="Training vertices of a batch", is_common=True)
    epochs: int = _option(5, "Epochs to draw; a longer training reads them again.", is_common=True, least=1)
    ranks: int = _option(1, "Ranks of the training.", is_common=True, least=1)
    seed: int = _option(0, "Seed of the batches; a training with this seed that draws its own has the same.", least=0)
    neighbor_sampler: str = _neighbor_option("neighbor_sampler")
    replace: bool = _neighbor_option("replace")
    draw_once: bool = _neighbor_option("draw_once")
    cache_memory: int = _neighbor_option(
        "cache_memory", help="Memory of each training rank for the features of frequent vertices, which are stored once"
    )

    def __post_init__(self) -> None:
        check_options(self)
        if not self.fanout:
            raise InputError("fanout (): expected one number per layer, each 1 or more, or -1 for all")
        check_neighbor_options(asdict(self))

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that determine the bytes of the samples."""
        parameters = {**asdict(self), "fanout": list(self.fanout)}
        usual = {name: NEIGHBOR_OPTIONS[name].default for name in _LATER}
        return {name: value for name, value in parameters.items() if name not in usual or value != usual[name]}
