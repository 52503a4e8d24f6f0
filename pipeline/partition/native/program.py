"""A native program that partitions, and the request of the parent process to the child."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from gnnloom.pipeline.partition.partitioner import Preset
from gnnloom.pipeline.partition.settings import PartitionSettings
from gnnloom.pipeline.tasks.cluster import available_cores
from gnnloom.storage.disk.files import read_json, write_json

HYPERGRAPH = "hypergraph.hgr"
GRAPH = "graph.metis"
GIVEN = "given.npy"
RESULT = "part.npy"
_REQUEST = "request.json"
#: Most native partitioners count weights, vertices and pins with 32 bits.
NATIVE_LIMIT = (1 << 31) - 1


@dataclass(frozen=True)
class NativeProgram:
    """A partitioner in native code, which a child process runs.

    Attributes:
        name: of the method, for messages.
        package: Python package that holds it.
        module: with a function ``partition(request, folder)`` that reads the files of
            :mod:`gnnloom.pipeline.partition.native.program` and returns the (num_vertices,) parts.
        presets: its settings, the default first.
        bytes_per_pin: peak memory for each pin (or entry of a graph), measured.
        model: the model that it partitions if a level of ``--quality`` chooses it.
        takes_arrays: whether it reads a graph as arrays rather than as METIS' text.
        limit: the highest number of vertices, pins or weights that it counts to.
    """

    name: str
    package: str
    module: str
    presets: tuple[Preset, ...]
    bytes_per_pin: int
    model: str = "hypergraph"
    takes_arrays: bool = False
    limit: int = NATIVE_LIMIT

    @property
    def install(self) -> str:
        """The command that installs the package."""
        return f"pip install {self.package}"

    def preset(self, name: str) -> Preset:
        """The preset of this name."""
        return next(preset for preset in self.presets if preset.name == name)

    def memory(self, preset: str, size: int, num_vertices: int, parts: int) -> int:
        """Bytes that the program peaks at, as measured on power-law graphs.

        Args:
            size: pins of the hypergraph, or entries of the graph.
        """
        return self.bytes_per_pin * size + self.preset(preset).bytes_per_gain * num_vertices * parts


@dataclass(frozen=True)
class PartitionRequest:
    """A request for ``parts`` parts, none heavier than (1 + imbalance) times the average.

    Attributes:
        seed: 0 to 2^31 - 1.
        threads: threads of a parallel program; does not change the result of a deterministic preset.
        preset: one of the program's presets; empty for its first.
        graph: whether the folder holds a graph instead of a hypergraph.
        memory_limit: bytes that the program may allocate; None for no limit.
        improve: number of V-cycles that improve the parts in the file ``GIVEN``; 0 to partition from scratch.
    """

    parts: int
    imbalance: float
    seed: int
    threads: int = 1
    preset: str = ""
    graph: bool = False
    memory_limit: int | None = None
    improve: int = 0

    @classmethod
    def of(cls, settings: PartitionSettings) -> PartitionRequest:
        """The request that these settings make: one thread for each core unless they name a number."""
        # ``available_cores`` respects the affinity of this process, which the child inherits.
        threads = settings.threads or available_cores()
        return cls(
            settings.parts,
            settings.imbalance,
            settings.seed,
            threads,
            settings.preset,
            memory_limit=settings.memory_limit,
        )

    def write(self, folder: Path) -> None:
        write_json(folder / _REQUEST, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> PartitionRequest:
        return cls(**read_json(folder / _REQUEST))
