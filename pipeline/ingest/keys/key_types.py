"""The two types of keys, ids (numbers) and names, with everything that differs between them in the sort."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.radix import sort_few, sort_keys
from gnnloom.pipeline.ingest.tables.id_numbers import first_fault, read_numbers
from gnnloom.pipeline.sources.names import HINT, NameChunk, NamedEdgeSource, Names
from gnnloom.pipeline.sources.parsers.numerals import NO_ID, REASONS
from gnnloom.pipeline.sources.source import EdgeChunk, EdgeSource, SourceRange
from gnnloom.storage.errors import InputError

#: Leading bytes of a name that a sample keeps: enough to cut at, and short even if names have 65,536 bytes.
_SAMPLE_BYTES = 64

Keys = TypeVar("Keys")
#: Reads elements of one of the arrays in which keys are stored: number of the array, first element, and the end.
Elements = Callable[[int, int, int], NDArray[Any]]
Ends = NDArray[np.int32]
Ids = NDArray[np.int64]


class KeyType(Protocol[Keys]):
    """Operations on keys that the sort needs.

    Attributes:
        widths: bytes of an element of each array in which keys are stored; the first has one for each key.
        memory: bytes of memory that sorting takes for each element.
    """

    widths: tuple[int, ...]
    memory: tuple[int, ...]

    def chunks(self, source: EdgeSource, span: SourceRange, /) -> Iterator[EdgeChunk | NameChunk]:
        """Read a range of a source."""
        ...

    def gathered(self, ends: Sequence[Any], /) -> tuple[Keys, Ends]:
        """The keys of some ends of edges, in any order, and where each is.

        Args:
            ends: the keys of each end of some edges, as a chunk of the source has them.

        Returns:
            The keys; (num_ends, num_edges) int32 position of each end among them.

        Raises:
            InputError: a name is not an id.
        """
        ...

    def distinct(self, parts: Sequence[Keys], /) -> tuple[Keys, Ends]:
        """The distinct keys of all parts, ascending, and (num_keys,) int32 position of every key among them."""
        ...

    def chosen(self, keys: Keys, some: NDArray[np.bool_], /) -> Keys:
        """Some of the keys, given by a mask, in their order."""
        ...

    def arrays(self, keys: Keys, /) -> tuple[NDArray[Any], ...]:
        """The arrays in which ascending keys are stored."""
        ...

    def read(self, elements: Elements, start: int, stop: int, /) -> Keys:
        """Read keys ``start`` to ``stop`` from the arrays in which they are stored."""
        ...

    def counts(self, elements: Elements, start: int, stop: int, /) -> tuple[int, ...]:
        """Elements of each array that keys ``start`` to ``stop`` take."""
        ...

    def key(self, keys: Keys, number: int, /) -> Any:
        """One key, to be compared with others."""
        ...

    def to_json(self, keys: Keys, number: int, /) -> Any:
        """One key for a sample; it may be cut off."""
        ...

    def from_json(self, sample: Any, /) -> Any:
        """A key of a sample, to be compared with others."""
        ...


class IdKeys:
    """Ids; implements :class:`KeyType`.

    id    (num_keys,) int64
    """

    widths: tuple[int, ...] = (8,)
    # The ids as given, joined and sorted, with their places and the scratch memory of the sort.
    memory: tuple[int, ...] = (40,)

    def chunks(self, source: EdgeSource, span: SourceRange) -> Iterator[EdgeChunk]:
        return source.read(span)

    def gathered(self, ends: Sequence[Ids | Names]) -> tuple[Ids, Ends]:
        ids = np.concatenate([_ids_of(end) if isinstance(end, Names) else end for end in ends])
        return ids.astype(np.int64, copy=False), np.arange(len(ids), dtype=np.int32).reshape(len(ends), -1)

    def distinct(self, parts: Sequence[Ids]) -> tuple[Ids, Ends]:
        # A negative id becomes one above 2^63.
        ids = np.concatenate(parts).view(np.uint64)
        highest = int(ids.max(initial=0))
        if highest > np.iinfo(np.int64).max:
            raise InputError(f"vertex id {highest - (1 << 64)}: ids start at 0")
        # The sort moves weights along with the keys and does not look at them, so they may be places.
        place = np.arange(len(ids), dtype=np.int32)
        if not sort_few(ids, place):
            spare = np.empty_like(ids), np.empty(len(ids), np.float32)
            sort_keys(ids, place.view(np.float32), *spare, highest.bit_length())
            del spare
        is_first = np.ones(len(ids), np.bool_)
        np.not_equal(ids[1:], ids[:-1], out=is_first[1:])
        positions = np.empty(len(ids), np.int32)
        positions[place] = np.cumsum(is_first, dtype=np.int32) - 1
        return ids[is_first].view(np.int64), positions

    def chosen(self, keys: Ids, some: NDArray[np.bool_]) -> Ids:
        return keys[some]

    def arrays(self, keys: Ids) -> tuple[NDArray[Any], ...]:
        return (keys,)

    def read(self, elements: Elements, start: int, stop: int) -> Ids:
        return elements(0, start, stop)

    def counts(self, _: Elements, start: int, stop: int) -> tuple[int, ...]:
        return (stop - start,)

    def key(self, keys: Ids, number: int) -> int:
        return int(keys[number])

    def to_json(self, keys: Ids, number: int) -> int:
        return int(keys[number])

    def from_json(self, sample: int) -> int:
        return sample


class NameKeys:
    """Names; implements :class:`KeyType`.

    end     (num_keys,) int64     where each name ends in the text of the block
    text    (text_bytes,) uint8
    """

    widths: tuple[int, ...] = (8, 1)
    # Arrow holds the text as read, joined, distinct and sorted; for each name, offsets, positions and its hash table.
    memory: tuple[int, ...] = (128, 4)

    def chunks(self, source: EdgeSource, span: SourceRange) -> Iterator[NameChunk]:
        return cast("NamedEdgeSource", source).read_names(span)

    def gathered(self, ends: Sequence[Names]) -> tuple[Names, Ends]:
        import pyarrow as pa  # noqa: PLC0415 - only names need it

        # Few of the names of a chunk are distinct, and hashing is much faster than sorting.
        encoded = pa.concat_arrays([end.to_arrow() for end in ends]).dictionary_encode()
        return Names.from_arrow(encoded.dictionary), encoded.indices.to_numpy().reshape(len(ends), -1)

    def distinct(self, parts: Sequence[Names]) -> tuple[Names, Ends]:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        # Hashing first: only distinct names are sorted.
        encoded = pa.concat_arrays([part.to_arrow() for part in parts]).dictionary_encode()
        order = pc.array_sort_indices(encoded.dictionary)
        # Arrow's dictionary is in order of first occurrence; the inverse of the sorting order gives the ranks.
        rank = np.empty(len(order), np.int32)
        rank[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
        return Names.from_arrow(encoded.dictionary.take(order)), rank[encoded.indices.to_numpy()]

    def chosen(self, keys: Names, some: NDArray[np.bool_]) -> Names:
        return Names.from_arrow(keys.to_arrow().take(np.flatnonzero(some)))

    def arrays(self, keys: Names) -> tuple[NDArray[Any], ...]:
        return keys.offset[1:], keys.text

    def read(self, elements: Elements, start: int, stop: int) -> Names:
        first = max(start - 1, 0)
        ends = elements(0, first, stop)
        offset = ends if start else np.concatenate([[0], ends])
        return Names(offset - offset[0], elements(1, int(offset[0]), int(offset[-1])))

    def counts(self, elements: Elements, start: int, stop: int) -> tuple[int, ...]:
        first, last = (int(elements(0, at - 1, at)[0]) if at else 0 for at in (start, stop))
        return stop - start, last - first

    def key(self, keys: Names, number: int) -> bytes:
        return keys.name(number)

    def to_json(self, keys: Names, number: int) -> str:
        return keys.name(number)[:_SAMPLE_BYTES].hex()

    def from_json(self, sample: str) -> bytes:
        return bytes.fromhex(sample)


#: The type of keys by the choice of ``--ids``.
KEY_TYPES: Final[Mapping[str, KeyType[Any]]] = {"compact": IdKeys(), "names": NameKeys()}


def read_chunks(source: EdgeSource, span: SourceRange, ids: Sequence[str]) -> Iterator[EdgeChunk | NameChunk]:
    """Read a range of a source, whose ends have keys of some types.

    Args:
        ids: type of the keys of both ends, or of each.
    """
    # Ends that are numbers are read as text too if the others are names.
    return KEY_TYPES["names" if "names" in ids else "compact"].chunks(source, span)


def _ids_of(names: Names) -> Ids:
    """Names that are ids.

    Raises:
        InputError: one of them is not.
    """
    numbers = np.empty(len(names), np.int64)
    read_numbers(names.offset, names.text, numbers)
    at, fault = first_fault(names.offset, names.text)
    if at < 0 and (numbers < 0).any():
        at, fault = int(np.argmax(numbers < 0)), NO_ID
    if at >= 0:
        found = names.name(at).decode(errors="backslashreplace")
        raise InputError(f"{found!r}: {REASONS[fault]}{HINT}")
    return numbers


def sort_memory(keys: KeyType[Any], counts: Sequence[int]) -> int:
    """Bytes of memory that it takes to sort keys.

    Args:
        counts: number of elements of each of the arrays that hold the keys.
    """
    return sum(memory * count for memory, count in zip(keys.memory, counts, strict=True))
