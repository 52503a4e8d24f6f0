"""The choices of row shards, without what makes the shards: the command line reads them whenever it starts."""

from __future__ import annotations

from typing import Final

#: Orders of a rank's rows: by vertex id, or by degree, largest first.
REORDERS: Final = ("none", "degree")
