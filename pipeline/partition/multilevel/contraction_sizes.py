"""How a contraction is divided among tasks."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.external_sort.merge_levels import most_sources
from gnnloom.pipeline.partition.multilevel.pieces import NET_TASKS, net_tasks
from gnnloom.pipeline.tasks.memory import BASE_MEMORY

#: Bytes for each net of a task: hash and number as they are collected, joined and sorted.
_NET_BYTES = 80
#: Nets of a task that need no more memory than a worker has in any case.
_FEW_NETS = 1 << 20
#: Bytes of the hash and number of a net in a lane, of which every task that finds identical nets reads a range.
HASH_BYTES = 16


@dataclass(frozen=True)
class ContractionSizes:
    """Numbers of tasks.

    Attributes:
        num_ranges: tasks that contract a range of nets, and later write those that are kept.
        hash_bits: log2 of the tasks that find identical nets, each in a range of hashes.
    """

    num_ranges: int
    hash_bits: int

    @classmethod
    def of(cls, num_nets: int, num_pins: int, memory: int) -> ContractionSizes:
        """The numbers for a hypergraph.

        Args:
            memory: bytes that a worker may use.
        """
        fewest = -(-num_nets // max(_FEW_NETS, (memory - BASE_MEMORY) // _NET_BYTES))
        hash_bits = (max(NET_TASKS, fewest) - 1).bit_length()
        # More than 16 ranges of nets only if every range of hashes has 64 KiB or more in the lane of each.
        most = most_sources(HASH_BYTES * num_nets, 1 << hash_bits)
        return cls(max(fewest, min(net_tasks(num_pins), most)), hash_bits)
