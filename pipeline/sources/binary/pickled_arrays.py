"""NumPy arrays in pickles, built from the records of a restricted reader."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.restricted_pickle import Record

#: Names of the function that makes an array, in old and new versions of NumPy.
RECONSTRUCT: Final = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
#: Names that a pickle of arrays uses.
ARRAY_NAMES: Final = frozenset({*RECONSTRUCT, "numpy.ndarray", "numpy.dtype", "_codecs.encode"})


def build_array(state: Any) -> NDArray[Any]:
    """Build an array of numbers from the state of its record, checking its size.

    Raises:
        ValueError: it is not an array of numbers. A damaged state raises TypeError, LookupError or AttributeError, too.
    """
    _, shape, dtype, fortran_order, data = state
    code = f"{dtype.state[1]}{dtype.args[0]}"
    if not re.fullmatch(r"[<>|=][iufb][1248]", code):
        raise ValueError(f"an array of dtype {code}, expected numbers")
    if isinstance(data, Record):
        data = data.args[0]  # _codecs.encode(text, "latin1"), which is how older protocols spell bytes
    flat = np.frombuffer(data.encode("latin-1") if isinstance(data, str) else data, code)
    return flat.reshape(tuple(int(size) for size in shape), order="F" if fortran_order else "C")
