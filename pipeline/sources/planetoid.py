"""Planetoid's pickles of Cora, CiteSeer and PubMed: ``ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}``.

The rows of ``allx`` and ``ally`` belong to the first vertices; row k of ``tx`` and ``ty`` belongs to the k-th vertex in
``test.index``. Vertices in neither (15 in CiteSeer) have zero features and no label. The split is the published one:
the first ``len(y)`` vertices are for training, the next 500 for validation, and those in ``test.index`` for testing.
Yang, Cohen, Salakhutdinov, Revisiting Semi-Supervised Learning with Graph Embeddings (ICML 2016).

The files are a few megabytes in size and are read as a whole, through
:mod:`gnnloom.pipeline.sources.binary.restricted_pickle`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.pickled_arrays import ARRAY_NAMES, RECONSTRUCT, build_array
from gnnloom.pipeline.sources.binary.restricted_pickle import Record, read_pickle
from gnnloom.pipeline.sources.format import BundledVertices, Format
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files, shown_location
from gnnloom.pipeline.sources.reading.text_columns import read_ids
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.vertex_arrays import NO_LABEL, SPLIT
from gnnloom.storage.wording import reason_of

#: Number of validation vertices, which follow the training vertices.
NUM_VALID = 500
#: Number of rows of features converted to dense at a time.
_BLOCK_ROWS = 4096
_CSR = ("scipy.sparse.csr.csr_matrix", "scipy.sparse._csr.csr_matrix")
_ADMITTED = frozenset(
    {
        *ARRAY_NAMES,
        *_CSR,
        "collections.defaultdict",
        "builtins.list",
        "builtins.object",
        "copyreg._reconstructor",
    }
)


@dataclass(frozen=True)
class PlanetoidFiles:
    """The files of one dataset.

    Attributes:
        prefix: location without the last part of the files' names, ``FOLDER/ind.NAME``.
    """

    prefix: str

    @classmethod
    def find(cls, location: str) -> PlanetoidFiles:
        """Find a dataset by its folder, by a prefix such as ``data/ind.cora``, or by any of its files.

        Raises:
            NotFoundError: the folder contains no dataset.
            InputError: the folder contains several datasets.
        """
        path = user_path(location.removeprefix("file://"))
        if path.is_dir():
            names = dataset_names(path)
            if len(names) > 1:
                raise InputError(
                    f"{location}: several datasets ({', '.join(names)}); name one, such as {path}/ind.{names[0]}"
                )
            if not names:
                raise NotFoundError(f"{location}: found no file ind.NAME.graph")
            path = path / f"ind.{names[0]}"
        match = re.fullmatch(r"(ind\.[^.]+)(\..+)?", path.name)
        if match is None:
            raise InputError(f"{shown_location(location)}: expected a folder, or a name such as ind.cora")
        return cls(str(path.with_name(match[1])))

    def file(self, name: str) -> SourceFile:
        return open_files([f"{self.prefix}.{name}"])[0]

    def load(self, name: str) -> Any:
        """Read one pickle: an array, a CSR matrix, or the dict of the graph."""
        file = self.file(name)
        with file.open() as stream:
            content = read_pickle(stream, file.location, _ADMITTED)
        try:
            return _build(content)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise InputError(f"{file.location}: not an array or matrix ({reason_of(error)})") from error

    def matrix(self, name: str) -> Any:
        """Read a matrix of numbers, dense or CSR."""
        content = self.load(name)
        if getattr(content, "ndim", 0) != 2:
            raise InputError(f"{self.prefix}.{name}: expected a matrix")
        return content

    def test_ids(self) -> NDArray[np.int64]:
        blocks = [block.values for block in read_ids(self.file("test.index"))]
        if not blocks or not len(blocks[0]):
            raise InputError(f"{self.prefix}.test.index: expected the ids of the test vertices, found none")
        return np.concatenate(blocks)

    def identity(self, names: Sequence[str]) -> dict[str, Any]:
        return {"format": "planetoid", "files": [self.file(name).identity() for name in names]}


def dataset_names(folder: Path) -> list[str]:
    """Names of the datasets in a folder."""
    found = (re.fullmatch(r"ind\.([^.]+)\.graph", path.name) for path in folder.iterdir())
    return sorted(match[1] for match in found if match)


@dataclass(frozen=True)
class PlanetoidEdges:
    """Edges of a Planetoid dataset; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`."""

    files: PlanetoidFiles
    stated_vertices: int

    @classmethod
    def open(cls, location: str) -> PlanetoidEdges:
        """Find the files and count the vertices.

        Raises:
            NotFoundError: a file does not exist.
            InputError: a file is damaged, or its pickle asks for anything but arrays.
        """
        files = PlanetoidFiles.find(location)
        return cls(files, _count_vertices(files))

    def identity(self) -> dict[str, Any]:
        return self.files.identity(["graph", "allx", "test.index"])

    def num_vertices(self) -> int | None:
        return self.stated_vertices

    def ranges(self) -> Sequence[SourceRange]:
        return [SourceRange(0, 0, -1)]

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:  # noqa: ARG002 - there is only one
        where = self.files.file("graph").location
        graph = self.files.load("graph")
        if not isinstance(graph, dict):
            raise InputError(f"{where}: expected a dict from vertices to lists of neighbors")
        for vertex, neighbors in graph.items():
            ids = (vertex, *neighbors) if isinstance(neighbors, list) else (None,)
            if not all(isinstance(number, int) and 0 <= number < self.stated_vertices for number in ids):
                raise InputError(
                    f"{where}: vertex {vertex!r}: expected a list of vertices below {self.stated_vertices:,}"
                )
        degree = [len(neighbors) for neighbors in graph.values()]
        source = np.repeat(np.array(list(graph), np.int64), degree)
        target = np.array([number for neighbors in graph.values() for number in neighbors], np.int64)
        yield EdgeChunk(source, target)


@dataclass(frozen=True)
class PlanetoidVertices:
    """Vertex data of a Planetoid dataset; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`."""

    files: PlanetoidFiles
    stated_vertices: int
    width: int

    arrays = ("feature", "label", "split")
    random_access = False
    in_graph_order = False

    @classmethod
    def open(cls, location: str) -> PlanetoidVertices:
        """Find the files and read their shapes; raises as :meth:`PlanetoidEdges.open` does."""
        files = PlanetoidFiles.find(location)
        return cls(files, _count_vertices(files), int(files.matrix("allx").shape[1]))

    def identity(self) -> dict[str, Any]:
        return self.files.identity(["y", "allx", "ally", "tx", "ty", "test.index"])

    def num_vertices(self) -> int:
        return self.stated_vertices

    def num_columns(self, array: str) -> int:
        return self.width if array == "feature" else int(array in self.arrays)

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        if array == "feature":
            matrix = self._placed(_csr_array(self.files.matrix("allx")), "tx")
            for first in range(start, stop, _BLOCK_ROWS):
                rows = matrix[first : min(first + _BLOCK_ROWS, stop)].toarray().astype(np.float32)
                if not np.isfinite(rows).all():
                    raise InputError(
                        f"{self.files.prefix}.allx or .tx: expected finite features, found NaN or infinity"
                    )
                yield rows
            return
        yield (self._labels() if array == "label" else self._split())[start:stop]

    def _placed(self, known: Any, name: str) -> Any:
        """(n, num_columns) CSR: the known rows first, the rows of ``name`` at the test vertices, zeros elsewhere."""
        test, ids = _csr_array(self.files.matrix(name)), self.files.test_ids()
        if test.shape != (len(ids), known.shape[1]):
            expected = (len(ids), known.shape[1])
            raise InputError(f"{self.files.prefix}.{name}: expected shape {expected}, found {test.shape}")
        to_vertex = _csr_array(
            (np.ones(len(ids), test.dtype), (ids, np.arange(len(ids)))), shape=(self.stated_vertices, len(ids))
        )
        known.resize((self.stated_vertices, known.shape[1]))
        return known + to_vertex @ test

    def _labels(self) -> NDArray[np.int32]:
        one_hot = self._placed(_csr_array(self.files.matrix("ally")), "ty")
        dense = one_hot.toarray()
        return np.where(dense.any(axis=1), dense.argmax(axis=1), NO_LABEL).astype(np.int32)

    def _split(self) -> NDArray[np.uint8]:
        codes = np.full(self.stated_vertices, SPLIT["none"], np.uint8)
        train = self.files.matrix("y").shape[0]
        codes[train : train + NUM_VALID] = SPLIT["valid"]
        codes[:train] = SPLIT["train"]
        codes[self.files.test_ids()] = SPLIT["test"]
        return codes


def _count_vertices(files: PlanetoidFiles) -> int:
    known, ids = int(files.matrix("allx").shape[0]), files.test_ids()
    if ids.min() < known or len(np.unique(ids)) != len(ids) or ids.max() > known + 100 * len(ids):
        raise InputError(f"{files.prefix}.test.index: expected distinct vertices after the {known:,} rows of allx")
    return int(ids.max()) + 1


def _build(content: Any) -> Any:
    """Build arrays and matrices from their records, checking every size."""
    if not isinstance(content, Record):
        return content
    if content.name in RECONSTRUCT:
        return build_array(content.state)
    if content.name in _CSR or (content.name == "copyreg._reconstructor" and content.args[0].name in _CSR):
        return _build_csr(content.state)
    if content.name == "collections.defaultdict":
        return dict(content)
    raise ValueError(f"a pickle of {content.name}")


def _csr_array(content: Any, shape: tuple[int, int] | None = None) -> Any:
    from scipy.sparse import csr_array  # noqa: PLC0415 - only these files need it

    return csr_array(content, shape=shape)


def _build_csr(state: Any) -> Any:
    rows, columns = state["_shape" if "_shape" in state else "shape"]
    data, indices, indptr = (build_array(state[name].state) for name in ("data", "indices", "indptr"))
    matrix = _csr_array((data, indices, indptr), shape=(int(rows), int(columns)))
    # SciPy's compiled code trusts indices and pointers: a damaged file would make it read beyond the arrays.
    matrix.check_format(full_check=True)
    return matrix


FORMAT = Format(
    name="planetoid",
    order=110,
    help="ind.NAME.x, .graph and so on",
    open_edges=PlanetoidEdges.open,
    prefixes=("ind.",),
    is_folder=lambda folder: bool(dataset_names(folder)),
    one_location=True,
    vertices=BundledVertices(PlanetoidVertices.open, lambda _: True),
)
