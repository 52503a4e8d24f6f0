"""Notes about labels and splits, made while their rows are written: unused classes, and a split equal to the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.format.vertex_arrays import SPLIT_WORDS

#: Most different classes that tasks record.
_MOST: Final = 4096
#: The arrays with notes.
_NOTED: Final = frozenset({"label", "split"})
#: Odd numbers that mix the bits of a vertex and of its value.
_MIX: Final = tuple(np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))


@dataclass
class RowNotes:
    """Notes of a task about rows of an array.

    Attributes:
        array: the array.
        classes: the classes that occur; None if there are too many.
        mark: sum over the vertices of a hash of vertex and value, modulo 2^64: equal for equal arrays.
    """

    array: str
    classes: set[int] | None = field(default_factory=set)
    mark: int = 0

    def add(self, start: int, rows: NDArray[Any]) -> None:
        """Note the rows, (num_rows, ...), of the vertices from ``start`` on."""
        if self.array not in _NOTED or not len(rows):
            return
        values = rows.astype(np.int64)
        if self.classes is not None and self.array == "label":
            self.classes |= set(np.unique(values).tolist())
            self.classes = self.classes if len(self.classes) <= _MOST else None
        vertices = np.arange(start, start + len(rows)).astype(np.uint64)
        mixed = (vertices * _MIX[0] ^ (values + 2).astype(np.uint64) * _MIX[1]) * _MIX[2]
        self.mark = (self.mark + int((mixed ^ mixed >> np.uint64(32)).sum(dtype=np.uint64))) % (1 << 64)

    def to_facts(self) -> dict[str, Any]:
        """Facts for the task's record."""
        if self.array not in _NOTED:
            return {}
        return {"mark": self.mark, **({"classes": sorted(self.classes)} if self.classes else {})}


#: Facts of tasks that do not enter the manifest.
TASK_FACTS: Final = frozenset({"mark", "classes"})


def noted(found: Mapping[str, Mapping[str, Any]], num_classes: int, class_names: Sequence[str]) -> dict[str, Any]:
    """Facts for the manifest, which are rare: only what should be pointed out.

    Args:
        found: record of each task, by its name, which begins with the array.
        num_classes: one more than the highest class; 0 without labels.
        class_names: names of the classes, if they have some.
    """
    facts: dict[str, Any] = {}
    by_array = {array: [each for name, each in found.items() if name.startswith(f"{array}/")] for array in _NOTED}
    classes = {number for each in by_array["label"] for number in each.get("classes", ()) if number >= 0}
    is_counted = bool(classes) and all("classes" in each for each in by_array["label"])
    if is_counted and len(classes) < num_classes and not class_names:
        facts["classes_found"] = len(classes)
        # The highest class may stand for no label.
        if len(classes) > 1 and sorted(classes)[-2] < num_classes - 2:
            facts["highest_class_apart"] = num_classes - 1
    marks = [sum(each.get("mark", 0) for each in by_array[array]) % (1 << 64) for array in _NOTED if by_array[array]]
    are_parts = len(class_names) > 1 and all(name.lower() in SPLIT_WORDS for name in class_names)
    if (len(marks) > 1 and len(set(marks)) == 1) or are_parts:
        facts["labels_are_split"] = True
    return facts
