"""Finds all modes of training: gnnloom's, and modes of other installed packages."""

from __future__ import annotations

from collections.abc import Mapping

import gnnloom.trainer.modes
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.trainer.modes.kind import ModeKind

#: Modes by name, in the order of choices.
MODES: Mapping[str, ModeKind] = load_descriptors(gnnloom.trainer.modes, "MODE", "gnnloom.modes", ModeKind)
