"""The options of samples on disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, check_options, option
from gnnloom.storage.samplers.registry import SAMPLERS

#: Kinds of samples that can be drawn ahead of training.
MODES: Final = tuple(name for name, kind in SAMPLERS.items() if kind.layered)


_option = partial(option, group=Group.SAMPLING)


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Options that decide which batches to draw."""

    mode: str = _option("neighbor", "Mode of the training that reads the samples.", choices=MODES)
    fanout: tuple[int, ...] = _option(
        (10, 10, 10),
        "Neighbors to draw for each vertex, from the last layer to the first; -1 for all.",
        is_common=True,
        least=1,
        also=(-1,),
        example="15,10,5",
        metavar="FAN-OUTS",
    )
    batch_size: int = _option(1024, "Training vertices of a batch.", is_common=True, least=1)
    epochs: int = _option(5, "Epochs to draw; a longer training reads them again.", is_common=True, least=1)
    ranks: int = _option(1, "Ranks of the training.", is_common=True, least=1)
    seed: int = _option(0, "Seed of the batches; a training with this seed that draws its own has the same.", least=0)
    replace: bool = _option(False, "Draw neighbors with replacement.")
    draw_once: bool = _option(False, "Draw neighbors of a vertex once, as PyG does, instead of anew in every layer.")
    cache_memory: int = _option(
        256 << 20,
        "Memory of each training rank for the features of frequent vertices, which are stored once.",
        is_size=True,
        least=0,
    )

    def __post_init__(self) -> None:
        check_options(self)
        if not self.fanout:
            raise InputError("fanout (): expected one number per layer, each 1 or more, or -1 for all")

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that determine the bytes of the samples."""
        parameters = {**asdict(self), "fanout": list(self.fanout)}
        # Stored where it differs only, so that the keys of samples are those they had before there was a choice.
        return {name: value for name, value in parameters.items() if name != "draw_once" or value}
