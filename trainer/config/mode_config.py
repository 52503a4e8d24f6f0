"""The mode of a training: what an epoch computes, and the options of the modes that sample."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.fields import Config, field_of, option
from gnnloom.trainer.modes.kind import ModeKind
from gnnloom.trainer.modes.registry import MODES, modes_with_option, shown_option


@dataclass(frozen=True, kw_only=True)
class ModeConfig(Config):
    """A mode and its options. An option of another mode is refused, as it would do nothing."""

    mode: str = option("full", "What an epoch trains on", choices=tuple(MODES), later=True)
    fanout: tuple[int, ...] = field_of(shown_option("fanout"), later=True)
    batch_size: int = field_of(shown_option("batch_size"), later=True)
    replace: bool = field_of(shown_option("replace"), later=True)
    samples: str | None = field_of(shown_option("samples"), later=True)
    # Free: where rows and batches come from does not change them.
    cache_memory: int = field_of(shown_option("cache_memory"), free=True, later=True)
    sampler_threads: int = field_of(shown_option("sampler_threads"), free=True, later=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in dataclasses.fields(ModeConfig):
            able = modes_with_option(field.name)
            if able and self.mode not in able and getattr(self, field.name) != field.default:
                raise InputError(f"{field.name}: mode {self.mode} has no such option, only {', '.join(able)}")

    @property
    def mode_kind(self) -> ModeKind:
        """The descriptor of the mode."""
        return MODES[self.mode]
