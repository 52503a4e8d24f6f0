"""Each way out of torch has one door: the place of tensors makes arrays, as does the transport, which calls MPI."""

from __future__ import annotations

import re
from pathlib import Path

import gnnloom.trainer

TRAINER = Path(gnnloom.trainer.__file__).parent
#: Opens the tensor's memory to compiled code or to MPI.
ARRAY_DOORS = ("place/", "comm/mpi.py")
MPI_DOORS = {"comm/mpi.py"}
#: Implementations; everyone else asks ``kernels.dispatch``.
_BEHIND = "c|table|without_values|sparse_rows|edge_softmax|dropout|elementwise|gemm|pair_scores|rectify"
IMPLEMENTATIONS = re.compile(rf"trainer\.kernels(\.| import \(?[^)]*\b)({_BEHIND})\b")
TO_ARRAY = re.compile(r"\.numpy\(|\.__array__\(|np\.(as)?array\(\w*tensor")


def _lines(root: Path) -> list[tuple[str, str]]:
    """Path below ``root`` and text of every line of every module."""
    return [
        (path.relative_to(root).as_posix(), line)
        for path in sorted(root.rglob("*.py"))
        for line in path.read_text().splitlines()
    ]


def test_the_search_sees_the_doors_themselves() -> None:
    lines = _lines(TRAINER)
    assert any(path == "place/arrays.py" and TO_ARRAY.search(line) for path, line in lines)
    assert all(any(path == door and "mpi4py" in line for path, line in lines) for door in MPI_DOORS)
    assert any(path == "kernels/dispatch.py" and IMPLEMENTATIONS.search(line) for path, line in lines)


def test_tensors_become_arrays_at_their_place_and_in_the_transport_only() -> None:
    found = [where for where in _lines(TRAINER) if TO_ARRAY.search(where[1]) and not where[0].startswith(ARRAY_DOORS)]
    assert found == []


def test_mpi_is_imported_by_the_transport_only() -> None:
    imports = re.compile(r"^\s*(from|import) mpi4py")
    for room in ("trainer", "storage", "pipeline", "workflows"):
        found = {path for path, line in _lines(TRAINER.parent / room) if imports.match(line)}
        assert found == (MPI_DOORS if room == "trainer" else set())


def test_kernels_are_reached_through_the_dispatch_only() -> None:
    found = [
        where for where in _lines(TRAINER) if IMPLEMENTATIONS.search(where[1]) and not where[0].startswith("kernels/")
    ]
    assert found == []


def test_kernels_neither_communicate_nor_know_layouts() -> None:
    upward = re.compile(r"gnnloom\.trainer\.(?!kernels\b|place\b)\w+")
    imports = [line for path, line in _lines(TRAINER / "kernels") if line.startswith(("from ", "import "))]
    assert imports
    assert [line for line in imports if upward.search(line)] == []
    assert [line for line in imports if re.search(r"gnnloom\.storage\.(?!matrix\b|errors\b|kernels\b)", line)] == []
