"""Seeds torch's global generator, from which ``nn.Linear``, ``nn.init`` and ``nn.Dropout`` draw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import torch


class Draws(IntEnum):
    """Purpose of a draw of random numbers."""

    CREATION = 0
    TRAINING = 1
    EVALUATION = 2


@contextmanager
def seeded(seed: int) -> Iterator[torch.Generator]:
    """Inside the block, torch's global generator draws as after ``torch.manual_seed(seed)``; then it is restored."""
    before = torch.get_rng_state()
    # torch.manual_seed would also seed the generators of accelerators, and load their libraries.
    generator = torch.default_generator.manual_seed(seed)
    try:
        yield generator
    finally:
        torch.set_rng_state(before)


def derived_seed(seed: int, draws: Draws, *place: int) -> int:
    """A seed for some draws of a run in one place, such as an epoch and rank, unrelated to all other seeds."""
    # SeedSequence hashes its numbers, so neighboring places have unrelated seeds.
    return int(np.random.SeedSequence([seed, draws, *place]).generate_state(1, np.uint64)[0])


def has_drawn(generator: torch.Generator) -> bool:
    """Whether a generator has drawn numbers since it was seeded."""
    fresh = torch.Generator().manual_seed(generator.initial_seed())
    return not torch.equal(generator.get_state(), fresh.get_state())
