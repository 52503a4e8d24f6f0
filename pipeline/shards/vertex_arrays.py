"""The per-vertex arrays that every layout of shards carries along with the matrix."""

from __future__ import annotations

#: Arrays of a vertices artifact that are copied into the shards; each is optional.
VERTEX_ARRAYS = ("feature", "label", "multilabel", "target", "split")
