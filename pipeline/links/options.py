"""The options of links that are drawn from a graph, and of links that files give, and the keys of their artifacts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

from gnnloom.storage.artifacts.links import CLASS, NUMBER, PAIR
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import artifact_key
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.option import Group, check_options, option
from gnnloom.storage.wording import counted

_option = partial(option, group=Group.SAMPLING)
_file = partial(option, None, kind=Path, group=Group.INPUT, metavar="FILE")
#: Order in which edges are held out: by random numbers, or by the times of edges, latest first.
RANDOM, TIME = "random", "time"
#: Kinds of values that pairs in files may have.
VALUES: Final = (CLASS, NUMBER)
#: One more than the largest class: values of files are read as float32, which has all integers up to 2^24.
MOST_CLASS: Final = 1 << 24
#: Choices for the two directions of an edge of a directed graph.
RECIPROCAL_TOGETHER, RECIPROCAL_APART = "together", "apart"

_reciprocal = partial(
    option,
    None,
    "How to hold out an edge whose reverse is also an edge: together with the reverse, or independently.",
    group=Group.SAMPLING,
    choices=(RECIPROCAL_TOGETHER, RECIPROCAL_APART),
    default_text="together if every edge has its reverse, otherwise apart",
)


@dataclass(frozen=True, kw_only=True)
class DrawOptions:
    """Options that decide which edges are held out of a graph."""

    by: str = _option(
        RANDOM,
        "Which edges to hold out: random edges, or the latest edges of a graph that was ingested with --times.",
        is_common=True,
        choices=(RANDOM, TIME),
    )
    times: str | None = _option(
        None,
        "With --by time: another graph of the dataset that has the same edges with their times.",
        default_text="the graph itself",
        metavar="KEY",
    )
    valid: float = _option(0.05, "Fraction of the edges to hold out for validation.", is_common=True, above=0, below=1)
    test: float = _option(0.1, "Fraction of the edges to hold out for testing.", is_common=True, above=0, below=1)
    disjoint: float = _option(
        0.0,
        "Fraction of the remaining edges that become training pairs and are removed from the message graph; 0: all of"
        " them are training pairs, and none is removed.",
        is_common=True,
        below=1,
    )
    negatives: int = _option(
        1,
        "Negatives (pairs that are not edges) per pair for validation and testing; 0 for none.",
        is_common=True,
        least=0,
    )
    seed: int = _option(
        0, "Random seed; with --by time, it chooses among edges with equal times.", is_common=True, least=0
    )
    reciprocal: str | None = _reciprocal()
    relation: str | None = _option(
        None, "In a graph with types: the relation whose edges are the pairs.", metavar="NAME", is_common=True
    )
    values: str | None = _option(
        None,
        "In a graph with types: give each pair its edge's label as a class, or its weight as a number. Pairs with"
        " values get no negatives.",
        choices=VALUES,
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.times is not None and not self.by_time:
            raise InputError(f"times {self.times}: given without --by time")
        if self.values is not None and self.relation is None:
            raise InputError(
                f"values {self.values}: only the edges of a relation have labels (--relation NAME); for a graph without"
                " types, give pairs with their values in files (`gnnloom links NAME file`)"
            )
        if self.valid + self.test >= 1:
            raise InputError(f"valid {self.valid} and test {self.test}: expected a sum below 1, which leaves edges")

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that determine the bytes of the links, besides the graph."""
        found = {"method": "random", **asdict(self)}
        if not self.by_time:
            # Such links have the key that they had before there was another choice.
            del found["by"]
        # That graph is an input of the links.
        del found["times"]
        for name in ("reciprocal", "relation", "values"):
            if found[name] is None:
                del found[name]
        if self.values is not None:
            # No negatives are drawn for pairs with values.
            del found["negatives"]
        return found

    @property
    def kind(self) -> str:
        """Kind of the values of the pairs; ``pair`` if they have none."""
        return self.values or PAIR

    @property
    def num_negatives(self) -> int:
        """Negatives to draw per pair for validation and testing."""
        return 0 if self.values is not None else self.negatives

    @property
    def by_time(self) -> bool:
        """Whether the latest edges are held out."""
        return self.by == TIME

    def check_times(self, graph: object, *, has_times: bool) -> None:
        """Check that the edges of a graph have times if they are chosen by these.

        Args:
            graph: what the error names.

        Raises:
            InputError: they have none.
        """
        if self.by_time and not has_times:
            raise InputError(
                f"{graph}: by time, but the edges have no times; ingest them with --times --merge max, with --add if"
                " the dataset has a graph of the same edges with their weights"
            )

    def ranks(self, num_edges: int) -> tuple[int, ...]:
        """Number of edges for testing, for testing or validation, and for all pairs including disjoint training pairs.

        Raises:
            InputError: a split gets none.
        """
        # Exact: 0.29 * 100 is 28.999999999999996 as a float.
        valid, test, disjoint = (Fraction(str(each)) for each in (self.valid, self.test, self.disjoint))
        counts = {"test": int(test * num_edges), "valid": int(valid * num_edges)}
        if disjoint:
            counts["disjoint"] = int(disjoint * (num_edges - sum(counts.values())))
        if num_edges <= len(counts):
            drawn_from = "the graph" if self.relation is None else f"relation {self.relation}"
            remedy = "choose a graph with more edges, or give the pairs in files (`gnnloom links NAME file`)"
            raise InputError(
                f"{drawn_from} has {counted(num_edges, 'edge')} between different vertices, and these options need"
                f" {len(counts) + 1} or more: one for each of {', '.join(counts)}, and one that stays in the graph;"
                f" {remedy if self.relation is None else 'choose a relation with more edges'}"
            )
        for name, count in counts.items():
            if not count:
                given = f"{name} {getattr(self, name)}"
                raise InputError(f"{given}: of {num_edges:,} edges, this is less than one; use a larger fraction")
        ends: list[int] = []
        for count in counts.values():
            ends.append((ends[-1] if ends else 0) + count)
        return tuple(ends)


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Files with pairs, in any format of edges, and arrays of negatives."""

    train: str | None = _file(
        "Pairs to train on.", is_common=True, default_text="all edges of the graph that are not held out"
    )
    valid: str | None = _file("Pairs for validation.", is_common=True)
    test: str | None = _file("Pairs for testing.", is_common=True)
    valid_negatives: str | None = _file("Negatives that all validation pairs share.")
    test_negatives: str | None = _file("Negatives that all test pairs share.")
    valid_targets: str | None = _file("NumPy array with a row of negative targets for each validation pair.")
    test_targets: str | None = _file("NumPy array with a row of negative targets for each test pair.")
    negatives: int = _option(
        1,
        "Negatives to draw for each pair of a split without negatives; 0 for none.",
        is_common=True,
        least=0,
    )
    seed: int = _option(0, "Seed for drawing edges and negatives.", least=0)
    values: str | None = option(
        None,
        "Read a class or a number of each pair (text and Parquet: the third column).",
        group=Group.INPUT,
        choices=VALUES,
    )
    format: str | None = option(None, "Format of the files.", group=Group.INPUT, default_text="by the file name")
    columns: str | None = option(
        None,
        "Names of the columns; for text files also their numbers, from 1.",
        group=Group.INPUT,
        metavar="SRC,DST[,VALUE]",
        default_text="the first",
    )
    header: bool | None = option(
        None,
        "Whether the first line of text files names the columns; detected by default.",
        group=Group.INPUT,
        kind=bool,
        deniable=True,
    )
    delimiter: str | None = option(
        None,
        "Separator between fields of text files, or tab.",
        group=Group.INPUT,
        default_text="detected",
    )
    extra_columns: bool = option(False, "Ignore further columns of text files.", group=Group.INPUT)
    keep_edges: bool = option(
        False,
        "Hold nothing out: keep edges that are validation or test pairs in the graph.",
        group=Group.INPUT,
    )
    allow_overlap: bool = option(False, "Accept pairs that occur in several splits.", group=Group.INPUT)
    reciprocal: str | None = _reciprocal()
    relation: str | None = _option(
        None,
        "In a graph with types: the relation of the pairs; the columns are ids of its source and its target type.",
        metavar="NAME",
        is_common=True,
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.keep_edges and self.reciprocal is not None:
            raise InputError(f"reciprocal {self.reciprocal}: no edge is held out with keep-edges; give one of the two")
        missing = [split for split in ("valid", "test") if getattr(self, split) is None]
        if missing:
            files = " and ".join(f"--{split} FILE" for split in missing)
            raise InputError(f"{' and '.join(missing)}: no pairs; give them with {files}")


@dataclass(frozen=True, kw_only=True)
class HardOptions:
    """Options that decide which negatives the pairs of links get."""

    negatives: int = _option(
        500, "Negatives of each pair; half replace its target, half its source.", is_common=True, least=2
    )
    features: bool = _option(
        True, "Also rank vertices by their features, if they have features.", is_common=True, deniable=True
    )
    seed: int = _option(0, "Seed for choosing among vertices of equal rank.", is_common=True, least=0)
    relation: str | None = _option(
        None, "In a graph with types: choose the links of this relation, if there are links of several.", metavar="NAME"
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def counts(self) -> tuple[int, int]:
        """Negatives that replace the target, and the source."""
        return self.negatives - self.negatives // 2, self.negatives // 2


def links_key(graph_key: str, options: DrawOptions) -> str:
    """The key of the artifact that :func:`draw_links` makes or finds."""
    return artifact_key("links", options.parameters, link_inputs(graph_key, options))


def link_inputs(graph_key: str, options: DrawOptions) -> dict[str, str]:
    """The artifacts that links are drawn from."""
    return {"graph": graph_key, **({"times": options.times} if options.times not in {None, graph_key} else {})}


def message_key(graph_key: str, links_key: str) -> str:
    """The key of the graph without the edges that these links hold out."""
    return artifact_key("graph", {}, {"graph": graph_key, "links": links_key})


def relation_links_key(graph: str, options: DrawOptions) -> str:
    """The key of the artifact that :func:`draw_relation_links` makes or finds for the graph with this key."""
    return artifact_key("links", options.parameters, {"graph": graph}, TYPED_VERSION)


def kept_graph_key(graph: str, links: str, relation: str) -> str:
    """The key of the graph without the edges of a relation that these links hold out."""
    return artifact_key("graph", {"relation": relation}, {"graph": graph, "links": links}, TYPED_VERSION)
