"""What the parent process asks of the child, and where both look for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from gnnloom.storage.format.files import read_json, write_json

HYPERGRAPH = "hypergraph.hgr"
GRAPH = "graph.metis"
GIVEN = "given.npy"
RESULT = "part.npy"
_REQUEST = "request.json"


@dataclass(frozen=True)
class PartitionRequest:
    """A partition into ``parts`` parts, none heavier than (1 + imbalance) times the average.

    Attributes:
        seed: 0 to 2^31 - 1.
        threads: that a parallel partitioner starts; never changes the result of a deterministic preset.
        preset: one of the method's.
        graph: the folder holds a graph instead of a hypergraph.
        memory_limit: bytes that the partitioner may allocate; None for no limit.
        improve: V-cycles that improve the parts in the file ``GIVEN``; 0 to partition from scratch.
    """

    parts: int
    imbalance: float
    seed: int
    threads: int = 1
    preset: str = ""
    graph: bool = False
    memory_limit: int | None = None
    improve: int = 0

    def write(self, folder: Path) -> None:
        write_json(folder / _REQUEST, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> PartitionRequest:
        return cls(**read_json(folder / _REQUEST))
