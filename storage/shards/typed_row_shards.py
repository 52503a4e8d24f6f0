"""Row shards of a graph with types: the rows of each relation by rank, and one exchange of rows for all relations.

The own vertices of a rank are numbered by ascending global id, and so type by type. Its halo has each vertex of other
ranks that a row of any relation refers to, once, numbered by owner and then by global id. The matrix of a relation has
a row for each own vertex of its target type. Its columns are own vertices (block ``own``) and halo vertices (block
``halo``), numbered as all own vertices and the whole halo are, so all relations read the rows of one exchange.

The vertices of a replicated type are in no halo and on no send list, because every rank holds their rows. A relation
from such a type has one block, ``replicated``, whose columns number the vertices within the type. A product is then
``own @ H[own] + halo @ H[halo] + replicated @ H[type]``. Before a product with rows that have changed, ranks gather the
replicated rows from their owners; the gradient of a replicated row is the sum of the gradients of all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.offsets import read_offsets
from gnnloom.storage.artifacts.typed.typed_graph import VertexType, relation_folder, type_folder
from gnnloom.storage.errors import CorruptError, InputError, NotFoundError
from gnnloom.storage.format.arrays import ArrayReader, ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.format.vertex_arrays import vertex_bounds
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.wording import counted, did_you_mean

#: Column with the number of each edge in its relation.
EDGE: Final = "edge"
#: The two blocks of the matrix of a relation.
BLOCKS: Final = ("own", "halo")
#: The only block of a relation from a replicated type, and the folder with the rows of replicated types.
REPLICATED: Final = "replicated"
#: Array with the rank that owns each vertex of a replicated type.
OWNER: Final = "owner"


def replicated_folder(type_name: str) -> str:
    """Prefix of the arrays of a replicated type."""
    return f"{REPLICATED}/{type_name}/"


@dataclass(frozen=True)
class ShardedRelation:
    """A relation, or the reverse of one, in row shards.

    Attributes:
        name: name of the relation or reverse.
        source, target: names of the types of its columns and rows.
        of: name of the relation whose edges these are.
        nnz: edges on all ranks.
        columns: names of the columns of its edges.
        replicated: whether every rank holds the rows of all sources.
    """

    name: str
    source: str
    target: str
    of: str
    nnz: int
    columns: tuple[str, ...]
    replicated: bool = False

    @classmethod
    def all_of(cls, facts: Mapping[str, Any]) -> tuple[ShardedRelation, ...]:
        """The relations that shards list in their facts."""
        held = facts.get(REPLICATED, ())
        return tuple(
            cls(
                each["name"],
                each["source"],
                each["target"],
                each["of"],
                each["nnz"],
                tuple(each["columns"]),
                each["source"] in held,
            )
            for each in facts["relations"]
        )

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of the blocks of its matrix."""
        return (REPLICATED,) if self.replicated else BLOCKS

    @property
    def edge_type(self) -> tuple[str, str, str]:
        """Source type, name and target type."""
        return self.source, self.name, self.target


@dataclass(frozen=True)
class RelationRows:
    """The rows of a relation that a rank owns.

    Attributes:
        relation: the relation.
        first_row: local number of the first own vertex of the target type, which row 0 belongs to.
        own: (num_own_of_type, num_own) entries with columns of the rank; a pattern.
        halo: (num_own_of_type, num_halo) entries with columns of others; a pattern.
        columns: for each block, the (nnz, ...) values of each column of edges, in the order of the entries: ``weight``,
            ``time``, ``feature``, ``label``, and ``edge``, the number of the edge in its relation.
        replicated: (num_own_of_type, num_sources) entries with columns of a replicated type, numbered within the type;
            ``own`` and ``halo`` are then empty. None for other relations.
    """

    relation: ShardedRelation
    first_row: int
    own: CSR
    halo: CSR
    columns: Mapping[str, Mapping[str, NDArray[Any]]]
    replicated: CSR | None = None


class TypedRowShards:
    """All row shards of a partition of a graph with types."""

    def __init__(self, artifact: Artifact) -> None:
        """Read the facts from the manifest.

        Raises:
            InputError: the shards are of a graph without types.
        """
        self.artifact = artifact
        if artifact.version != TYPED_VERSION:
            raise InputError(f"{artifact.path}: shards of a graph without types; Dataset.row_shards reads them")
        self.num_vertices: int = artifact.sizes["vertex"]
        self.num_parts: int = artifact.sizes["part"]
        self.types = VertexType.all_of(artifact.facts)
        #: Names of the types whose rows every rank holds.
        self.replicated: tuple[str, ...] = tuple(artifact.facts.get(REPLICATED, ()))
        #: The relations and, if the partition counts them, their reverses.
        self.relations = ShardedRelation.all_of(artifact.facts)
        #: Whether each relation has its reverse, so that the halo serves products in both directions.
        self.symmetric: bool = artifact.facts["symmetric"]
        #: Exact figures of the partition on the union of the relations (volume, messages, ...).
        self.quality: dict[str, Any] = artifact.facts["quality"]

    def __repr__(self) -> str:
        relations = counted(len(self.relations), "relation")
        return (
            f"TypedRowShards({counted(self.num_parts, 'part')} of {counted(self.num_vertices, 'vertex')}, {relations})"
        )

    def type(self, name: str) -> VertexType:
        """A type.

        Raises:
            NotFoundError: the graph has no such type.
        """
        names = [each.name for each in self.types]
        if name not in names:
            raise NotFoundError(f"{self.artifact.path}: no type {name!r}; {did_you_mean(name, names, 'there are')}")
        return self.types[names.index(name)]

    def owner(self, type_name: str) -> NDArray[np.int32]:
        """(count,) int32 rank that owns each vertex of a replicated type."""
        return self.replicated_array(type_name, OWNER).read()

    def replicated_names(self, type_name: str) -> list[str]:
        """Names of the arrays that the vertices of a replicated type have, such as ``feature``."""
        prefix = replicated_folder(type_name)
        found = [name.removeprefix(prefix) for name in self.artifact.records if name.startswith(prefix)]
        return [name for name in found if name != OWNER]

    def replicated_array(self, type_name: str, name: str) -> ArrayReader:
        """Open an array of all vertices of a replicated type, such as ``feature``, in the order of the type."""
        facts = {each["name"]: each for each in self.artifact.facts["types"]}
        bounds = (0, self.num_parts) if name == OWNER else vertex_bounds(name, facts.get(type_name, {}))
        return self.artifact.array(f"{replicated_folder(type_name)}{name}", bounds=bounds)

    def shard(self, rank: int, counter: ReadCounter | None = None) -> TypedRowShard:
        """The shard of one rank.

        Args:
            counter: counts the bytes that the shard reads.

        Raises:
            IndexError: there is no such rank.
        """
        if not 0 <= rank < self.num_parts:
            raise IndexError(f"{self.artifact.path}: rank {rank} of {self.num_parts}")
        return TypedRowShard(self, rank, counter)


class TypedRowShard:
    """The shard of one rank; reads only its own arrays."""

    def __init__(self, shards: TypedRowShards, rank: int, counter: ReadCounter | None) -> None:
        self.shards, self.rank, self.prefix = shards, rank, f"row/{rank:05d}"
        self._counter = counter

    @property
    def num_own(self) -> int:
        """Number of vertices of the rank."""
        return len(self._array("vertex"))

    @cached_property
    def type_offset(self) -> NDArray[np.int64]:
        """(num_types + 1,) int64 local number of the first own vertex of each type, and the number of own vertices."""
        bounds = [*(each.first for each in self.shards.types), self.shards.num_vertices]
        found: NDArray[np.int64] = np.searchsorted(self.vertex(), bounds).astype(np.int64)
        return found

    def vertex(self) -> NDArray[np.int64]:
        """(num_own,) int64 global ids of the rank's vertices by local number, ascending."""
        return self._array("vertex", (0, self.shards.num_vertices)).read()

    def halo_vertex(self) -> NDArray[np.int64]:
        """(num_halo,) int64 global ids of the halo, by owner and then by id."""
        return self._array("halo_vertex", (0, self.shards.num_vertices)).read()

    def halo_offset(self) -> NDArray[np.int64]:
        """(num_parts + 1,) int64; owner p has the halo vertices halo_offset[p] to halo_offset[p+1]."""
        return self._peers("halo_offset", len(self._array("halo_vertex")))

    def send_row(self) -> NDArray[Any]:
        """(num_send,) own local numbers to send, for each receiver in the order of its halo."""
        return self._array("send_row", (0, self.num_own)).read()

    def send_offset(self) -> NDArray[np.int64]:
        """(num_parts + 1,) int64; receiver p gets send_row[send_offset[p]:send_offset[p+1]]."""
        return self._peers("send_offset", len(self._array("send_row")))

    def relation(self, name: str) -> RelationRows:
        """Read the rank's rows of a relation or reverse, with the columns of their edges.

        Raises:
            NotFoundError: the shards have no such relation.
            CorruptError: the rows are not the rank's vertices of the target type.
        """
        names = [each.name for each in self.shards.relations]
        if name not in names:
            known = did_you_mean(name, names, "there are")
            raise NotFoundError(f"{self.shards.artifact.path}: no relation {name!r}; {known}")
        relation = self.shards.relations[names.index(name)]
        target = [each.name for each in self.shards.types].index(relation.target)
        first, last = self.type_offset[target : target + 2].tolist()
        widths = {"own": self.num_own, "halo": len(self._array("halo_vertex"))}
        widths[REPLICATED] = self.shards.type(relation.source).count
        folder, blocks = relation_folder(name), dict[str, CSR]()
        for block in (*BLOCKS, REPLICATED):
            if block in relation.blocks:
                blocks[block] = self._csr(f"{folder}{block}", last - first, widths[block])
            elif block in BLOCKS:
                none = np.empty(0, index_dtype(widths[block]))
                blocks[block] = CSR(0, np.zeros(last - first + 1, np.int64), none, None, widths[block])
        columns = {
            block: {each: self._array(f"{folder}{block}/{each}").read() for each in relation.columns}
            for block in relation.blocks
        }
        return RelationRows(relation, first, blocks["own"], blocks["halo"], columns, blocks.get(REPLICATED))

    def vertex_names(self, type_name: str) -> list[str]:
        """Names of the arrays that the vertices of a type have, such as ``feature``."""
        prefix = f"{self.prefix}/{type_folder(type_name)}"
        return [name.removeprefix(prefix) for name in self.shards.artifact.records if name.startswith(prefix)]

    def vertex_array(self, type_name: str, name: str) -> ArrayReader:
        """Open an array of the own vertices of a type, such as ``feature``; rows are in the order of local numbers."""
        facts = next(each for each in self.shards.artifact.facts["types"] if each["name"] == type_name)
        return self._array(f"{type_folder(type_name)}{name}", vertex_bounds(name, facts))

    def _csr(self, path: str, num_rows: int, num_columns: int) -> CSR:
        indices = self._array(f"{path}/indices", (0, num_columns)).read()
        indptr = read_offsets(self._array(f"{path}/indptr"), len(indices))
        if len(indptr) - 1 != num_rows:
            raise CorruptError(
                f"{self.shards.artifact.path}/{self.prefix}/{path}: {counted(len(indptr) - 1, 'row')} for"
                f" {counted(num_rows, 'vertex')} of the target type; remove the shards and make them again"
            )
        return CSR(0, indptr, indices, None, num_columns)

    def _peers(self, name: str, total: int) -> NDArray[np.int64]:
        offsets = read_offsets(self._array(name), total)
        if offsets[self.rank] != offsets[self.rank + 1]:
            raise CorruptError(f"{self._array(name).where}: rank {self.rank} exchanges rows with itself")
        return offsets

    def _array(self, name: str, bounds: tuple[int, int] | None = None) -> ArrayReader:
        return self.shards.artifact.array(f"{self.prefix}/{name}", self._counter, bounds)
