"""Plans a propagation before a rank is started, and summarizes a finished one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gnnloom.storage.artifacts.propagated import COLUMNS, DTYPE, Propagated
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.machine_memory import available_memory
from gnnloom.storage.shards.row_shards import RowShards
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.propagation.memory import MemoryPlan, RankSizes, plan_memory
from gnnloom.trainer.propagation.source_rows import PROPAGABLE
from gnnloom.trainer.propagation.steps import Propagation

#: Share of the free memory that ranks use unless they are told otherwise.
_SHARE: Final = 0.8


@dataclass(frozen=True)
class PropagationPlan:
    """The plan of all ranks.

    Attributes:
        memory: columns at a time, and the place of the adjacency.
        sizes: of all ranks.
        num_vertices, num_columns: of the matrix.
        num_stored: steps that are stored.
    """

    memory: MemoryPlan
    sizes: Sequence[RankSizes]
    num_vertices: int
    num_columns: int
    num_stored: int

    @property
    def nonzeros(self) -> int:
        """Entries of the adjacency."""
        return sum(each.nnz for each in self.sizes)

    def described(self) -> dict[str, Any]:
        """The plan for people and programs, with the bytes on disk."""
        plan, values = self.memory, DTYPE.itemsize * self.num_vertices * self.num_columns
        return {
            "adjacency": "disk" if plan.on_disk else "memory",
            "columns": self.num_columns,
            "columns_at_a_time": min(plan.width * COLUMNS, self.num_columns),
            "passes": plan.num_passes,
            "nonzeros": self.nonzeros,
            "peak_memory": plan.peak_bytes,
            "bytes_written": self.num_stored * values,
            "temporary_bytes": 0 if plan.num_passes == 1 else values,
        }


def propagation_of(config: PropagateConfig) -> Propagation:
    """The propagation that a configuration describes."""
    return Propagation(config.steps, config.normalization, config.ppr)


def plan_of(
    config: PropagateConfig, shards: RowShards, sizes: Sequence[RankSizes], memory: int, threads: int
) -> PropagationPlan:
    """The plan for row shards.

    Args:
        memory: bytes per rank.
        threads: per rank.

    Raises:
        BudgetError: the memory is too small for any.
        InputError: the matrix has no columns.
    """
    num_columns = PROPAGABLE[config.matrix].width(shards)
    if not num_columns or not shards.num_vertices:
        raise InputError(f"{shards.artifact.path}: the {config.matrix} has no columns or no vertices to propagate")
    return plan_for(config, shards.num_vertices, num_columns, sizes, memory, threads)


def plan_for(
    config: PropagateConfig, num_vertices: int, num_columns: int, sizes: Sequence[RankSizes], memory: int, threads: int
) -> PropagationPlan:
    """The plan for sizes, of shards that need not exist.

    Args:
        num_columns: of the matrix.
        memory: bytes per rank.
        threads: per rank.

    Raises:
        BudgetError: the memory is too small for any.
    """
    what = propagation_of(config)
    plan = plan_memory(
        sizes,
        num_vertices,
        num_columns,
        memory,
        adjacency=config.adjacency,
        matrices=what.matrices,
        threads=threads,
    )
    return PropagationPlan(plan, sizes, num_vertices, num_columns, len(what.stored))


def of_this_machine(config: PropagateConfig) -> tuple[int, int]:
    """Memory and threads of each rank, if all ranks are on this machine."""
    memory = free_memory(config.ranks) if config.memory is None else config.memory
    return memory, config.threads or max(1, len(os.sched_getaffinity(0)) // config.ranks)


def free_memory(ranks: int) -> int:
    """Bytes for each of some ranks of this machine."""
    return int(_SHARE * available_memory()) // ranks


def summary(artifact: Artifact) -> dict[str, Any]:
    """Summary of a finished propagation; ``reused`` unless the caller made it."""
    found = Propagated(artifact)
    measured = artifact.measured.get("run", {})
    return {
        "state": "finished",
        "dataset": artifact.path.parents[1].name,
        "key": artifact.key,
        "digest": artifact.digest,
        **artifact.parameters,
        "stored_steps": list(found.steps),
        "vertices": found.num_vertices,
        "columns": found.num_features,
        **measured,
        "reused": True,
    }
