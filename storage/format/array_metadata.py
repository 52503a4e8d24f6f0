"""The metadata of a Zarr array, read and written without Zarr, with the bytes that Zarr writes.

Zarr opens an array through its event loop, which takes a few milliseconds. An artifact has thousands of small arrays,
and a checkpoint dozens.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from gnnloom.storage.disk.files import JsonObject, read_json, written_aside
from gnnloom.storage.errors import CorruptError, InputError

#: Choices of ``--codec``: no compression; compression that takes almost no time; the smallest files.
CODECS: Final = ("none", "fast", "small")
DEFAULT_CODEC: Final = "fast"

METADATA: Final = "zarr.json"

#: Bytes of a decompressed chunk, at most: a small file of a stranger may expand to any size.
MOST_CHUNK_BYTES: Final = 64 << 20
#: Bytes of the metadata of an array, at most.
_MOST_BYTES: Final = 1 << 20
_CHECKSUM: Final[JsonObject] = {"name": "crc32c"}


@dataclass(frozen=True)
class ArrayMetadata:
    """Content of ``zarr.json`` for an array that is split along its first axis only.

    Attributes:
        shape: sizes of the dimensions.
        chunks: shape of a chunk; its first size is the number of rows, and the others are the array's sizes.
        codec: one of :data:`CODECS`.
        dims: names of the dimensions.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    codec: str
    dims: tuple[str, ...]

    def create(self, path: Path) -> None:
        """Make an array in the folder ``path``. The chunks of an equal array stay; any other array is replaced.

        A task may run twice at the same time: after a command is killed, its workers go on for a moment, while the next
        command runs their tasks again. A worker that begins a task then must not remove the chunks that the next
        command has recorded. Both attempts write the same bytes, so every chunk that is there is right or will be
        written again.

        Raises:
            InputError: the codec is not one of :data:`CODECS`.
        """
        if path.exists():
            if self._is_of(path):
                remove_unfinished(path)
            else:
                shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
        self._write(path)

    def _is_of(self, path: Path) -> bool:
        """Whether the array in the folder ``path`` has this metadata, or none yet."""
        try:
            return (path / METADATA).read_bytes() == self.text().encode()
        except FileNotFoundError:
            return True

    def rewrite(self, path: Path) -> None:
        """Replace the metadata of the array in the folder ``path``, and leave its chunks."""
        self._write(path)

    def _write(self, path: Path) -> None:
        # Not synced: tasks sync what they wrote, many files at a time.
        with written_aside(path / METADATA) as aside:
            aside.write_text(self.text(), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> ArrayMetadata:
        """Read the metadata of the array in the folder ``path``.

        Raises:
            OSError, CorruptError, ValueError, KeyError, TypeError: the metadata is missing or damaged.
            InputError: the array has codecs that gnnloom does not write.
        """
        content = read_metadata(path)
        dtype = np.dtype(content["data_type"]).newbyteorder("<")
        return cls(
            shape=tuple(int(size) for size in content["shape"]),
            chunks=tuple(int(size) for size in content["chunk_grid"]["configuration"]["chunk_shape"]),
            dtype=dtype,
            codec=_codec_of(path, content["codecs"], dtype),
            dims=tuple(str(dim) for dim in content.get("dimension_names") or ()),
        )

    # Cached, because a task of many parts has arrays of a few shapes, and Python writes indented JSON slowly.
    @lru_cache(maxsize=1024)  # noqa: B019 - the cache holds small objects, and not many
    def text(self) -> str:
        """The content of the file, as Zarr formats it."""
        return json.dumps(self._to_json(), indent=2)

    def _to_json(self) -> dict[str, Any]:
        # In the order in which Zarr writes the keys.
        return {
            "shape": [int(size) for size in self.shape],
            "data_type": self.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [int(size) for size in self.chunks]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": self.dtype.type(0).item(),
            "codecs": stored_codecs(self.codec, self.dtype),
            "attributes": {},
            "dimension_names": list(self.dims),
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        }


def read_metadata(path: Path) -> dict[str, Any]:
    """The content of ``zarr.json`` of the array in the folder ``path``.

    Raises:
        OSError: the file is missing or cannot be read.
        CorruptError: it is not a file of a JSON object, or too large for one.
    """
    file = path / METADATA
    if file.stat().st_size > _MOST_BYTES:
        raise CorruptError(
            f"{file}: {file.stat().st_size:,} bytes; the metadata of an array has at most {_MOST_BYTES:,}"
        )
    return read_json(file, sealed=False)


def remove_unfinished(array: Path) -> None:
    """Remove the temporary files that killed writers left in the folder of an array."""
    for path in array.glob("**/.*"):
        path.unlink(missing_ok=True)


def stored_codecs(codec: str, dtype: np.dtype[Any]) -> list[JsonObject]:
    """The codecs in the metadata of an array of ``dtype``, for a choice of :data:`CODECS`.

    Chosen by measurement (tests/benchmarks/RESULTS.md): ids gain most from shuffling bytes, floats from shuffling
    bits. All are core codecs of Zarr, so that every Zarr reader can read the arrays.

    Raises:
        InputError: ``codec`` is not one of :data:`CODECS`.
    """
    if codec not in CODECS:
        raise InputError(f"codec {codec!r}: expected one of {', '.join(CODECS)}")
    # The order of bytes means nothing for items of one byte, and Zarr then leaves it out.
    as_bytes = {"name": "bytes", **({"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {})}
    compressor = blosc_settings(codec, dtype)
    # The checksum is the last codec, so it covers the stored bytes: a damaged chunk is found before it is decompressed.
    if compressor is None:
        return [as_bytes, _CHECKSUM]
    return [as_bytes, {"name": "blosc", "configuration": compressor}, _CHECKSUM]


def blosc_settings(codec: str, dtype: np.dtype[Any]) -> Mapping[str, Any] | None:
    """The configuration of the compressor; None for no compression."""
    if codec == "none":
        return None
    name, level, shuffle = ("lz4", 5, "shuffle") if codec == "fast" else ("zstd", 3, "shuffle")
    if codec == "small" and dtype.kind == "f":
        shuffle = "bitshuffle"
    return {"typesize": dtype.itemsize, "cname": name, "clevel": level, "shuffle": shuffle, "blocksize": 0}


def _codec_of(path: Path, codecs: Any, dtype: np.dtype[Any]) -> str:
    """The choice of :data:`CODECS` that an array's codecs came from."""
    for codec in CODECS:
        if codecs == stored_codecs(codec, dtype):
            return codec
    # Chunks are coded without Zarr, so with any other codecs they would be wrong.
    raise InputError(f"{path}: codecs that gnnloom does not write ({codecs})")
