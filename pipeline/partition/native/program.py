"""A native program that partitions: what the parent process has to know about it."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.partition.partitioner import Preset


@dataclass(frozen=True)
class NativeProgram:
    """A partitioner in native code, which a child process runs.

    Attributes:
        name: of the method, for messages.
        package: Python package that holds it.
        module: with a function ``partition(request, folder)`` that reads the files of
            :mod:`gnnloom.pipeline.partition.native.request` and returns the (num_vertices,) parts.
        presets: its settings, the default first.
        bytes_per_pin: peak memory for each pin (or entry of a graph), measured.
        takes_arrays: whether it reads a graph as arrays rather than as METIS' text.
    """

    name: str
    package: str
    module: str
    presets: tuple[Preset, ...]
    bytes_per_pin: int
    takes_arrays: bool = False

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
