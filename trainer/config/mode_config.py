"""The mode of a training: what an epoch computes, and the options of the modes that sample."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.fields import Config, option
from gnnloom.trainer.modes.kind import ModeKind
from gnnloom.trainer.modes.registry import MODES, modes_with_option


@dataclass(frozen=True, kw_only=True)
class ModeConfig(Config):
    """A mode and its options. An option of another mode is refused, as it would do nothing."""

    mode: str = option("full", "What an epoch trains on", choices=tuple(MODES), later=True)

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
