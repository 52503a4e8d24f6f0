"""What clustering and contracting a level will do, counted with the numbers of tasks that the rounds take."""

from __future__ import annotations

from collections.abc import Iterator

from gnnloom.pipeline.partition.multilevel.cluster_rounds import JOIN_BYTES, ROUNDS
from gnnloom.pipeline.partition.multilevel.clustering import SLOTS
from gnnloom.pipeline.partition.multilevel.contraction_sizes import HASH_BYTES, ContractionSizes
from gnnloom.pipeline.partition.multilevel.level_size import LevelSize, Setting, even_phase, piece_phase, split_phase
from gnnloom.pipeline.partition.multilevel.net_updates import UPDATE_BYTES
from gnnloom.pipeline.partition.multilevel.pieces import net_tasks, reading_tasks, round_tasks, writing_tasks
from gnnloom.pipeline.partition.multilevel.transpose_sizes import TransposeSizes
from gnnloom.pipeline.tasks.phase_counts import PhaseCount

#: Bytes of a weight, an offset, or the number of a net; of a rating.
_NUMBER, _RATING = 8, 4


def cluster_counts(level: LevelSize, setting: Setting, passes: int) -> Iterator[PhaseCount]:
    """Count the phases of ``cluster_in_rounds``, in which at most all vertices of a round choose a cluster.

    Args:
        passes: over the nets and the vertices.
    """
    label, pins = level.label_bytes, level.num_pins
    profile = 2 * SLOTS * label
    nets, weighted = net_tasks(pins), int(level.is_weighted)
    yield piece_phase("begin clusters", level.num_vertices, 1, _NUMBER, _NUMBER + label)
    read = level.bytes_of_nets + weighted * _NUMBER * level.num_nets
    yield even_phase("rate nets", nets, 2 + weighted, read, _RATING * level.num_nets)
    read = level.bytes_of_nets + label * pins + _RATING * level.num_nets
    yield even_phase("fill profiles", nets, 4, read, profile * level.num_nets, repeats=passes)
    yield from _joins(level, setting, profile, passes * ROUNDS)
    yield piece_phase("count clusters", level.num_vertices, 1, _NUMBER, 0)
    # At most every vertex is a cluster.
    yield piece_phase("number clusters", level.num_vertices, 1, _NUMBER, label + _NUMBER)
    yield piece_phase("name clusters", level.num_vertices, 2, 2 * label, label)


def _joins(level: LevelSize, setting: Setting, profile: int, repeats: int) -> Iterator[PhaseCount]:
    """Count the phases of a round."""
    vertices, pins = -(-level.num_vertices // ROUNDS), -(-level.num_pins // ROUNDS)
    label, joins = level.label_bytes, JOIN_BYTES * vertices
    wanted = round_tasks(level.num_vertices // ROUNDS, setting.workers)
    proposing = round_tasks(vertices, setting.workers)
    # Of a pin's net, the rating and the profile, and the weight of every cluster in that.
    read = pins * (level.net_bytes + _RATING + profile + SLOTS * _NUMBER) + vertices * (3 * _NUMBER + label)
    yield even_phase("propose joins", proposing, 7, read, joins, repeats=repeats)
    accepting = reading_tasks(wanted, joins, proposing)
    # A weight of the vertex and of the cluster, and two offsets.
    read = joins + 4 * _NUMBER * vertices
    yield even_phase("accept joins", accepting, 3, read, joins, lanes=(proposing,), repeats=repeats)
    updates, weights = UPDATE_BYTES * pins, 4 * _NUMBER * vertices
    spreading = writing_tasks(wanted, updates, wanted)
    read = joins + pins * level.net_bytes + 3 * _NUMBER * vertices
    written = updates + weights + label * vertices
    yield split_phase("spread joins", spreading, 3, accepting, read, written, repeats=repeats)
    state = profile * level.num_nets + _NUMBER * level.num_vertices
    # Pins leave in one scan of the updates, and join in another.
    read = 2 * updates + _RATING * 2 * pins + weights + state
    lanes = spreading, spreading
    yield even_phase("change clusters", wanted, 3, read, state, lanes=lanes, repeats=repeats)


def contract_counts(level: LevelSize, coarse: LevelSize, setting: Setting) -> Iterator[PhaseCount]:
    """Count the phases of a contraction: those of ``contract_nets``, and the transpose of what is left.

    Args:
        coarse: what is left.
    """
    sizes = ContractionSizes.of(level.num_nets, level.num_pins, setting.memory)
    merging, weighted = 1 << sizes.hash_bits, int(level.is_weighted)
    # Before identical nets are found, at most all nets and pins are left.
    contracted = coarse.label_bytes * level.num_pins + _NUMBER * level.num_nets
    hashes = HASH_BYTES * level.num_nets
    read = level.bytes_of_nets + level.label_bytes * level.num_pins
    written = contracted + hashes + _NUMBER * level.num_nets
    yield even_phase("contract nets", sizes.num_ranges, 3, read, written)
    read = hashes + weighted * _NUMBER * level.num_nets
    kept = 2 * _NUMBER * level.num_nets
    yield even_phase("find identical nets", merging, weighted, read, kept, lanes=(sizes.num_ranges,))
    read = contracted + kept + _NUMBER * level.num_nets
    written = coarse.bytes_of_nets + _NUMBER * coarse.num_nets
    yield even_phase("select nets", sizes.num_ranges, 3, read, written, lanes=(merging,))
    yield even_phase("join nets", sizes.num_ranges, 2, coarse.bytes_of_nets, coarse.bytes_of_nets)


def transpose_counts(coarse: LevelSize, memory: int, workers: int) -> Iterator[PhaseCount]:
    """Count the phases of ``transpose_incidence``, if the pins are spread evenly over the vertices.

    Args:
        memory: bytes for the buffers of a task.
    """
    sizes = TransposeSizes.of(coarse.num_pins, coarse.num_vertices, memory, workers)
    keys = _NUMBER * coarse.num_pins
    index = _NUMBER * sizes.num_ranges * sizes.num_buckets
    yield even_phase("scatter pins", sizes.num_ranges, 2, coarse.bytes_of_nets, keys + index)
    # A bucket that does not fit in memory is scattered once more.
    copies = 1 + (-(-coarse.num_pins // sizes.num_buckets) > sizes.capacity)
    yield even_phase(
        "sort pins",
        sizes.num_buckets,
        0,
        copies * keys + index,
        (copies - 1) * keys + coarse.bytes_of_vertices,
        lanes=(sizes.num_ranges,),
    )
