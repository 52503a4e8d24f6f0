"""The training mode, which defines the computation of an epoch, and the options of modes that sample."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from gnnloom.storage.option import Group
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.trainer.config.fields import Config, DescriptorOptions, check_owner, option
from gnnloom.trainer.modes.kind import ModeKind
from gnnloom.trainer.modes.options import ON_DISK
from gnnloom.trainer.modes.registry import MODES

MODE_OPTIONS = DescriptorOptions(MODES, "mode", Group.SAMPLING, {"sampler": SAMPLERS})
_mode_option = MODE_OPTIONS.field
_option = partial(option, group=Group.SAMPLING)


@dataclass(frozen=True, kw_only=True)
class ModeConfig(Config):
    """A mode and its options. An option of another mode or sampler is refused, because it would have no effect.

    The options of gnnloom's own modes and samplers are fields. Options of other packages are ``mode_options``, each as
    ``name=value``; they count as part of the run's identity if given.
    """

    name: str = _option("full", "What an epoch trains on", name="mode", is_common=True, choices=tuple(MODES))
    batch_size: int = _mode_option("batch_size")
    batches: int = _mode_option("batches")
    sampler: str = _mode_option("sampler")
    frontier: int = _mode_option("frontier")
    enlargement: float = _mode_option("enlargement")
    degree_cap: int = _mode_option("degree_cap")
    walk_length: int = _mode_option("walk_length")
    cluster_parts: int = _mode_option("cluster_parts")
    cluster_key: str = _mode_option("cluster_key")
    parts_per_batch: int = _mode_option("parts_per_batch")
    presamples: int = _mode_option("presamples")
    fanout: tuple[int, ...] = _mode_option("fanout")
    replace: bool = _mode_option("replace")
    draw_once: bool = _mode_option("draw_once", free=True)
    neighbor_sampler: str = _mode_option("neighbor_sampler", free=True)
    samples: str | None = _mode_option("samples")
    propagated: str | None = _mode_option("propagated", free=True)
    steps: tuple[int, ...] = _mode_option("steps", free=True)
    # Free: the place of the features, the cache and the preparation of batches do not change the batches.
    inputs: str = _mode_option("inputs", free=True)
    cache_memory: int = _mode_option("cache_memory", free=True)
    of_type: str | None = _mode_option("of_type", free=True)
    relation: str | None = _mode_option("relation", free=True)
    relation_fanout: tuple[str, ...] = _mode_option("relation_fanout", free=True)
    fanout_total: bool = _mode_option("fanout_total", free=True)
    reverse: bool = _mode_option("reverse", free=True)
    # Free: the data themselves are compared, by their keys.
    vertex_data: tuple[str, ...] = _mode_option("vertex_data", free=True)
    sampler_threads: int = _mode_option("sampler_threads", free=True)
    pool: int = _mode_option("pool", free=True)
    mode_options: tuple[str, ...] = _option(
        (), "Options of modes and samplers from other packages, each as name=value", free=True, kind=tuple[str, ...]
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in [*self.changed(), *MODE_OPTIONS.other_values(self)]:
            check_owner(name, MODES, "mode", self.name)
            check_owner(name, SAMPLERS, "sampler", self.sampler)

    @property
    def kind(self) -> ModeKind:
        """The descriptor of the mode."""
        kind = MODES[self.name]
        return kind.of_types if self.on_types else kind

    @property
    def on_types(self) -> bool:
        """The graph has types: vertices of one type, or pairs of one relation, are predicted."""
        return self.of_type is not None or self.relation is not None

    @property
    def maps_inputs(self) -> bool:
        """The features are not in memory: they are mapped, whole or in the rows of every batch."""
        return self.inputs == ON_DISK

    @property
    def reads_batches(self) -> bool:
        """Batches contain their features, so that no rank has features or rows of the adjacency in memory."""
        return self.samples is not None or (self.maps_inputs and self.kind.is_sampled)

    @property
    def keeps_rows(self) -> bool:
        """Batches read features from disk as they are drawn, and keep the rows of frequent vertices in memory."""
        return self.samples is None and self.reads_batches and "cache_memory" in self.kind.options and not self.on_types

    def own_options(self) -> dict[str, Any]:
        """The options of the mode and of its sampler by name, with defaults filled in."""
        return MODE_OPTIONS.values(self, self.kind.options)
