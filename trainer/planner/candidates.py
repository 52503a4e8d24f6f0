"""Everything that a training could run on, with its forecast: algorithms, process grids and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gnnloom.storage.errors import InputError
from gnnloom.storage.shards.grid_variants import stored_variants
from gnnloom.trainer.algorithms.algorithm import factorizations
from gnnloom.trainer.algorithms.p2p import COVER
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.algorithms.steps import Step, Volume
from gnnloom.trainer.algorithms.workload import Exchange, Workload
from gnnloom.trainer.config.algorithm_config import AlgorithmConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import ROW_SHARDS
from gnnloom.trainer.planner.cost import Cost, epoch_cost
from gnnloom.trainer.planner.describe import GraphFacts, epoch_steps, workload
from gnnloom.trainer.planner.law import ExchangeLaw, KnownPartition
from gnnloom.trainer.planner.memory import project_new_training
from gnnloom.trainer.planner.pair_steps import EXPECTED, PairFacts, add_pairs, align_rows, is_once
from gnnloom.trainer.planner.profile import MachineProfile
from gnnloom.trainer.training.rehearsal.shard_sizes import GridSizes, RowShardSizes, RowSizes, ShardSizes

#: Bytes of a column id and of a row pointer.
_INDEX_BYTES, _POINTER_BYTES = 4, 8

#: Plans whose predicted times are at most this many times the time of the fastest count as equally fast.
CLOSE = 1.05
#: Why the volume of such moves is an estimate.
_MOVES = "expected moves between two random orders"
#: Why the volume of a cover is an estimate.
_UNCOUNTED = (
    "an upper bound, because the partition has no count of its cover (`gnnloom partition --exchange cover` does)"
)


@dataclass(frozen=True)
class Situation:
    """Facts about a graph before training.

    Attributes:
        partitions: measured ones.
        grid_heaviest: nonzeros of the heaviest block of grid shards over the average.
        given_law: a law that is not fitted to ``partitions``.
    """

    graph: GraphFacts
    partitions: Sequence[KnownPartition] = ()
    grid_heaviest: float = 1.0
    given_law: ExchangeLaw | None = None

    @property
    def law(self) -> ExchangeLaw:
        """The law for numbers of parts that no partition has: as given, or fitted to the partitions."""
        return self.given_law or ExchangeLaw.fitted(self.graph.num_vertices, self.graph.nnz, self.partitions)


@dataclass(frozen=True)
class Plan:
    """One way to run a training, and its forecast.

    Attributes:
        partition: method of the partition, if the algorithm needs one, and its key.
        peak_memory: bytes of the busiest rank.
        fits: the memory is enough, or its size is not known.
        estimated: why the volume is an estimate; empty if it is exact.
    """

    config: TrainConfig
    partition: str
    partition_key: str
    cost: Cost
    volume: Volume
    peak_memory: int
    fits: bool
    estimated: str = ""

    @property
    def grid(self) -> list[int]:
        return list(self.config.algorithm.axes.values())

    @property
    def exchange(self) -> str:
        """The exchange of ``p2p``; empty for algorithms without this option."""
        return str(self.config.algorithm.own_options().get("exchange", ""))

    @property
    def bytes_sent(self) -> int:
        """By all ranks in an epoch."""
        return sum(round(count) for count in self.volume.bytes.values())

    def to_json(self) -> dict[str, Any]:
        num_bytes, messages = (
            {kind: round(count) for kind, count in each.items()} for each in (self.volume.bytes, self.volume.messages)
        )
        return {
            "algorithm": self.config.algorithm.name,
            "ranks": self.config.algorithm.ranks,
            "grid": self.grid,
            "precision": self.config.model.precision,
            "exchange": self.exchange,
            "partition": self.partition,
            "partition_key": self.partition_key,
            "epoch_seconds": self.cost.total,
            "compute_seconds": self.cost.compute,
            "exposed_seconds": self.cost.exposed,
            "hidden_seconds": self.cost.hidden,
            "waiting_seconds": self.cost.waiting,
            "seconds_by_kind": {
                "spmm": self.cost.spmm,
                "gemm": self.cost.gemm,
                "passes": self.cost.passes,
                **self.cost.communication,
            },
            "bytes_sent": self.bytes_sent,
            "messages_sent": sum(messages.values()),
            "bytes_by_kind": num_bytes,
            "messages_by_kind": messages,
            "peak_memory": self.peak_memory,
            "fits": self.fits,
            "estimated": self.estimated,
        }


def make_plans(
    config: TrainConfig,
    situation: Situation,
    profile: MachineProfile,
    memory: int = 0,
    algorithms: Sequence[str] = (),
    precisions: Sequence[str] = (),
    exchanges: Sequence[str] = (),
) -> list[Plan]:
    """All ways to train on ``config.ranks`` ranks: plans that fit first, each group fastest first.

    Args:
        config: the model; its algorithm and grid are ignored.
        memory: bytes per rank; 0 for the profile's bytes.
        algorithms: names to consider; by default all that state their steps and run the model.
        precisions: precisions to consider; by default the precision of ``config``.
        exchanges: exchanges of ``p2p`` to consider, on partitions that count them; by default the exchange of
            ``config``, on all partitions.

    Raises:
        InputError: the planner does not know the model, or no algorithm is left.
    """
    limit = memory or profile.memory_per_rank
    plans = []
    for name, algorithm in ALGORITHMS.items():
        # Memory follows from the footprint, and of row shards from the parts themselves.
        known = algorithm.steps is not None and (algorithm.footprint is not None or algorithm.reads is ROW_SHARDS)
        able = known and config.needs <= algorithm.capabilities
        if not able or (algorithms and name not in algorithms):
            continue
        for grid in factorizations(config.algorithm.ranks, len(algorithm.axes)):
            for precision in precisions or (config.model.precision,):
                chosen = config.with_options(algorithm=name, grid=grid, precision=precision)
                plans += [
                    _plan(chosen, situation.graph, each, profile, limit) for each in _ways(chosen.algorithm, situation)
                ]
                lost = frozenset[str]().union(*algorithm.lacks.get("exchange", {}).values())
                if COVER in exchanges and config.algorithm.exchange != COVER and lost and not config.needs & lost:
                    covering = chosen.with_options(exchange=COVER)
                    plans += [
                        _plan(covering, situation.graph, each, profile, limit)
                        for each in _ways(covering.algorithm, situation)
                        if each.key and not each.estimated
                    ]
    if not plans:
        raise InputError(f"no algorithm states what it sends and runs model {config.model.name}")
    return fastest_first(plans)


def fastest_first(plans: Iterable[Plan]) -> list[Plan]:
    """Sort plans: plans that fit first, and each group by time.

    Among the plans that fit and are about as fast as the fastest, the plan that sends the fewest bytes comes first. The
    forecast is not accurate enough to order such plans by time, and messages take longer on a busy network than during
    calibration.
    """
    ordered = sorted(plans, key=lambda plan: (not plan.fits, plan.cost.total))
    fastest = ordered[0]
    close = [plan for plan in ordered if plan.fits == fastest.fits and plan.cost.total <= CLOSE * fastest.cost.total]
    first = min(close, key=lambda plan: plan.bytes_sent)
    return [first, *(plan for plan in ordered if plan is not first)]


def plan_of(config: TrainConfig, situation: Situation, profile: MachineProfile, partition_key: str = "") -> Plan:
    """The forecast of one training, on its own algorithm, process grid and partition.

    Args:
        partition_key: of the partition that the shards follow, if they do.

    Raises:
        InputError: the planner does not know the model, the mode, the algorithm or the partition.
    """
    chosen = config.with_options(grid=tuple(config.algorithm.axes.values()))
    ways = [way for way in _ways(chosen.algorithm, situation) if way.key in {"", partition_key}]
    if not ways:
        raise InputError(f"partition {partition_key}: it is not among the measured ones of the dataset")
    return _plan(chosen, situation.graph, ways[0], profile, profile.memory_per_rank)


def fits(memory: int, limit: int) -> bool:
    """Whether a rank that needs ``memory`` bytes has enough; a limit of 0 is not known."""
    return not limit or memory <= limit


@dataclass(frozen=True)
class _Way:
    """Distribution of the vertices over the ranks."""

    partition: str
    key: str
    exchanges: tuple[Exchange, Exchange] | None
    heaviest: float
    estimated: str


def _ways(config: AlgorithmConfig, situation: Situation) -> Iterator[_Way]:
    """The partitions of an algorithm that needs one; a single way for others."""
    if config.kind.reads is not ROW_SHARDS:
        yield _Way("", "", None, situation.grid_heaviest, "")
        return
    known = [each for each in situation.partitions if each.parts == config.ranks]
    covers = config.exchange == COVER
    for each in known:
        why = _UNCOUNTED if covers and each.covers is None and each.parts > 1 else ""
        yield _Way(each.name, each.key, each.exchanges(cover=covers), each.heaviest, why)
    if not known:
        law = situation.law
        exchange = law.at(config.ranks)
        heaviest = law.heaviest if config.ranks > 1 else 1.0
        yield _Way(
            "",
            "",
            None if exchange is None else (exchange, exchange),
            heaviest,
            law.source if exchange is not None else "",
        )


def _plan(config: TrainConfig, graph: GraphFacts, way: _Way, profile: MachineProfile, limit: int) -> Plan:
    work = workload(config, graph, way.exchanges, way.heaviest if config.algorithm.ranks > 1 else 1.0)
    once, each, count = steps_of(config, work, graph.pairs)
    memory = max(project_new_training(config, _sizes(config, graph, way), pairs=graph.pairs).peak_memory)
    # Whether rows move between two random orders in an epoch, which is known on average only.
    moves = any(work.aligns_own(layer) or work.adds_input(layer) for layer in range(work.num_layers))
    draws = graph.pairs is not None and config.algorithm.ranks > 1
    is_average = moves and work.double_order and config.algorithm.kind.reads is not ROW_SHARDS
    return Plan(
        config,
        way.partition,
        way.key,
        epoch_cost(once, profile, work.feature_size).and_times(epoch_cost(each, profile, work.feature_size), count),
        Volume.of(once).and_times(Volume.of(each), count),
        memory,
        fits(memory, limit),
        "; ".join(filter(None, (_MOVES if is_average else way.estimated, EXPECTED if draws else ""))),
    )


def steps_of(config: TrainConfig, work: Workload, pairs: PairFacts | None) -> tuple[list[Step], list[Step], int]:
    """Steps that an epoch does once, steps that it repeats on pairs, and the number of repetitions.

    Raises:
        InputError: the algorithm does not state its steps.
    """
    once = epoch_steps(config.algorithm, work)
    if pairs is None:
        return once, [], 0
    each = [step for step in once if not is_once(step)] + add_pairs(pairs, work, config.algorithm.ranks)
    algorithm = config.algorithm.kind
    if algorithm.footprint is not None:
        footprints = algorithm.footprint(config.algorithm.axes, work.propagates_first)
        each += align_rows(work, config.algorithm.ranks, footprints[-1])
    return [step for step in once if is_once(step)], each, pairs.num_steps


def _sizes(config: TrainConfig, graph: GraphFacts, way: _Way) -> ShardSizes:
    """The sizes of the shards, as if nothing could be compressed."""
    ranks, n = config.algorithm.ranks, graph.num_vertices
    common: dict[str, Any] = {
        "num_vertices": n,
        "num_features": graph.num_features,
        "num_outputs": graph.num_outputs,
        "symmetric": graph.symmetric,
        "weighted": graph.weighted,
    }
    matrix = graph.nnz * _INDEX_BYTES + n * _POINTER_BYTES
    vertex = n * (4 * (0 if config.model.embed else graph.num_features) + _POINTER_BYTES)
    if config.algorithm.kind.reads is not ROW_SHARDS:
        is_double = config.data.permutation in {None, "double"}
        stored = set(stored_variants(symmetric=graph.symmetric, double=is_double).values())
        return GridSizes(
            **common,
            nnz=int(graph.nnz * way.heaviest),
            is_double=is_double,
            variant_bytes=dict.fromkeys(stored, matrix),
            order_bytes=vertex,
        )
    moved = int(way.exchanges[0].busiest_rows) if way.exchanges else 0
    busiest = RowShardSizes(
        own=-(-n // ranks),
        sent=moved,
        halo=moved,
        nonzeros=int(graph.nnz / ranks * way.heaviest),
        read_bytes=(matrix + vertex) // ranks,
    )
    # One rank stands for all: the busiest decides.
    return RowSizes(**common, ranks=(busiest,), index_bytes=_INDEX_BYTES)
