"""What a run minimizes and measures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.fields import Config, option

#: Values of ``class_weights`` other than a list of numbers.
NO_WEIGHTS, BALANCED = "none", "balanced"


@dataclass(frozen=True, kw_only=True)
class LossConfig(Config):
    """The loss, the weights of the classes in it, and a metric of the user's own."""

    loss: str = option(
        "auto",
        "Loss: the usual one of the labels, or a function of your own as package.module:function",
        choices=("auto",),
        importable=True,
    )
    class_weights: str = option(
        NO_WEIGHTS,
        "Weights of the classes in the loss: none, balanced (inverse to their numbers), or one per class such as 1,2.5",
    )
    metric: str = option(
        "none",
        "Metric of your own to report too, as package.module:function",
        choices=("none",),
        importable=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # Only a check here; `given_class_weights` parses again.
        self.given_class_weights  # noqa: B018

    @property
    def given_class_weights(self) -> tuple[float, ...]:
        """The weights as numbers; empty if the option is a word.

        Raises:
            InputError: an item is not a number from 0 upwards, or all are 0.
        """
        if self.class_weights in {NO_WEIGHTS, BALANCED}:
            return ()
        try:
            weights = tuple(float(item) for item in self.class_weights.split(","))
        except ValueError:
            weights = ()
        if not any(weights) or not all(math.isfinite(weight) and weight >= 0 for weight in weights):
            raise InputError(
                f"class_weights {self.class_weights!r}: expected none, balanced, or a number from 0 upwards for each"
                " class, such as 1,2.5,0.5"
            )
        return weights
