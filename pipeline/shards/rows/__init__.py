"""Row shards: the rows of each rank, renumbered, and what it exchanges with others."""

from __future__ import annotations
