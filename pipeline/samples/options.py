"""The options of samples on disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from gnnloom.storage.errors import InputError
from gnnloom.storage.sampling.kinds import SAMPLERS

#: Kinds of samples that can be drawn ahead of training.
MODES: Final = tuple(name for name, kind in SAMPLERS.items() if kind.layered)


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Which batches to draw.

    Attributes:
        mode: mode of the training that reads them.
        fanout: neighbors to draw for each vertex, from the last layer to the first; -1 for all.
        batch_size: training vertices of a batch.
        epochs: epochs to draw; a longer training reads them again.
        ranks: ranks of the training.
        seed: seed of the batches; a training with the same seed that draws its own has the same.
        replace: draw neighbors with replacement.
        cache_memory: bytes of memory, on each rank, for the features of frequent vertices.
    """

    mode: str = "neighbor"
    fanout: tuple[int, ...] = (10, 10, 10)
    batch_size: int = 1024
    epochs: int = 5
    ranks: int = 1
    seed: int = 0
    replace: bool = False
    cache_memory: int = 256 << 20

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError(f"mode {self.mode!r}: expected one of {', '.join(MODES)}")
        if not self.fanout or any(fanout < 1 and fanout != -1 for fanout in self.fanout):
            raise InputError(f"fanout {self.fanout}: expected one number per layer, each 1 or more, or -1 for all")
        for name, least in (("batch_size", 1), ("epochs", 1), ("ranks", 1), ("seed", 0), ("cache_memory", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} {getattr(self, name)}: expected at least {least}")

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the bytes of the samples."""
        return {**asdict(self), "fanout": list(self.fanout)}
