"""Files of ``torch.save``, read without torch: zip archives of a pickle and the bytes of the tensors.

The pickle is read more strictly than with ``weights_only=True``; see ``restricted_pickle``. The archive stores
tensors uncompressed, so the tensors of a local file are memory-mapped.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np

from gnnloom.pipeline.sources.binary.archive import data_offset, listed, opened_zip
from gnnloom.pipeline.sources.binary.restricted_pickle import MAX_BYTES, Record, read_pickle
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import reason_of

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
#: Names of tensors that are not read: a file may hold them along with others.
_UNREAD = (
    "torch.BFloat16Storage",
    "torch.ComplexFloatStorage",
    "torch.ComplexDoubleStorage",
    "torch.storage.UntypedStorage",
    "torch.uint16",
    "torch.uint32",
    "torch.uint64",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_tensor_v3",
    "torch.serialization._get_layout",
)
#: Names that a pickle of tensors uses.
ADMITTED = frozenset({TENSOR, "collections.OrderedDict", "torch.Size", *_DTYPES, *_UNREAD})


@dataclass(frozen=True)
class StoredTensor(StoredArray):
    """A tensor within a file of ``torch.save``.

    Attributes:
        name: name of the tensor, for messages.
        strides: elements from one index to the next along each axis, of a view that is read in C order; empty for a
            tensor whose elements lie one after the other.
    """

    name: str = ""
    strides: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.file.location}, {self.name}"

    @property
    def label(self) -> str:
        return self.name

    @property
    def data_end(self) -> int:
        if not self.strides:
            return super().data_end
        return self.data_offset + _span(self.shape, self.strides) * self.dtype.itemsize

    def _mapped(self) -> Any:
        if not self.strides:
            return super()._mapped()
        self._check_length(self.file.path.stat().st_size)
        stored = np.memmap(self.file.path, self.dtype, "r", self.data_offset, (_span(self.shape, self.strides),))
        strides = tuple(stride * self.dtype.itemsize for stride in self.strides)
        # Ranges of the iterator are copies in C order, and only what they hold is read.
        return np.lib.stride_tricks.as_strided(stored, self.shape, strides, writeable=False).flat


class TorchFile:
    """The contents of a file of ``torch.save``; the tensors are not read.

    Attributes:
        content: plain values, containers and records.

    Raises:
        InputError: the file has another format, is damaged or big-endian, or its pickle asks for a name that is not
            allowed.
    """

    def __init__(
        self,
        file: SourceFile,
        admitted: Collection[str],
        most: int = MAX_BYTES,
        remedies: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Read the pickle, which may have ``most`` bytes; ``remedies`` are as for :func:`read_pickle`."""
        self.file, self._most, self._remedies = file, most, remedies
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
            self.content = read_pickle(
                stream,  # type: ignore[arg-type]
                self.file.location,
                allowed,
                self._most,
                remedies=self._remedies,
            )
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

    def tensor(self, record: Any, name: str, *, by_rows: bool = False) -> StoredTensor:
        """The array described by the record of a tensor.

        Args:
            record: a record from :attr:`content`.
            name: name of the tensor, for messages.
            by_rows: read the elements in C order, even if they are stored in Fortran order.

        Raises:
            InputError: the record is not a dense tensor, NumPy does not have its dtype, the tensor exceeds its storage,
                or the tensor is a view in a file that cannot be mapped.
        """
        where = f"{self.file.location}, {name}"
        if not isinstance(record, Record) or record.name != TENSOR:
            raise InputError(f"{where}: expected a dense tensor{_remedy(record)}")
        try:
            (_, kind, key, _, _), first, shape, strides = record.args[:4]
            dtype = np.dtype(_DTYPES.get(kind.name, "V"))
            shape, strides = tuple(map(int, _sizes(shape))), tuple(map(int, _sizes(strides)))
            offset, num_bytes = self._extents[key]
            begin = int(first) * dtype.itemsize
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{where}: a tensor that cannot be read ({reason_of(error)})") from error
        if dtype.kind == "V":
            raise InputError(f"{where}: NumPy has no {kind.name.removesuffix('Storage')}; save tensor.float()")
        # Elements of a view that share bytes, as after expand, could be far more than the storage has.
        span = max(math.prod(shape), _span(shape, strides)) if len(shape) == len(strides) else math.prod(shape)
        if begin < 0 or min(shape + strides, default=0) < 0 or begin + span * dtype.itemsize > num_bytes:
            raise InputError(
                f"{where}: shape {shape} does not lie in its storage of {num_bytes:,} bytes; save tensor.contiguous()"
            )
        tensor = StoredTensor(self.file, None, shape, dtype, False, offset + begin, name)
        if _is_packed(shape, strides):
            return tensor
        if _is_packed(shape[::-1], strides[::-1]) and not by_rows:
            return replace(tensor, fortran_order=True)
        if len(shape) != len(strides) or not tensor.is_mapped:
            raise InputError(f"{where}: a view with strides {strides} of shape {shape}; save tensor.contiguous()")
        return replace(tensor, strides=strides)


def _remedy(record: Any) -> str:
    if not isinstance(record, Record):
        return ""
    if record.name.endswith("_rebuild_sparse_tensor"):
        return ", found a sparse one; save tensor.to_dense()"
    return f", found {record.name}; save tensor.detach().clone()"


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Number of elements of the storage from the first to the last element of a view."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _sizes(value: Any) -> Any:
    """A tuple of sizes, which some versions of torch wrap in a torch.Size."""
    return value.args[0] if isinstance(value, Record) else value


def _is_packed(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the elements lie one after the other in C order."""
    step, fits = 1, len(shape) == len(strides)
    for size, stride in zip(shape[::-1], strides[::-1], strict=False):
        # The stride of an axis with one element is never used and may have any value.
        fits = fits and (size == 1 or stride == step)
        step *= max(1, size)
    return fits
