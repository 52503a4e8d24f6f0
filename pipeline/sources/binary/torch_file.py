"""Files of ``torch.save``, read without torch: zip archives of a pickle and the bytes of the tensors.

The pickle is read more strictly than with ``weights_only=True``; see ``restricted_pickle``. The archive stores
tensors uncompressed, so the tensors of a local file are memory-mapped.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from gnnloom.pipeline.sources.binary.archive import data_offset, listed, opened_zip
from gnnloom.pipeline.sources.binary.restricted_pickle import MAX_BYTES, Record, read_pickle
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.storage.errors import InputError

TENSOR = "torch._utils._rebuild_tensor_v2"
_DTYPES = {
    "torch.DoubleStorage": "<f8",
    "torch.FloatStorage": "<f4",
    "torch.HalfStorage": "<f2",
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
    "torch.ShortStorage": "<i2",
    "torch.CharStorage": "i1",
    "torch.ByteStorage": "u1",
    "torch.BoolStorage": "?",
}
#: Names that a pickle of tensors uses.
ADMITTED = frozenset({TENSOR, "collections.OrderedDict", "torch.Size", *_DTYPES})


@dataclass(frozen=True)
class StoredTensor(StoredArray):
    """A tensor within a file of ``torch.save``."""

    name: str = ""

    def __str__(self) -> str:
        return f"{self.file.location}, {self.name}"


class TorchFile:
    """The contents of a file of ``torch.save``; the tensors are not read.

    Attributes:
        content: plain values, containers and records.

    Raises:
        InputError: the file has another format, is damaged or big-endian, or its pickle asks for a name that is not
            allowed.
    """

    def __init__(self, file: SourceFile, admitted: Collection[str], most: int = MAX_BYTES) -> None:
        """Read the pickle, which may have ``most`` bytes."""
        self.file, self._most = file, most
        with opened_zip(file, "not a file of torch.save (torch 1.6 or later), or truncated") as (archive, stored):
            self._read(archive, stored, admitted)

    def _read(self, archive: zipfile.ZipFile, stored: BinaryIO, admitted: Collection[str]) -> None:
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise InputError(
                f"{self.file.location}: not a file of torch.save: expected 1 pickle in it, found {len(names)}"
            )
        root = names[0].removesuffix("data.pkl")
        for info in archive.infolist():
            self._check_stored(info)
        if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
            raise InputError(
                f"{self.file.location}: saved on a big-endian machine; save it again on a little-endian one"
            )
        with archive.open(names[0]) as stream:
            allowed = ADMITTED | set(admitted)
            self.content = read_pickle(stream, self.file.location, allowed, self._most)  # type: ignore[arg-type]
        prefix = f"{root}data/"
        members = [info for info in archive.infolist() if info.filename.startswith(prefix)]
        self._extents = {
            info.filename.removeprefix(prefix): (data_offset(info, stored), info.file_size) for info in members
        }

    def _check_stored(self, info: zipfile.ZipInfo) -> None:
        """Check that a member's bytes lie in the file as they are, so that it takes no more memory than the file."""
        where = f"{self.file.location}: {listed([info.filename])}"
        if info.compress_type != zipfile.ZIP_STORED:
            raise InputError(f"{where} is compressed, which torch.save never does; save the file again with torch.save")
        if info.file_size > (self.file.size or info.file_size):
            raise InputError(f"{where} claims {info.file_size:,} bytes, more than the file has; fetch or save it again")

    def tensor(self, record: Any, name: str) -> StoredTensor:
        """The array described by the record of a tensor.

        Args:
            record: a record from :attr:`content`.
            name: name of the tensor, for messages.

        Raises:
            InputError: the record is not a dense tensor, NumPy does not have its dtype, or the tensor is a strided
                view or exceeds its storage.
        """
        where = f"{self.file.location}, {name}"
        if not isinstance(record, Record) or record.name != TENSOR:
            raise InputError(f"{where}: expected a dense tensor")
        try:
            (_, kind, key, _, _), first, shape, strides = record.args[:4]
            dtype = np.dtype(_DTYPES[kind.name])
            shape, strides = tuple(map(int, _sizes(shape))), tuple(map(int, _sizes(strides)))
            offset, num_bytes = self._extents[key]
            begin = int(first) * dtype.itemsize
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{where}: a tensor that cannot be read ({type(error).__name__}: {error})") from error
        if begin < 0 or min(shape, default=0) < 0 or begin + math.prod(shape) * dtype.itemsize > num_bytes:
            raise InputError(f"{where}: shape {shape} does not lie in its storage of {num_bytes:,} bytes")
        fortran_order = _order(where, shape, strides)
        return StoredTensor(self.file, None, shape, dtype, fortran_order, offset + begin, name)


def _sizes(value: Any) -> Any:
    """A tuple of sizes, which some versions of torch wrap in a torch.Size."""
    return value.args[0] if isinstance(value, Record) else value


def _order(where: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the tensor is stored in Fortran order, rather than in C order."""
    for fortran_order in (False, True):
        step, fits = 1, len(shape) == len(strides)
        axes = range(len(shape)) if fortran_order else range(len(shape) - 1, -1, -1)
        for axis in axes:
            # The stride of an axis with one element is never used and may have any value.
            fits = fits and (shape[axis] == 1 or strides[axis] == step)
            step *= max(1, shape[axis])
        if fits:
            return fortran_order
    raise InputError(f"{where}: a view with strides {strides} of shape {shape}; save tensor.contiguous()")
