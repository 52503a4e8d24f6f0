"""What the parent process asks of the child, and where both look for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from gnnloom.storage.files import read_json, write_json

HYPERGRAPH = "hypergraph.hgr"
RESULT = "part.npy"
_REQUEST = "request.json"


@dataclass(frozen=True)
class PartitionRequest:
    """A partition of a hypergraph into ``parts`` parts, none heavier than (1 + imbalance) times the average.

    Attributes:
        seed: 0 to 2^31 - 1.
        threads: that a parallel partitioner starts; never changes the result.
    """

    parts: int
    imbalance: float
    seed: int
    threads: int = 1

    def write(self, folder: Path) -> None:
        write_json(folder / _REQUEST, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> PartitionRequest:
        return cls(**read_json(folder / _REQUEST))
