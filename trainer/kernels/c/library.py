"""Finds and describes the compiled library, and decides whether it is used."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Final

import torch

from gnnloom.storage.errors import MissingPackageError

#: Version of :class:`ProductStruct` and of the functions, as in product.h.
_ABI: Final = 8
#: Numbers of the dtypes in product.h.
DTYPES: Final = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
#: Names of the instruction sets, in the order of spmm.c.
INSTRUCTION_SETS: Final = ("AVX-512", "AVX2", "portable vectors")


#: An array of int64. A ctypes array, because taking the address of a NumPy array costs as much as a short product.
Bounds = ctypes.Array[ctypes.c_int64]


class ProductStruct(ctypes.Structure):
    """``struct gnnloom_product`` of product.h, which describes the fields."""

    _fields_ = (
        ("begin", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("target", ctypes.c_void_p),
        ("columns", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("entries", ctypes.c_int64),
        ("row_scale", ctypes.c_void_p),
        ("column_scale", ctypes.c_void_p),
        ("column_runs", ctypes.c_void_p),
        ("dense", ctypes.c_void_p),
        ("dense_stride", ctypes.c_int64),
        ("out", ctypes.c_void_p),
        ("out_stride", ctypes.c_int64),
        ("dim", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("wide_columns", ctypes.c_int32),
        ("accumulate", ctypes.c_int32),
        ("stream", ctypes.c_int32),
        ("wide_out", ctypes.c_int32),
    )


class Rows(ctypes.Structure):
    """``struct gnnloom_rows`` of rectify.h, which describes the fields."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("passed", ctypes.c_void_p),
        ("vertex", ctypes.c_void_p),
        ("dim", ctypes.c_int64),
        ("first_column", ctypes.c_int64),
        ("key", ctypes.c_uint64),
        ("scale", ctypes.c_double),
        ("threshold", ctypes.c_uint32),
        ("step", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class AttentionStruct(ctypes.Structure):
    """``struct gnnloom_attention`` of attention.h, which describes the fields."""

    _fields_ = (
        ("offsets", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("source", ctypes.c_void_p),
        ("target", ctypes.c_void_p),
        ("row_numbers", ctypes.c_void_p),
        ("maximum", ctypes.c_void_p),
        ("total", ctypes.c_void_p),
        ("weighted", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("gradient", ctypes.c_void_p),
        ("of_values", ctypes.c_void_p),
        ("of_source", ctypes.c_void_p),
        ("of_target", ctypes.c_void_p),
        ("hubs", ctypes.c_void_p),
        ("of_hubs", ctypes.c_void_p),
        ("num_hubs", ctypes.c_int64),
        ("hub_columns", ctypes.c_int64),
        ("first_range", ctypes.c_int64),
        ("num_entries", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("dim", ctypes.c_int64),
        ("slope", ctypes.c_double),
        ("step", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("wide_ids", ctypes.c_int32),
        ("begins", ctypes.c_int32),
    )


class HeadsStruct(ctypes.Structure):
    """``struct gnnloom_heads`` of attention.h, which describes the fields."""

    _fields_ = (
        ("first", ctypes.c_void_p),
        ("second", ctypes.c_void_p),
        ("other", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("other_sums", ctypes.c_void_p),
        ("gradient", ctypes.c_void_p),
        ("partial", ctypes.c_void_p),
        ("num_rows", ctypes.c_int64),
        ("num_others", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("dim", ctypes.c_int64),
        ("chunk", ctypes.c_int64),
        ("step", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("vectors", ctypes.c_int32),
    )


class Library:
    """The functions of the compiled library, for one instruction set."""

    def __init__(self, loaded: ctypes.CDLL, instruction_set: int) -> None:
        self._multiply = loaded.gnnloom_spmm
        numbers = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        self._multiply.argtypes = (ctypes.POINTER(ProductStruct), *numbers, ctypes.c_void_p, ctypes.c_int32)
        self._multiply.restype = None
        self._attend, self._heads = loaded.gnnloom_attend, loaded.gnnloom_heads
        self._attend.argtypes = (ctypes.POINTER(AttentionStruct), *numbers, ctypes.c_void_p, ctypes.c_int32)
        self._attend.restype = ctypes.c_int32
        self._heads.argtypes = (ctypes.POINTER(HeadsStruct), *numbers, ctypes.c_void_p, ctypes.c_int32)
        self._heads.restype = None
        self._rows = loaded.gnnloom_rows
        self._rows.argtypes = ctypes.POINTER(Rows), ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
        self._rows.restype = None
        self._number = instruction_set
        self._team = _openmp_team()

    @property
    def instruction_set(self) -> str:
        return INSTRUCTION_SETS[self._number]

    @property
    def has_threads(self) -> bool:
        """Whether :meth:`multiply` can use several threads."""
        return self._team is not None

    def multiply(self, product: ProductStruct, bounds: Bounds, num_threads: int = 1) -> None:
        """Compute ranges of rows of a product's list, each on one of some threads. Releases the GIL.

        Args:
            bounds: (num_ranges + 1,) positions in the list at which ranges begin and end.
        """
        self._multiply(product, bounds, len(bounds) - 1, self._number, self._team, num_threads)

    def attend(self, given: AttentionStruct, bounds: Bounds, num_threads: int = 1) -> None:
        """Compute ranges of rows or columns of a step of attention, as :meth:`multiply` does.

        Raises:
            MemoryError: there is no memory for the sums of a row.
        """
        if not self._attend(given, bounds, len(bounds) - 1, self._number, self._team, num_threads):
            raise MemoryError(f"attention: no memory for heads of {given.dim} features")

    def heads(self, given: HeadsStruct, bounds: Bounds, num_threads: int = 1) -> None:
        """Compute ranges of chunks of a pass over heads, as :meth:`multiply` does."""
        self._heads(given, bounds, len(bounds) - 1, self._number, self._team, num_threads)

    def rows(self, rows: Rows, start: int, stop: int) -> None:
        """Compute rows ``start`` to ``stop`` of a pass. Releases the GIL."""
        self._rows(rows, start, stop, self._number)


def best_library() -> Library:
    """The library for the best instruction set of this processor.

    Raises:
        MissingPackageError: the library was not built.
    """
    found = _found_library()
    if found is None:
        raise MissingPackageError(
            "the kernels in C were not built when gnnloom was installed: install a C compiler, and then gnnloom again"
        )
    return found


def all_libraries() -> list[Library]:
    """The library for every instruction set of this processor, the best one first; empty if it was not built."""
    loaded = _load()
    if loaded is None:
        return []
    return [Library(loaded, number) for number in range(loaded.gnnloom_best_instruction_set(), len(INSTRUCTION_SETS))]


@cache
def _found_library() -> Library | None:
    return next(iter(all_libraries()), None)


def _load() -> ctypes.CDLL | None:
    # setuptools names the file as one for Python's stable ABI. It uses nothing of Python, so any version loads it.
    path = Path(__file__).with_name("_kernels.abi3.so")
    try:
        loaded = ctypes.CDLL(str(path))
        # An editable install may hold a library of older sources.
        return loaded if loaded.gnnloom_abi() == _ABI else None
    # Not built, built for another processor, or without the function.
    except (OSError, AttributeError):
        return None


def _openmp_team() -> int | None:
    """Address of the function of torch's OpenMP that starts a team of threads; None if torch has another OpenMP.

    A team of torch's own runtime, rather than a pool of Python threads or an OpenMP of our own: its threads are awake
    after torch's products, wait for the next product by spinning, and would compete with the threads of another pool.
    Measured with two threads between products of torch, against the pool of :class:`Threads`: a product of 40 ms takes
    0.6 to 0.85 times as long, one of 1 ms half as long. An OpenMP runtime of our own is as fast, but doubles the number
    of threads.
    """
    try:
        # torch has loaded its runtime for all to see. Clang's and Intel's have this function of GCC's as well.
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except AttributeError:
        return None
