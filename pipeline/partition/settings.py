"""The settings of a partition, with the checks that do not depend on the method."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Final

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, check_options, option
from gnnloom.storage.samplers.kind import BATCHES
from gnnloom.storage.wording import counted

WEIGHTS = ("nonzeros", "unit")
#: Value of ``replicate`` that chooses the types by the graph.
AUTO: Final = "auto"
#: Prefix of the weights of the vertices of one type, before the name of the type.
OF_TYPE = "type "
DIRECTIONS = ("forward", "both")
#: Choices of the data that ranks send for a product: rows, or a cover of rows and partial sums.
EXCHANGES = ("rows", "cover")
#: The method that chooses among the others; its presets are the levels of ``quality``.
QUALITY_METHOD = "auto"
#: The default method for models and presets that ``QUALITY_METHOD`` lacks.
NATIVE_METHOD = "mtkahypar"
#: Share of the vertices in a mini-batch, unless another one is given.
BATCH_RATE = 0.06


_option = partial(option, group=Group.PARTITION)


@dataclass(frozen=True)
class PartitionSettings:
    """Settings of a partition; users give :class:`gnnloom.pipeline.partition.options.PartitionOptions`.

    Attributes:
        parts: P, from 1 to the number of vertices.
        method: name of a partitioner; empty for the one that chooses by the graph.
        imbalance: excess of a part over the average weight that is allowed, as a share of the average.
        seed: 0 to 2^31 - 1.
        model: one of the method's models; empty for its first.
        time_limit: seconds that a native partitioner may take, and, for model ``stochastic``, also the work before
            it and the work after it, each; None for no limit.
        threads: threads of a parallel partitioner; None for one per core.  Does not change the result of a
            deterministic preset.
        preset: one of the method's presets; empty for its first.
        weights: weight of a vertex for the balance: its row's ``nonzeros``, or ``unit``.
        directions: ``forward``, or ``both`` to also weigh the rows that the backward pass of a directed graph sends.
        memory_limit: bytes that a native partitioner may allocate, and that ``multilevel`` may hold; None for what
            the machine has.
        batches: for model ``stochastic``: the way mini-batches are drawn, one of ``BATCHES``.
        batch_rate: for model ``stochastic``: vertices drawn for a batch, repeats included, as a share of all.
        exchange: the exchange that is counted, one of ``EXCHANGES``.
        cover_passes: the most passes of cover refinement after the method.
        balance: for graphs with types: the type whose vertices parts share evenly; empty for the work of the vertices.
        reverse: for graphs with types: whether rows are needed for the reverses of the relations, too.
        replicate: for graphs with types: the types whose rows every rank holds, or ``auto`` alone.
        quality: level of quality and time of the method that chooses; empty for other methods.
        method_options: options of the method's own, each as ``name=value``.
    """

    parts: int = _option(text="Number of parts, one per training rank.", kind=int, is_common=True, least=1)
    method: str = ""
    imbalance: float = _option(
        0.01,
        "Maximum excess of a part's work over the average, as a fraction.",
        is_common=True,
        least=0,
        below=math.inf,
    )
    seed: int = _option(0, "Seed of the partitioner.", least=0, most=(1 << 31) - 1)
    model: str = ""
    time_limit: float | None = _option(
        None,
        "Time limit for a native partitioner; with model stochastic, also for the steps before and after it, which"
        " stop at the limit and return their best result so far.",
        group=Group.EXECUTION,
        kind=float,
        above=0,
        metavar="SECONDS",
    )
    threads: int | None = _option(
        None,
        "Threads of a native partitioner.",
        group=Group.EXECUTION,
        kind=int,
        least=1,
        default_text="one per core",
    )
    preset: str = ""
    weights: str = _option("nonzeros", "Work of a vertex: the nonzeros of its row, or 1.", choices=WEIGHTS)
    directions: str = _option(
        "forward",
        "Directed graphs: count only rows that the forward pass sends, or also rows that the backward pass sends.",
        choices=DIRECTIONS,
    )
    memory_limit: int | None = _option(
        None,
        "Memory limit for native partitioners and for the multilevel method's state, such as 8G.",
        group=Group.EXECUTION,
        kind=int,
        is_size=True,
        above=0,
    )
    batches: str = _option(
        "vertex", "Model stochastic: kind of mini-batches.", needs={"model": ("stochastic",)}, choices=BATCHES
    )
    batch_rate: float = _option(
        BATCH_RATE,
        "Model stochastic: vertices per mini-batch, including repeats, as a fraction of all vertices.",
        needs={"model": ("stochastic",)},
        above=0,
        most=1,
    )
    exchange: str = _option(
        "rows",
        "Exchange to measure: rows, or also the rows and partial sums of `gnnloom train --exchange cover`.",
        choices=EXCHANGES,
    )
    cover_passes: int = _option(
        0,
        "With --exchange cover, passes over the vertices that reduce the rows and partial sums to send.",
        needs={"exchange": (EXCHANGES[1],)},
        least=0,
    )
    balance: str = _option(
        "",
        "Graphs with types: balance the number of vertices of this type instead of the nonzeros.",
        metavar="nonzeros|TYPE",
        default_text="nonzeros",
    )
    reverse: bool = _option(
        False,
        "Graphs with types: also count rows that the reverse of each relation needs; the reverses are stored in the"
        " dataset.",
    )
    replicate: tuple[str, ...] = _option(
        (),
        "Graphs with types: keep all rows of some types on every rank instead of in halos; auto chooses small types"
        " that most ranks need anyway.",
        kind=tuple[str, ...],
        metavar="auto|TYPE,...",
    )
    quality: str = ""
    method_options: tuple[str, ...] = _option(
        (), "Options of a method that another package provides, each as name=value.", kind=tuple[str, ...]
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.balance == WEIGHTS[0]:
            object.__setattr__(self, "balance", "")
        if AUTO in self.replicate and len(self.replicate) > 1:
            raise InputError(f"replicate {','.join(self.replicate)}: {AUTO} chooses the types; leave out the names")
        if self.balance and self.weights != WEIGHTS[0]:
            raise InputError(f"balance {self.balance}: already sets the weights of vertices; leave out weights")

    @property
    def weighing(self) -> str:
        """Weight of a vertex in the balance; see :func:`gnnloom.pipeline.partition.model.hypergraph.row_weights`."""
        return f"{OF_TYPE}{self.balance}" if self.balance else self.weights


def check_parts(parts: int, num_vertices: int) -> None:
    """Raise InputError unless ``num_vertices`` vertices can be split into ``parts`` non-empty parts."""
    if parts < 1:
        raise InputError(f"parts={parts}: expected 1 or more")
    if parts > num_vertices:
        raise InputError(
            f"parts={parts}: the graph has {counted(num_vertices, 'vertex')}; ask for no more parts than that"
        )
