"""Arrays in a mapping that ``torch.save`` wrote: tensors, or NumPy arrays, which are in its pickle.

Tensors are mapped where they lie. NumPy arrays are a part of the pickle, which can only be read as a whole: a task
unpacks each array into a file of its own, like compressed members of archives.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.pickled_arrays import ARRAY_NAMES, RECONSTRUCT, build_array
from gnnloom.pipeline.sources.binary.restricted_pickle import Record, read_pickle
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.binary.torch_file import ADMITTED, TENSOR, TorchFile
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import reason_of

#: Bytes of a pickle with arrays.
MOST_BYTES: Final = 1 << 32
#: The first two pickles in files of torch.save before torch 1.6: a number, and the version of the format.
_OLD: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."


@dataclass(frozen=True)
class PickledArray(StoredArray):
    """An array in a pickle; ``member`` is its name."""

    def __str__(self) -> str:
        return f"{self.file.location}, {self.member}"

    @property
    def is_mapped(self) -> bool:
        return self.unpacked is not None

    @property
    def is_packed(self) -> bool:
        return self.unpacked is None

    @property
    def unpack_memory(self) -> int:
        # The pickle, its text or bytes, and the array.
        return 3 * (self.file.size or 0)

    def write_unpacked(self, file: BinaryIO) -> None:
        content, _ = _load(self.file)
        npy_format.write_array(file, _built(self.file, str(self.member), content[self.member]), version=(1, 0))


def torch_content(file: SourceFile) -> Mapping[str, Any]:
    """The values by their names; values that are not plain are records.

    Raises:
        InputError: as :func:`torch_arrays`.
    """
    return _load(file)[0]


def torch_arrays(file: SourceFile) -> dict[str, StoredArray]:
    """The arrays by their names; other values are left out.

    Raises:
        InputError: the file was not written by torch.save, is damaged, or holds anything but plain values and arrays.
    """
    content, tensors = _load(file)
    found: dict[str, StoredArray] = {}
    for name, value in content.items():
        if isinstance(value, Record) and value.name == TENSOR and tensors is not None:
            found[name] = tensors.tensor(value, name)
        elif isinstance(value, Record) and value.name in RECONSTRUCT:
            found[name] = _described(file, name, _built(file, name, value))
        elif isinstance(value, Record):
            raise InputError(f"{file.location}, {name}: tensors of torch before 1.6; save the file with a newer one")
    return found


def _load(file: SourceFile) -> tuple[dict[Any, Any], TorchFile | None]:
    with file.open() as stream:
        is_old = stream.read(len(_OLD)) == _OLD
        if is_old:
            # What follows says on which machine it was written.
            names = ARRAY_NAMES | ADMITTED
            content, tensors = read_pickle(stream, file.location, names, MOST_BYTES, 1), None
    if not is_old:
        tensors = TorchFile(file, ARRAY_NAMES, MOST_BYTES)
        content = tensors.content
    if not isinstance(content, dict) or isinstance(content, Record) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{file.location}: expected a mapping of arrays by their names")
    return content, tensors


def _built(file: SourceFile, name: str, record: Any) -> NDArray[Any]:
    try:
        return build_array(record.state)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(f"{file.location}, {name}: not an array ({reason_of(error)})") from error


def _described(file: SourceFile, name: str, array: NDArray[Any]) -> PickledArray:
    header = io.BytesIO()
    npy_format.write_array_header_1_0(header, npy_format.header_data_from_array_1_0(array))
    is_fortran = bool(np.isfortran(array))
    return PickledArray(file, name, array.shape, array.dtype, is_fortran, header.tell())
