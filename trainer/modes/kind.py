"""The descriptor of a mode of training."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gnnloom.storage.option import Option
from gnnloom.trainer.modes.batch_sizes import BatchSizes, RankRows


@dataclass(frozen=True, kw_only=True)
class ModeKind:
    """A mode that can be chosen: what an epoch of training computes.

    Attributes:
        name: as given with ``--mode``.
        order: position among the choices; equal ones are sorted by name.
        help: one line of help text.
        source: paper and section.
        place: module and class, a subclass of :class:`gnnloom.trainer.training.modes.mode.Mode`. Named instead of
            imported: the class is in a room above this one, and needs torch.
        is_sampled: an epoch consists of batches. Features and their gradients are then not kept from one to the next.
        ranks_decide: the batches depend on the number of ranks, and so do the losses.
        needs: capabilities that an algorithm must have.
        rows_in_memory: the adjacency must be in memory.
        rows_evaluate: the rows of the shards serve evaluation only, so they stay on disk in training.
        batch: sizes of a rank's share of a batch, from the configuration and the rank's rows; None for the whole graph,
            or if they are not known, and with them the memory.
        options: the mode's own options by name. Modes that share a name share the option.
    """

    name: str
    order: int
    help: str
    source: str
    place: tuple[str, str]
    is_sampled: bool = True
    ranks_decide: bool = False
    needs: frozenset[str] = frozenset()
    rows_in_memory: bool = False
    rows_evaluate: bool = False
    batch: Callable[[Any, RankRows], BatchSizes] | None = None
    options: Mapping[str, Option] = field(default_factory=dict)

    def load(self) -> type[Any]:
        """Import the class."""
        found: type[Any] = getattr(importlib.import_module(self.place[0]), self.place[1])
        return found
