"""Names of the splits in results."""

from __future__ import annotations

from gnnloom.storage.format.vertex_arrays import SPLIT

#: Prefix of the metrics of a split, and its name in the vertex data.
PREFIXES = {"train": "train", "val": "valid", "test": "test"}
#: Name of the accuracy of each split, and the split's code.
ACCURACIES = {f"{prefix}_accuracy": SPLIT[split] for prefix, split in PREFIXES.items()}
