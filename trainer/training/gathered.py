"""The size of the steps in which :mod:`gnnloom.trainer.training.layerwise` computes. Planning needs it too."""

from __future__ import annotations

from typing import Final

#: Numbers that one step gathers, at most, unless one vertex has more.
GATHERED: Final = 1 << 24
