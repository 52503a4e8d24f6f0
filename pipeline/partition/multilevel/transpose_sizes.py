"""How the transpose of an incidence is divided among tasks."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.external_sort.spill import BUCKET_BITS

#: Bytes for each key of a task: the key and a spare in the sorter, its column, its row, and the row as it is stored.
_KEY_BYTES = 40
#: Most keys of a task: 32 MiB of them, so that graphs of millions of edges keep several workers busy.
_TASK_KEYS = 1 << 22
#: Tasks get larger rather than more numerous than this, or than one for each worker if that is more, as far as memory
#: allows: every bucket is read from the lanes of all tasks.
_MANY_TASKS = 64


@dataclass(frozen=True)
class TransposeSizes:
    """Numbers of tasks, and of what each holds.

    Attributes:
        capacity: keys in the memory of a task.
        num_ranges: tasks that scatter the keys of a range of rows, each to a lane.
        num_buckets: tasks that sort a bucket.
        width: columns of a bucket.
    """

    capacity: int
    num_ranges: int
    num_buckets: int
    width: int

    @classmethod
    def of(cls, num_ids: int, num_columns: int, memory: int, workers: int) -> TransposeSizes:
        """The numbers for so many ids.

        Args:
            num_columns: all ids are below it.
            memory: bytes for the buffers of a task.
        """
        capacity = max(1, min(memory // _KEY_BYTES, max(_TASK_KEYS, -(-num_ids // max(_MANY_TASKS, workers)))))
        runs = max(1, -(-num_ids // capacity))
        width = max(1, -(-num_columns // min(runs, 1 << BUCKET_BITS)))
        return cls(capacity, runs, -(-num_columns // width), width)
