"""Exact outputs of a rank's vertices whose features, adjacency and activations may all be larger than memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.machine_memory import available_memory, memory_text
from gnnloom.storage.shards.row_shards import RowShard, RowShards
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.passes.column_blocks import Storage
from gnnloom.trainer.passes.memory import WorkingBytes, check_room, granted_memory, matrix_bytes, settle
from gnnloom.trainer.passes.program import write_program
from gnnloom.trainer.passes.projection import DiskRates, Samples
from gnnloom.trainer.passes.range_operator import RangeOperator
from gnnloom.trainer.passes.shard_features import ShardFeatures
from gnnloom.trainer.passes.streamed_layers import Outputs, StreamedLayers
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.propagation.adjacency_product import AdjacencyProduct
from gnnloom.trainer.propagation.memory import RankSizes

if TYPE_CHECKING:
    from gnnloom.trainer.data.open_shards import RunData

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Data that a streamed evaluation reads, on one rank.

    Attributes:
        dataset: that the shards belong to; temporary files are in its folder.
        normalization: of the adjacency; see :mod:`gnnloom.trainer.data.adjacency_scaling`.
        feature_norm: see :func:`gnnloom.trainer.data.vertex_data.settled_feature_norm`.
        memory: bytes that the rank may take; 0 for its share of what is left.
        known_seconds: of an evaluation like this one, if there was one: what the next one is expected to take.
    """

    comm: Communicator
    shards: RunData
    dataset: Dataset
    counter: ReadCounter
    normalization: str
    feature_norm: str
    num_threads: int
    memory: int = 0
    known_seconds: float | None = None


def can_stream(model: Model | type[Model]) -> bool:
    """Whether a model's layers can be run on ranges of rows, with products in between.

    Attention reads the rows of neighbors themselves.
    """
    return model.takes_blocks and model.multiplies and NEIGHBORS not in model.needs


@dataclass(frozen=True)
class Report:
    """Report of a streamed evaluation.

    Attributes:
        columns: most columns of a block.
        on_disk: matrices between the steps were in temporary files.
        disk: maximum bytes of temporary files at one time, over all ranks.
        projected: expected seconds; None if nothing was on disk.
        seconds: that it took.
    """

    columns: int
    on_disk: bool
    disk: int
    projected: float | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def streamed_outputs(
    model: Model, source: Source, *, embeds: bool = False, scored: Tensor | None = None
) -> tuple[Outputs, Report]:
    """The outputs of a model as it is, in evaluation mode, for all vertices. Collective; called without gradients.

    Args:
        embeds: with the last layer's input.
        scored: (num_scored,) int64 this rank's rows whose scores are wanted, ascending; None for all.

    Raises:
        InputError: the shards are not row shards.
        CollectiveError: the shards lack features, or there is no room in memory or on disk.
    """
    # A place of its own, whose memory is free again afterwards.
    place = Place(model.place.feature_dtype, source.num_threads)
    with _in_ranges(model) as operator:
        operator.form_groups()
        outputs, report = _Evaluation(model, operator, source, place, embeds=embeds, scored=scored).run()
    model.place.files.once(outputs.check)
    return outputs, report


@dataclass(frozen=True)
class StatedBytes:
    """Bytes that :func:`streamed_outputs` takes on one rank, stated before it runs.

    Attributes:
        memory: bytes of it at the worst moment.
        temporary: bytes of temporary files; 0 if everything fits in memory.
        mapped: bytes of the files that it maps at one time.
    """

    memory: int
    temporary: int = 0
    mapped: int = 0


def stated_bytes(model: Model, source: Source, shard: RowShard, num_scored: int) -> StatedBytes:
    """Forecast what :func:`streamed_outputs` takes on one rank. Communicates nothing.

    Where nobody says how much memory it may take, it takes a share of what is left on its machine: of this one, as if
    all ranks were here.

    Args:
        shard: of the rank.
        num_scored: rows of the rank whose scores are wanted.

    Raises:
        BudgetError: not even one column of a product fits.
    """
    place, sizes = Place(model.place.feature_dtype, source.num_threads), RankSizes.of(shard)
    memory = granted_memory(source.memory, available_memory(), source.comm.size)
    with _in_ranges(model) as operator:
        program = write_program(model, operator)
    matrices = matrix_bytes(program, sizes.num_rows, model.options.dims[-1], place, num_scored)
    needs = WorkingBytes.of(program, sizes, place, memory, shard.array("feature").chunk_rows)
    whole = needs.whole(matrices)
    if whole <= memory:
        return StatedBytes(whole)
    block = needs.widest_block(needs.width(memory))
    mapped = num_scored * model.options.dims[-1] * place.sum_dtype.itemsize
    return StatedBytes(needs.in_blocks(block.dim), matrices, mapped)


@contextmanager
def _in_ranges(model: Model) -> Iterator[RangeOperator]:
    """Let a model run on ranges of rows inside the block."""
    # The grid of the run, whose groups exist: an MPI job has a limited number of them.
    operator = RangeOperator(model.operator.grid)
    # The cheaper order forward, in the first layer too: no product is kept, and none is differentiated.
    with model.multiplying_by(operator, input_is_kept=False, input_needs_gradient=True):
        yield operator


class _Evaluation:
    def __init__(
        self,
        model: Model,
        operator: RangeOperator,
        source: Source,
        place: Place,
        *,
        embeds: bool,
        scored: Tensor | None,
    ) -> None:
        """Read what stays in memory, and decide what does. Collective."""
        self._started, self._source, self._comm = time.perf_counter(), source, source.comm
        self._embeds, self._scored = embeds, scored
        if not isinstance(source.shards, RowShards):
            raise InputError(f"{source.shards.artifact.path}: only row shards are evaluated from disk")
        shard = source.shards.shard(self._comm.rank, source.counter, on_disk=True)

        def opened() -> tuple[AdjacencyProduct, ShardFeatures]:
            product = AdjacencyProduct(self._comm, shard, source.normalization, place)
            return product, ShardFeatures(shard, place)

        self._product, self._feature = together(self._comm, opened)
        self._product.exchanged.agree()
        self._feature.settle(source.feature_norm, self._comm)
        self._program = write_program(model, operator)
        sizes, dims = RankSizes.of(shard), model.options.dims
        outputs = dims[-1] + (dims[-2] if embeds and model.num_layers > 1 else 0)
        num_scored = None if scored is None else len(scored)
        self._matrices = matrix_bytes(self._program, sizes.num_rows, outputs, place, num_scored)
        self._shape = shape = settle(
            self._comm, self._program, sizes, self._matrices, place, source.memory, self._feature.chunk_rows
        )
        folder = source.dataset.path if shape.on_disk else None
        storage = Storage(folder, shape.width, shape.range_rows, shape.keeps_pages)
        self._layers = StreamedLayers(model, operator, self._product, self._feature, storage)

    def run(self) -> tuple[Outputs, Report]:
        """Collective."""
        projected = self._projected() if self._shape.on_disk else None
        begun = time.perf_counter()
        outputs = self._layers.run(self._program, embeds=self._embeds, scored=self._scored)
        seconds = float(self._comm.gather_numbers([time.perf_counter() - begun]).max())
        disk = self._disk_bytes() if self._shape.on_disk else 0
        return outputs, Report(self._shape.width, self._shape.on_disk, disk, projected, seconds)

    def _disk_bytes(self) -> int:
        return int(self._comm.gather_numbers([self._matrices]).sum())

    def _projected(self) -> float:
        """Say what the evaluation will take. Collective."""
        source, disk = self._source, self._disk_bytes()
        together(self._comm, lambda: check_room(source.dataset.path, disk) if self._comm.rank == 0 else None)
        seconds = self._sampled_seconds() if source.known_seconds is None else source.known_seconds
        if self._comm.rank == 0:
            # It may take minutes where an epoch takes seconds; a run says so once.
            logger.log(
                logging.WARNING if source.known_seconds is None else logging.INFO,
                "evaluation from disk: products of %d columns at a time, %s of temporary files, about %.0f s",
                self._shape.width,
                memory_text(disk),
                seconds,
            )
        return seconds

    def _sampled_seconds(self) -> float:
        """The time of the slowest rank, from samples of its work. Collective."""
        source, shape = self._source, self._shape
        folder, cached = source.dataset.path, shape.keeps_pages
        rates = together(self._comm, lambda: DiskRates.measured(folder, self._matrices, cached=cached))
        samples = Samples(self._layers, self._product, self._feature, rates)
        seconds = together(self._comm, lambda: samples.seconds(self._program, shape.width))
        return float(self._comm.gather_numbers([seconds]).max())
