"""Into how many tasks the refinement of a boundary is divided, and what they will do; no result depends on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.pieces import NET_TASKS, vertex_pieces
from gnnloom.pipeline.tasks.phase_counts import PhaseCount
from gnnloom.storage.matrix.csr import index_dtype

#: Most rings of a boundary: nets between the cut and the farthest vertex that may move.
WIDEST = 12
#: Pins of a task that looks for cut nets, unless there are fewer than ``NET_TASKS`` such tasks: a few seconds.
_SCAN_PINS = 1 << 27
#: Pins for each range, of which there are at most ``NET_TASKS``: fewer are not worth a task.
_RANGE_PINS = 1 << 24
#: Bytes of an offset or a weight, of a part, and of the number of a ring.
_NUMBER, _PART, _RING = 8, 4, 1


@dataclass(frozen=True)
class BoundaryPlan:
    """The tasks of one refinement.

    Tasks that grow a boundary exchange lists of vertices and nets: each writes one file, and each reads from all.  A
    boundary fits in the memory of one process, so 16 tasks suffice, and need no lanes, whatever the hypergraph's size.

    Attributes:
        num_vertices, num_nets, num_pins: of the hypergraph.
        scans: tasks that look for cut nets.
        ranges: ranges of vertices, and of nets, in which the boundary grows.
    """

    num_vertices: int
    num_nets: int
    num_pins: int
    scans: int
    ranges: int

    @classmethod
    def of(cls, num_vertices: int, num_nets: int, num_pins: int) -> BoundaryPlan:
        """Plan for a hypergraph of this size."""
        ranges = max(1, min(NET_TASKS, num_pins // _RANGE_PINS))
        return cls(num_vertices, num_nets, num_pins, max(ranges, -(-num_pins // _SCAN_PINS)), ranges)

    @classmethod
    def for_hypergraph(cls, hypergraph: DiskHypergraph) -> BoundaryPlan:
        """Plan for a hypergraph on disk."""
        return cls.of(hypergraph.num_vertices, hypergraph.num_nets, hypergraph.num_pins)

    def counts(self, parts: int, pins: int, *, weighted: bool = False, rings: int = WIDEST) -> list[PhaseCount]:
        """Count the phases before the contraction, as if all nets with a pin in the boundary lay inside as a whole.

        Args:
            parts: number of parts P.
            pins: of these nets, each counted in every ring.
            weighted: whether the nets have weights.
            rings: that the boundary grows by.
        """
        cut = self._phase(
            "find cut nets",
            self.scans,
            files=3,
            read=self._lists(self.num_nets) + _PART * self.num_pins,
            written=_RING * self.num_nets,
        )
        grown = [replace(phase, repeats=rings) for phase in self._grow(pins)]
        return [cut, *grown, *self._select(pins, weighted=weighted), *self._label(parts)]

    def _grow(self, pins: int) -> list[PhaseCount]:
        """The phases of one ring."""
        pins = min(pins, self.num_pins)
        vertex, net = index_dtype(self.num_vertices).itemsize, index_dtype(self.num_nets).itemsize
        # The lists of a row and their bounds; the ring of each id.
        lists = (2 * _NUMBER + net + vertex + _RING) * pins
        return [
            self._phase("spread to vertices", self.ranges, 4, _RING * self.num_nets + lists, vertex * pins),
            self._exchange("reach vertices", 1, vertex * pins + 2 * _NUMBER * pins, _RING * pins),
            self._phase("spread to nets", self.ranges, 4, _RING * self.num_vertices + lists, net * pins),
            self._exchange("reach nets", 3, net * pins + lists, _RING * pins),
        ]

    def _select(self, pins: int, *, weighted: bool) -> list[PhaseCount]:
        """The phases that copy the nets of a boundary."""
        kept = (_NUMBER + index_dtype(self.num_vertices).itemsize) * min(pins, self.num_pins)
        found = [self._phase("select nets", self.ranges, 3, _RING * self.num_nets + kept, kept)]
        if weighted:
            read = _RING * self.num_nets + _NUMBER * min(pins, self.num_nets)
            found.append(self._phase("select weights", self.ranges, 2, read, _NUMBER * min(pins, self.num_nets)))
        return found

    def _label(self, parts: int) -> list[PhaseCount]:
        """The phases that number the vertices of the contracted hypergraph."""
        tasks = len(vertex_pieces(self.num_vertices))
        read = (_RING + _PART + _NUMBER) * self.num_vertices
        written = (index_dtype(self.num_vertices).itemsize + _NUMBER + _PART) * self.num_vertices
        return [
            self._phase("count boundary", tasks, 3, read, _NUMBER * parts * tasks),
            self._phase("label vertices", tasks, 4, read + _NUMBER * parts * tasks, written),
        ]

    def _lists(self, rows: int) -> int:
        """Bytes of the lists of all rows."""
        return _NUMBER * (rows + 1) + index_dtype(max(self.num_vertices, self.num_nets)).itemsize * self.num_pins

    def _exchange(self, phase: str, files: int, read: int, written: int) -> PhaseCount:
        """A phase whose tasks read lists from the files of all tasks, and ``files`` others; some change another one."""
        opens = self.ranges + files
        return PhaseCount(phase, self.ranges, self.ranges * opens, opens, 1 + files, read, written, read)

    def _phase(self, phase: str, tasks: int, files: int, read: int, written: int) -> PhaseCount:
        """A phase whose tasks read from ``files`` files each, not counting those that they change."""
        return PhaseCount(phase, tasks, tasks * files, files, files, read, written, -(-read // max(1, tasks)))
