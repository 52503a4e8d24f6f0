"""METIS partition files (``NAME.part.K``): line v holds the part of vertex v (METIS manual, section 4.1.2)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.errors import ExistsError, InputError, NotFoundError
from gnnloom.storage.format.files import written_aside

#: Vertices written at a time: a few MB of text.
_CHUNK = 1 << 20
#: Characters read of a line: a part has at most ten digits, and blanks around it are allowed.
_LONGEST_LINE = 64


def write_metis_part(partition: Partition, file: Path) -> None:
    """Write a partition to a file, which appears only when it is complete.

    Raises:
        ExistsError: the file exists.
        InputError: its folder does not exist.
    """
    if file.exists():
        raise ExistsError(f"{file}: the file already exists; remove it, or choose another name")
    if not file.parent.is_dir():
        raise InputError(f"{file}: the folder {file.parent} does not exist")
    with written_aside(file, durable=True) as aside, aside.open("w", encoding="ascii") as out:
        for start in range(0, partition.num_vertices, _CHUNK):
            part = partition.part(start, min(start + _CHUNK, partition.num_vertices))
            out.write("\n".join(map(str, part.tolist())) + "\n")


def read_metis_part(file: Path, num_vertices: int, parts: int | None = None) -> tuple[NDArray[np.int32], int]:
    """Read the part of every vertex.

    Args:
        parts: number of parts; by default the highest part in the file plus one.

    Returns:
        (num_vertices,) int32, and the number of parts.

    Raises:
        NotFoundError: the file does not exist.
        InputError: a line is not a part, or the number of lines differs from the number of vertices; names the line.
    """
    if not file.is_file():
        raise NotFoundError(f"{file}: the file does not exist")
    part = np.empty(num_vertices, dtype=np.int32)
    # Without --parts, there are at most as many parts as vertices.
    highest = (parts if parts is not None else min(num_vertices, np.iinfo(np.int32).max)) - 1
    count = 0
    with file.open("rb") as lines:
        # A file without line ends, such as a binary one, would otherwise be read into memory whole.
        while line := lines.readline(_LONGEST_LINE):
            if count == num_vertices:
                raise InputError(f"{file}:{count + 1}: more lines than the {num_vertices:,} vertices of the graph")
            part[count] = _parse(file, count + 1, line, highest)
            count += 1
    if count != num_vertices:
        raise InputError(f"{file}: {count:,} lines, expected one for each of {num_vertices:,} vertices")
    return part, parts if parts is not None else int(part.max(initial=0)) + 1


def _parse(file: Path, number: int, line: bytes, highest: int) -> int:
    text = line.strip()
    # A line of full length may have been cut off. For bytes, isdigit accepts ASCII digits only.
    if not text.isdigit() or len(line) == _LONGEST_LINE or int(text) > highest:
        raise InputError(f"{file}:{number}: expected a part from 0 to {highest}, found {text[:40]!r}")
    return int(text)
