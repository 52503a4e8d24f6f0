"""Parses eight digits at once, with instructions that numba has no function for. Imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, njit, types
from numba.core.registry import cpu_target

#: Typed as Any because numba's annotations make callers pass the typing context.
_intrinsic: Any = extending.intrinsic


@_intrinsic  # type: ignore[untyped-decorator]
def _load_eight(typing_context: Any, text: Any, at: Any) -> Any:  # noqa: ARG001 - numba's signature
    """Load eight bytes as one little-endian word, aligned or not."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        word = builder.load(pointer)
        # Otherwise LLVM assumes the natural alignment of a word of eight bytes.
        word.align = 1
        return word

    return types.uint64(text, types.intp), codegen


@_intrinsic  # type: ignore[untyped-decorator]
def _trailing_zeros(typing_context: Any, word: Any) -> Any:  # noqa: ARG001 - numba's signature
    """Number of zero bits below the lowest one bit of a word that is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


# A kernel for which this module is imported, while it is compiled, would not know the functions otherwise.
cpu_target.typing_context.refresh()


@njit(cache=True, nogil=True, inline="always")
def up_to_eight_digits(text: Any, at: int) -> tuple[Any, Any]:
    """The number formed by the leading digits of the next eight bytes, and the number of those digits.

    All bytes are processed at once. After the exclusive or, a digit is 0 to 9. Adding 0x76 sets the high bit of every
    byte that is greater; a carry only affects bytes after the first that is not a digit. Three multiplications then
    combine pairs, fours and eights (Lemire, "Quickly parsing eight digits", 2018).
    """
    digits = _load_eight(text, at) ^ np.uint64(0x3030303030303030)
    others = ((digits + np.uint64(0x7676767676767676)) | digits) & np.uint64(0x8080808080808080)
    count = np.uint64(8)
    if others:
        count = _trailing_zeros(others) >> np.uint64(3)
        if count == 0:
            return 0, 0
        # The first digit is in the lowest byte: shifting up makes the missing digits leading zeros.
        digits <<= np.uint64(64) - (count << np.uint64(3))
    digits = digits * np.uint64(10) + (digits >> np.uint64(8))
    low = (digits & np.uint64(0x000000FF000000FF)) * np.uint64(0x000F424000000064)
    high = ((digits >> np.uint64(16)) & np.uint64(0x000000FF000000FF)) * np.uint64(0x0000271000000001)
    return np.int64((low + high) >> np.uint64(32)), np.int64(count)
