"""The registry of arrays: the arrays of each kind of artifact, with named dimensions and dtypes.

A pattern is the path of an array, with ``*`` for the number of a block, row shard or grid cell, or for the name of a
relation or type. The sizes of the dimensions in ``GLOBAL_DIMS`` are the artifact's sizes (``sizes`` in its manifest).
Other dimensions must agree among the arrays of one folder. ``"row+1"`` is one more than ``row``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from gnnloom.storage.errors import FormatError
from gnnloom.storage.format.arrays import ArrayRecord
from gnnloom.storage.format.vertex_arrays import LABELS, VERTEX_ARRAYS

#: Version of the on-disk format.
FORMAT_VERSION = 1
#: Version of graphs with types, their shards and samples, and the reverses and the links of their relations, so that
#: earlier versions of gnnloom refuse them.
TYPED_VERSION = 2
#: Entry with the version of the format, in the attributes of a dataset, in manifests and in other indexes.
VERSION_ENTRY = "format_version"

INDEX = ("int32", "int64")
FLOAT = ("float32", "float64")
#: Of rows of features, wherever they are copied to.
_FEATURE = VERTEX_ARRAYS["feature"].dtypes


@dataclass(frozen=True)
class ArraySpec:
    """Named dimensions and allowed dtypes of one array; a ``required`` array exists in every artifact of its kind."""

    dims: tuple[str, ...]
    dtypes: tuple[str, ...]
    required: bool = True


#: Dimensions whose size is a property of the whole artifact.
GLOBAL_DIMS = frozenset(
    {"vertex", "vertex+1", "part", "part+1", *(dim for array in VERTEX_ARRAYS.values() for dim in array.dims)}
)

# Offsets count nonzeros; a block may have more than 2^31 nonzeros, so offsets are int64. Column ids take most of the
# space and are int32 wherever the width allows.
_CSR_BLOCK = {
    "block/*/indptr": ArraySpec(("row+1",), ("int64",)),
    "block/*/indices": ArraySpec(("nonzero",), INDEX),
    "block/*/data": ArraySpec(("nonzero",), FLOAT, required=False),
    # Not float32, which has no more than every 128th second of the years since 1970. Dates are whole numbers of a unit.
    "block/*/time": ArraySpec(("nonzero",), ("float64", "int64"), required=False),
}


def _source_ids(dim: str) -> dict[str, ArraySpec]:
    """Arrays with the vertices' ids in the source of a graph."""
    return {
        "original_id": ArraySpec((dim,), ("int64",), required=False),
        "original_name_offset": ArraySpec((f"{dim}+1",), ("int64",), required=False),
        "original_name": ArraySpec(("byte",), ("uint8",), required=False),
    }


_MATRIX = {**_CSR_BLOCK, "degree": ArraySpec(("vertex",), ("int64",)), **_source_ids("vertex")}

#: The matrices of relations, and of their reverses, with the number of the row of the table of each edge or, in a
#: reverse, of the edge.
_RELATIONS = {
    **{f"relation/*/{path}": spec for path, spec in _CSR_BLOCK.items()},
    "relation/*/degree": ArraySpec(("row",), ("int64",)),
    "relation/*/block/*/row": ArraySpec(("nonzero",), ("int64",), required=False),
}

_TRANSPOSE = {
    **_MATRIX,
    **_RELATIONS,
    # Of a union of relations: the entries that all relations have in a row.
    "entries": ArraySpec(("vertex",), ("int64",), required=False),
}

# A graph has either the arrays of a matrix or, if it has types, those below ``relation`` and ``type``.
_GRAPH = {
    **_MATRIX,
    **_RELATIONS,
    # The columns of a relation's table for each edge.
    "relation/*/weight": ArraySpec(("edge",), ("float32",), required=False),
    "relation/*/time": ArraySpec(("edge",), ("int64", "float64"), required=False),
    "relation/*/feature": ArraySpec(("edge", "value"), ("float32", "float16"), required=False),
    "relation/*/label": ArraySpec(("edge",), ("int64",), required=False),
    **{f"type/*/{path}": spec for path, spec in _source_ids("member").items()},
}


def _vertex_arrays(prefix: str, dim: str, names: Iterable[str] = VERTEX_ARRAYS) -> dict[str, ArraySpec]:
    """Arrays with a row for each of some vertices."""
    arrays = (VERTEX_ARRAYS[name] for name in names)
    return {f"{prefix}{array.name}": ArraySpec((dim, *array.dims), array.dtypes, required=False) for array in arrays}


def _exchange(direction: str) -> dict[str, ArraySpec]:
    """Rows that parts send each other for one product; stored as arrays if the pairs are too many for the manifest."""
    return {
        f"exchange/{direction}/sender": ArraySpec(("pair",), ("int32",), required=False),
        f"exchange/{direction}/receiver": ArraySpec(("pair",), ("int32",), required=False),
        f"exchange/{direction}/rows": ArraySpec(("pair",), ("int64",), required=False),
    }


_PARTITION = {"part": ArraySpec(("vertex",), ("int32",)), **_exchange("forward"), **_exchange("backward")}


def _row_shard_matrix(prefix: str, required: bool) -> dict[str, ArraySpec]:
    """The arrays of one matrix of a row shard: own columns, halo columns, and the rows to exchange."""
    return {
        f"{prefix}own/indptr": ArraySpec(("row+1",), ("int64",), required),
        f"{prefix}own/indices": ArraySpec(("nonzero",), INDEX, required),
        f"{prefix}own/data": ArraySpec(("nonzero",), FLOAT, required=False),
        f"{prefix}halo/indptr": ArraySpec(("row+1",), ("int64",), required),
        f"{prefix}halo/indices": ArraySpec(("nonzero",), INDEX, required),
        f"{prefix}halo/data": ArraySpec(("nonzero",), FLOAT, required=False),
        f"{prefix}halo_vertex": ArraySpec(("halo",), ("int64",), required),
        f"{prefix}halo_offset": ArraySpec(("part+1",), ("int64",), required),
        f"{prefix}send_row": ArraySpec(("send",), INDEX, required),
        f"{prefix}send_offset": ArraySpec(("part+1",), ("int64",), required),
    }


_ROW_SHARDS = {
    "row/*/vertex": ArraySpec(("row",), ("int64",)),
    **_row_shard_matrix("row/*/", required=True),
    **_row_shard_matrix("row/*/transpose/", required=False),
    **_vertex_arrays("row/*/", "row"),
}


def _relation_entries(prefix: str) -> dict[str, ArraySpec]:
    """Some columns of the matrix of a relation in a row shard, and the columns of its edges."""
    return {
        f"{prefix}indptr": ArraySpec(("row+1",), ("int64",)),
        f"{prefix}indices": ArraySpec(("nonzero",), INDEX),
        f"{prefix}weight": ArraySpec(("nonzero",), ("float32",), required=False),
        f"{prefix}time": ArraySpec(("nonzero",), ("int64", "float64"), required=False),
        f"{prefix}feature": ArraySpec(("nonzero", "value"), ("float32", "float16"), required=False),
        f"{prefix}label": ArraySpec(("nonzero",), ("int64",), required=False),
        # The number of each edge in its relation, which both directions of the edge have.
        f"{prefix}edge": ArraySpec(("nonzero",), ("int64",), required=False),
    }


# Row shards of a graph with types have one halo for all relations, and data with the width that each type needs.
_TYPED_ROW_SHARDS = {
    **_relation_entries("row/*/relation/*/own/"),
    **_relation_entries("row/*/relation/*/halo/"),
    # Of a relation whose sources every rank holds.
    **_relation_entries("row/*/relation/*/replicated/"),
    "replicated/*/owner": ArraySpec(("member",), ("int32",)),
    **{
        path: ArraySpec(("member", *(f"type_{dim}" for dim in spec.dims[1:])), spec.dtypes, required=False)
        for prefix in ("row/*/type/*/", "replicated/*/", "order/*/*/type/*/")
        for path, spec in _vertex_arrays(prefix, "member").items()
    },
}

_GRID_SHARDS = {
    "grid/*/*/*/indptr": ArraySpec(("row+1",), ("int64",)),
    "grid/*/*/*/indices": ArraySpec(("nonzero",), INDEX),
    "grid/*/*/*/data": ArraySpec(("nonzero",), FLOAT, required=False),
    # Of a graph with types.
    **_relation_entries("grid/*/*/*/relation/*/"),
    "order/*/*/type/*/position": ArraySpec(("member",), ("int64",)),
    "order/*/*/vertex": ArraySpec(("row",), ("int64",), required=False),
    "order/*/*/degree": ArraySpec(("row",), ("int64", "float64")),
    **_vertex_arrays("order/*/*/", "row"),
}

_SEGMENT = "rank/*/epoch/*/segment/*"
_SAMPLES = {
    # Of a graph with types: seeds and frequent vertices of all ranks, and arrays by type and by relation.
    "seed": ArraySpec(("seed",), ("int64",), required=False),
    "type/*/hot_vertex": ArraySpec(("hot",), ("int64",)),
    "type/*/hot_feature": ArraySpec(("hot", "width"), _FEATURE),
    f"{_SEGMENT}/type/*/size": ArraySpec(("batch", "hop+1"), ("int64",)),
    f"{_SEGMENT}/type/*/vertex": ArraySpec(("row",), ("int64",)),
    f"{_SEGMENT}/type/*/hot": ArraySpec(("row",), ("int32",)),
    f"{_SEGMENT}/type/*/feature": ArraySpec(("packed", "width"), _FEATURE),
    f"{_SEGMENT}/relation/*/size": ArraySpec(("batch", "hop"), ("int64",)),
    f"{_SEGMENT}/relation/*/drawn": ArraySpec(("drawn_row",), ("int64",)),
    f"{_SEGMENT}/relation/*/indices": ArraySpec(("nonzero",), ("int32",)),
    f"{_SEGMENT}/relation/*/edge": ArraySpec(("nonzero",), ("int64",)),
    f"{_SEGMENT}/relation/*/weight": ArraySpec(("nonzero",), FLOAT, required=False),
    f"{_SEGMENT}/relation/*/time": ArraySpec(("nonzero",), ("int64", "float64"), required=False),
    f"{_SEGMENT}/relation/*/feature": ArraySpec(("nonzero", "value"), ("float32", "float16"), required=False),
    f"{_SEGMENT}/relation/*/label": ArraySpec(("nonzero",), ("int64",), required=False),
    "rank/*/seed": ArraySpec(("seed",), ("int64",)),
    "rank/*/hot_vertex": ArraySpec(("hot",), ("int64",)),
    "rank/*/hot_feature": ArraySpec(("hot", "feature"), _FEATURE),
    f"{_SEGMENT}/layer_size": ArraySpec(("batch", "layer+1"), ("int64",)),
    f"{_SEGMENT}/vertex": ArraySpec(("row",), ("int64",)),
    f"{_SEGMENT}/row_nnz": ArraySpec(("row",), ("int64",)),
    f"{_SEGMENT}/degree": ArraySpec(("row",), ("float64",), required=False),
    f"{_SEGMENT}/hot": ArraySpec(("row",), ("int32",)),
    f"{_SEGMENT}/drawn": ArraySpec(("drawn_row",), ("int64",)),
    f"{_SEGMENT}/indices": ArraySpec(("nonzero",), ("int32",)),
    f"{_SEGMENT}/data": ArraySpec(("nonzero",), FLOAT, required=False),
    f"{_SEGMENT}/feature": ArraySpec(("packed", "feature"), _FEATURE),
    **_vertex_arrays(f"{_SEGMENT}/", "seed", LABELS),
}

#: Splits of the pairs of a links artifact.
LINK_SPLITS = ("train", "valid", "test")


def _links() -> dict[str, ArraySpec]:
    """The pairs of each split, their values and their negatives."""
    arrays: dict[str, ArraySpec] = {}
    for split in LINK_SPLITS:
        arrays[f"{split}/pair"] = ArraySpec(("pair", "end"), ("int64",))
        arrays[f"{split}/value"] = ArraySpec(("pair",), ("int64", "float32"), required=False)
        arrays[f"{split}/negative"] = ArraySpec(("pair", "negative"), ("int64",), required=False)
        arrays[f"{split}/negative_source"] = ArraySpec(("pair", "replaced"), ("int64",), required=False)
        arrays[f"{split}/pool"] = ArraySpec(("pooled", "end"), ("int64",), required=False)
        arrays[f"{split}/baseline"] = ArraySpec(("pair", "baseline"), ("float64",), required=False)
        arrays[f"{split}/negative_baseline"] = ArraySpec(("pair", "negative", "baseline"), ("float64",), required=False)
        replaced = ("pair", "replaced", "baseline")
        arrays[f"{split}/negative_source_baseline"] = ArraySpec(replaced, ("float64",), required=False)
        arrays[f"{split}/pool_baseline"] = ArraySpec(("pooled", "baseline"), ("float64",), required=False)
        # Of links of one relation: positions among its edges, of drawn pairs, and of edges that given pairs hold out.
        arrays[f"{split}/held_out"] = ArraySpec(("held_out",), ("int64",), required=False)
        arrays[f"{split}/edge"] = ArraySpec(("pair",), ("int64",), required=False)
    arrays["train/weight"] = ArraySpec(("pair",), ("uint8", *FLOAT))
    return arrays | {"train/reverse_weight": ArraySpec(("pair",), ("uint8", *FLOAT), required=False)}


# Each block of columns is an array of its own, because a writer has a few columns of all vertices at a time.
_PROPAGATED = {"step/*/columns/*/value": ArraySpec(("vertex", "column"), ("float32",))}

SCHEMAS: Mapping[str, Mapping[str, ArraySpec]] = {
    "graph": _GRAPH,
    "transpose": _TRANSPOSE,
    "vertices": _vertex_arrays("", "vertex"),
    "partition": _PARTITION,
    "shards": {**_ROW_SHARDS, **_TYPED_ROW_SHARDS, **_GRID_SHARDS},
    "samples": _SAMPLES,
    "links": _links(),
    "propagated": _PROPAGATED,
}


def newest_version(kind: object) -> int:
    """The newest version of artifacts of a kind."""
    return TYPED_VERSION if kind in {"graph", "transpose", "links", "shards", "samples"} else FORMAT_VERSION


def check_version(where: Path, content: Mapping[str, object], newest: int = FORMAT_VERSION) -> None:
    """Check that this version of gnnloom reads a dataset, an artifact or another thing with an index.

    Args:
        where: what is read, for messages.
        content: entries of its index, or its attributes.
        newest: the newest version of such a thing that is read.

    Raises:
        FormatError: the format is newer, or what is read was made before the first release, in a format without this
            entry.
    """
    version = content.get(VERSION_ENTRY)
    if version is None:
        raise FormatError(
            f"{where}: made by a development version of gnnloom, in a format that was never released and is not read;"
            " remove the dataset's folder and make it again from its sources"
        )
    if not isinstance(version, int) or version < 1:
        raise FormatError(f"{where}: {version!r} is not a version of gnnloom's format")
    if version > newest:
        raise FormatError(f"{where}: format {version} is newer than {newest}, the newest this gnnloom reads")


def check_records(where: str, kind: str, records: Iterable[ArrayRecord], sizes: Mapping[str, int]) -> None:
    """Check arrays of an artifact against the registry.

    Args:
        where: the artifact, for messages.
        kind: kind of the artifact.
        records: all arrays of a folder, or of several.
        sizes: sizes of the dimensions in ``GLOBAL_DIMS``.

    Raises:
        FormatError: an array is not in the registry, has another dtype or number of dimensions, or disagrees in a size
            with the artifact or with another array of its folder.
    """
    schema = SCHEMAS[kind]
    local: dict[tuple[str, str], tuple[int, str]] = {}
    for record in records:
        pattern = _pattern_of(record.path, schema)
        if pattern is None:
            raise FormatError(f"{where}: array {record.path} is not part of an artifact of kind {kind}")
        spec = schema[pattern]
        if record.dtype not in spec.dtypes or len(record.shape) != len(spec.dims):
            raise FormatError(
                f"{where}: array {record.path} is {record.dtype} with {len(record.shape)} dimensions, expected"
                f" {' or '.join(spec.dtypes)} with dimensions ({', '.join(spec.dims)})"
            )
        for dim, size in zip(spec.dims, record.shape, strict=True):
            _check_size(where, record.path, dim, size, sizes, local)


def check_required(where: str, kind: str, names: Collection[str], version: int = FORMAT_VERSION) -> None:
    """Check that an artifact has the arrays that all of its kind have.

    Args:
        where: the artifact, for messages.
        names: paths of the arrays that it has at its root, or of more.
        version: of the artifact's format. A graph with types has no arrays at its root.

    Raises:
        FormatError: a required array is missing.
    """
    if version == TYPED_VERSION:
        return
    # The number of blocks, shards or cells is not known here, so a pattern with ``*`` may match no array at all.
    needed = sorted(name for name, spec in SCHEMAS[kind].items() if spec.required and "*" not in name)
    missing = [name for name in needed if name not in names]
    if missing:
        raise FormatError(f"{where}: the manifest lacks {', '.join(missing)}")


@cache
def array_files(kind: str) -> re.Pattern[str]:
    """Pattern of the paths below an artifact of a kind: metadata of groups and arrays, and chunks."""
    arrays = [_expression(pattern).pattern for pattern in SCHEMAS[kind]]
    parents = {str(parent) for pattern in SCHEMAS[kind] for parent in PurePosixPath(pattern).parents} - {"."}
    groups = [_expression(parent).pattern for parent in sorted(parents)]
    chunk = rf"(?:{'|'.join(arrays)})/c(?:/\d+)+"
    return re.compile(rf"(?:(?:{'|'.join([*groups, *arrays])})/)?zarr\.json|{chunk}")


def _pattern_of(path: str, schema: Mapping[str, ArraySpec]) -> str | None:
    return next((pattern for pattern in schema if _expression(pattern).fullmatch(path)), None)


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    # ``*`` stands for one component of a path: a number, or the name of a relation or a type. No slashes or dots, and
    # no hyphens, because the file of a section has its path with hyphens.
    return re.compile(re.escape(pattern).replace(r"\*", r"[A-Za-z0-9][A-Za-z0-9_]*"))


def _check_size(
    where: str,
    path: str,
    dim: str,
    size: int,
    sizes: Mapping[str, int],
    local: dict[tuple[str, str], tuple[int, str]],
) -> None:
    base, _, extra = dim.partition("+")
    count = size - int(extra or 0)
    if dim in GLOBAL_DIMS:
        if base not in sizes or sizes[base] != count:
            raise FormatError(
                f"{where}: array {path} has {size} along {dim}, expected {sizes.get(base)} + {extra or 0}"
            )
        return
    # The first array of a folder sets the size, and the others must agree with it.
    folder = path.rpartition("/")[0]
    expected, other = local.setdefault((folder, base), (count, path))
    if expected != count:
        raise FormatError(f"{where}: array {path} has {count} along {base}, array {other} has {expected}")
