"""Options for smoothing predictions over the edges of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, options_of
from gnnloom.trainer.config.fields import Config, option

NONE: Final = "none"
LABELS: Final = "labels"
CORRECT: Final = "correct"

#: Steps and alpha of the propagation of labels, by method, as in the examples of PyTorch Geometric.
_STEPS: Final[Mapping[str, int]] = {LABELS: 3, CORRECT: 50}
_ALPHA: Final[Mapping[str, float]] = {LABELS: 0.9, CORRECT: 0.8}
#: The scale that stands for one scale per vertex.
AUTO_SCALE: Final = 0.0

_OF_BOTH: Final = {"smooth": (LABELS, CORRECT)}
_OF_CORRECT: Final = {"smooth": (CORRECT,)}
_option = partial(option, group=Group.SMOOTHING)


@dataclass(frozen=True, kw_only=True)
class SmoothingConfig(Config):
    """A method of smoothing and its numbers, with the defaults of the method filled in.

    Label propagation follows Zhou et al., "Learning with Local and Global Consistency" (NIPS 2003); the other method
    follows Huang et al., "Combining Label Propagation and Simple Models Out-performs Graph Neural Networks" (ICLR
    2021).
    """

    smooth: str = _option(
        NONE,
        "Smooth the predicted classes over the edges. labels: propagate the training labels, without the model;"
        " correct: correct the model's scores by its errors on the training vertices, then smooth them"
        " (Correct-and-Smooth).",
        is_common=True,
        choices=(NONE, LABELS, CORRECT),
    )
    smooth_steps: int | None = _option(
        None,
        "Number of propagation steps for the labels.",
        kind=int,
        least=1,
        default_text=f"{_STEPS[LABELS]} with labels, {_STEPS[CORRECT]} with correct",
        needs=_OF_BOTH,
    )
    smooth_alpha: float | None = _option(
        None,
        "Weight of the neighbors in each propagation step; the rest is the weight of the initial values.",
        kind=float,
        least=0,
        most=1,
        default_text=f"{_ALPHA[LABELS]} with labels, {_ALPHA[CORRECT]} with correct",
        needs=_OF_BOTH,
    )
    correct_steps: int = _option(50, "Number of propagation steps for the errors.", least=1, needs=_OF_CORRECT)
    correct_alpha: float = _option(
        1.0, "Weight of the neighbors in each propagation step for the errors.", least=0, most=1, needs=_OF_CORRECT
    )
    correct_scale: float = _option(
        AUTO_SCALE,
        "Factor of the propagated errors; auto: a factor per vertex, which makes each correction as large as the mean"
        " error of the training vertices.",
        words={"auto": AUTO_SCALE},
        above=0,
        also=(AUTO_SCALE,),
        needs=_OF_CORRECT,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.changed():
            able = options_of(SmoothingConfig)[name].needs.get("smooth", (self.smooth,))
            if self.smooth not in able:
                raise InputError(f"{name}: needs smooth {' or '.join(able)}")
        if self.smooths:
            self.settle("smooth_steps", _STEPS[self.smooth] if self.smooth_steps is None else self.smooth_steps)
            self.settle("smooth_alpha", _ALPHA[self.smooth] if self.smooth_alpha is None else self.smooth_alpha)

    @property
    def smooths(self) -> bool:
        return self.smooth != NONE

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any] | None) -> Self:
        """The smoothing of stored predictions; no smoothing without facts."""
        facts = facts or {}
        return cls.of(**{name: facts[name] for name in options_of(cls) if name in facts})
