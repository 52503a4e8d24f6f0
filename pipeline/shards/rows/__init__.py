"""Row shards: the rows of each rank, renumbered, and the rows that it exchanges with other ranks."""

from __future__ import annotations
