"""What placing and refining the vertices of a level will do, counted with the numbers of tasks that the rounds take."""

from __future__ import annotations

from collections.abc import Iterator

from gnnloom.pipeline.partition.multilevel.level_size import LevelSize, Setting, even_phase, piece_phase, split_phase
from gnnloom.pipeline.partition.multilevel.move_rounds import ROUNDS
from gnnloom.pipeline.partition.multilevel.net_updates import UPDATE_BYTES
from gnnloom.pipeline.partition.multilevel.pieces import net_tasks, round_tasks, writing_tasks
from gnnloom.pipeline.partition.multilevel.refine import Refinement
from gnnloom.pipeline.tasks.phase_counts import PhaseCount

#: Bytes of a part; of a weight, an offset or a load.
_PART, _NUMBER = 4, 8
#: Bytes of a move, and of a class of moves with its weight.
_MOVE = 16


def place_counts(level: LevelSize) -> Iterator[PhaseCount]:
    """Count the phases of ``deal_heavy_first``; at most, every vertex of a piece has another weight."""
    yield piece_phase("count weights", level.num_vertices, 1, _NUMBER, 2 * _NUMBER)
    # The weights and their counts and ranks, and four files of what the parts get.
    yield piece_phase("place vertices", level.num_vertices, 7, _NUMBER + 3 * _NUMBER, _PART)


def inherit_counts(level: LevelSize) -> Iterator[PhaseCount]:
    """Count the phase of ``inherit_parts``."""
    yield piece_phase("inherit parts", level.num_vertices, 2, level.label_bytes + _PART, _PART)


def load_counts(level: LevelSize, parts: int) -> Iterator[PhaseCount]:
    """Count the phase of ``part_loads``."""
    yield piece_phase("sum loads", level.num_vertices, 2, _NUMBER + _PART, 0, extra=_NUMBER * parts)


def refine_counts(level: LevelSize, setting: Setting, refinement: Refinement) -> Iterator[PhaseCount]:
    """Count the phases of ``refine``, in which at most all vertices of a round move."""
    passes, weighted = refinement.passes, int(level.is_weighted)
    words = refinement.num_words(level.num_nets)
    windows = passes * len(refinement.windows(level.num_nets))
    masks = 2 * _NUMBER * words * level.num_nets
    yield from load_counts(level, setting.parts)
    nets, read = net_tasks(level.num_pins), level.bytes_of_nets + _PART * level.num_pins
    yield even_phase("fill masks", nets, 4, read, masks, repeats=windows)
    if not level.is_for_tasks:
        return
    read += weighted * _NUMBER * level.num_nets
    yield even_phase("count cut", nets, 3 + weighted, read, 0, repeats=passes + 1)
    yield piece_phase("keep parts", level.num_vertices, 1, _PART, _PART, repeats=passes + 1)
    yield from _moves(level, setting, words, windows * ROUNDS)


def _moves(level: LevelSize, setting: Setting, words: int, repeats: int) -> Iterator[PhaseCount]:
    """Count the phases of a round."""
    vertices, pins = -(-level.num_vertices // ROUNDS), -(-level.num_pins // ROUNDS)
    weighted = int(level.is_weighted)
    moves, mask = _MOVE * vertices, 2 * _NUMBER * words
    wanted = round_tasks(level.num_vertices // ROUNDS, setting.workers)
    proposing = round_tasks(vertices, setting.workers)
    state = 2 * _NUMBER * setting.parts
    read = pins * (level.net_bytes + mask + weighted * _NUMBER) + vertices * (2 * _NUMBER + _PART) + proposing * state
    yield even_phase("propose moves", proposing, 6 + weighted, read, 2 * moves, repeats=repeats)
    updates = UPDATE_BYTES * pins
    spreading = writing_tasks(wanted, updates, wanted)
    read = moves + pins * level.net_bytes + 2 * _NUMBER * vertices + spreading * state
    written = updates + _PART * vertices
    yield split_phase("spread moves", spreading, 4, proposing, read, written, repeats=repeats)
    # Pins leave in one scan of the updates, and join in another.
    read, masks = 2 * updates + mask * level.num_nets, mask * level.num_nets
    yield even_phase("change masks", wanted, 1, read, masks, lanes=(spreading,), repeats=repeats)
