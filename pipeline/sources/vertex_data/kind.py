"""The descriptor of a kind of vertex data that does not come with the edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from gnnloom.pipeline.sources import vertex_data
from gnnloom.pipeline.sources.source import MOST_COLUMNS, VertexSource
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.option import Option

#: The options of every kind that reads one file per array.
FILE_OPTIONS: Final = tuple(
    Option(array.name, Path, array.help, is_common=True, metavar="FILE[:COLUMNS]")
    for array in VERTEX_ARRAYS.values()
    if array.help
)
#: The option for the ids of the rows of NumPy arrays.
IDS_FILE: Final = Option(
    "ids_file",
    Path,
    "Ids (numbers or names) for the rows of .npy and .npz files: an .npy file, or TABLE:COLUMN; implies --by-id.",
    metavar="FILE",
)
#: The option for the first lines of text files.
HEADER: Final = Option(
    "header", bool, "Whether the first line of text files names the columns; detected by default.", deniable=True
)
#: The option for numbers in text files.
DECIMAL: Final = Option("decimal", str, "Decimal separator in text files.", ".", choices=(".", ","))
#: The options for cells that are not numbers.
FILLING: Final = (
    Option(
        "missing", str, "How to treat missing features: fail, or fill in 0 or the mean of the column.", "error",
        choices=("error", "0", "mean"),
    ),
    Option("missing_indicator", bool, "Add a column of zeros and ones for each column with missing features."),
    Option("categories", int, "Maximum number of distinct words in a column; each becomes a feature.", 100, least=1),
)  # fmt: skip
#: The option for what is between the fields of text files.
DELIMITER: Final = Option("delimiter", str, "Separator between fields of text files, or tab; detected by default.")
#: The options of every kind that makes its data.
SYNTHETIC_OPTIONS: Final = (
    Option("dim", int, "Number of synthetic features.", 128, least=1, most=MOST_COLUMNS),
    Option("classes", int, "Number of synthetic classes.", 32, least=1, most=MOST_COLUMNS),
    Option("seed", int, "Seed of the synthetic data.", 0, least=0),
)


@dataclass(frozen=True)
class VertexKind:
    """A kind of features, labels and splits.

    Attributes:
        name: value of a recipe's key ``format``.
        order: position in lists of kinds.
        help: description of the data, in one line.
        open: takes the stored :class:`~gnnloom.storage.artifacts.graph.Graph`, or None, and the options as keywords.
            Without a graph the source can only state its identity, unless ``needs_graph`` is False.
        options: options of ``open``.
        needs_graph: whether the data depend on the stored graph.
        is_synthetic: whether the data are generated rather than read.
    """

    name: str
    order: int
    help: str
    open: Callable[..., VertexSource]
    options: tuple[Option, ...]
    needs_graph: bool = True
    is_synthetic: bool = False

    @property
    def by_position(self) -> bool:
        """Whether row k of what is read belongs to vertex k."""
        return not (self.is_synthetic or self.needs_graph)


@cache
def vertex_kinds() -> Mapping[str, VertexKind]:
    """All kinds of vertex data by name, including kinds of other packages."""
    return load_descriptors(vertex_data, "VERTEX_KIND", "gnnloom.vertex_data", VertexKind)
