"""How the names of runs are derived."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

#: Hexadecimal digits of the hash in a name: 32 bits, which make a collision among the runs of a dataset unlikely.
_DIGITS = 8


def derive_run_name(model: str, algorithm: str, ranks: str, decides: Any) -> str:
    """``MODEL-ALGORITHM-RANKS-HASH``.

    Args:
        ranks: number of ranks, or the process grid.
        decides: JSON values that determine the result; runs that differ in them get other names.
    """
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return f"{_short(model)}-{algorithm}-{ranks}-{digest[:_DIGITS]}"


def _short(model: str) -> str:
    """The model's name; of ``package.module:Class`` the class, in the letters that a run's name may have."""
    return re.sub("[^a-z0-9]+", "-", model.rpartition(":")[2].lower()).strip("-") or "model"
