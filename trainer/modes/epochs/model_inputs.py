"""Opens the input of a model on one rank: features in memory, learned, in mapped files, or only in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from gnnloom.storage.artifacts.samples import Samples
from gnnloom.storage.artifacts.typed.typed_samples import TypedSamples
from gnnloom.storage.shards.row_shards import RowShard
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.learned_features import first_features
from gnnloom.trainer.data.open_shards import VertexRows
from gnnloom.trainer.data.owners import RangeOwners
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.data.stored_rows import StoredRows
from gnnloom.trainer.data.typed_vertices import TypedVertices
from gnnloom.trainer.data.vertex_data import normalize_feature, settled_feature_norm
from gnnloom.trainer.feed.feature_view import FeatureView, LearnedFeatures
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import PartialParameter, vertex_piece
from gnnloom.trainer.layout.redistribute import split_rows
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.passes.shard_features import ShardFeatures
from gnnloom.trainer.place.mapped_rows import MappedRows, UnbackedRows

if TYPE_CHECKING:
    # A job on row shards need not load it.
    from gnnloom.trainer.loader.typed import TypedViews

#: Minimum number of columns of mapped features per product: fewer columns would use only a small part of each page.
_LEAST_COLUMNS: Final = 64


class ModelInputs(ABC):
    """The input of a model on one rank: opened with the shards, and taken once by the model.

    Attributes:
        norm: how the features are scaled, ``row`` or ``none``; ``auto`` until :meth:`take` has settled it. See
            :func:`gnnloom.trainer.data.vertex_data.normalize_feature`.
        samples: stored batches with their features; None if there are none.
    """

    samples: Samples | None = None

    def __init__(self, norm: str) -> None:
        self.norm = norm

    @property
    def nbytes(self) -> int:
        """Bytes of features that were read into memory together with the shards."""
        return 0

    @abstractmethod
    def take(self, model: Model) -> Inputs:
        """The input of a model: features, learned features, or the constant part of the first layer. Collective."""


class NoInputs(ModelInputs):
    """The features stay on disk, for an evaluation from disk, or are not needed."""

    def take(self, model: Model) -> Inputs:
        raise ValueError(f"model {type(model).__name__}: its input was not opened")


@dataclass(frozen=True)
class InputUse:
    """Use of the features by a model on the whole graph.

    Attributes:
        trains: the features are parameters.
        has_gradient: the gradient of the features is formed.
        is_cached: the first layer's product with the features is kept.
    """

    trains: bool
    has_gradient: bool
    is_cached: bool


class FeaturesInMemory(ModelInputs):
    """Features that were read with the shards; they are freed as soon as the model does not need them."""

    def __init__(self, feature: Tensor, norm: str, use: InputUse, num_vertices: int) -> None:
        """Keep the features.

        Args:
            feature: (num_rows, num_features) whole rows.
            num_vertices: number of vertices of the whole graph.
        """
        super().__init__(norm)
        self._use, self._num_vertices = use, num_vertices
        self._feature: Tensor | None = feature

    @property
    def nbytes(self) -> int:
        return 0 if self._feature is None else self._feature.nbytes

    def take(self, model: Model) -> Inputs:
        read, self._feature = self._feature, None
        if read is None:
            raise ValueError("the input of a model can be taken only once")
        grid, layout = model.operator.grid, model.operator.layout(0)
        # Normalized first, while rows are whole: the sum over a row needs all columns.
        self.norm = settled_feature_norm(read, self.norm, grid.comm)
        feature = normalize_feature(read, self.norm, grid.place)
        del read
        if self._use.trains:
            return Inputs(model.train_features(split_rows(feature, layout), self._num_vertices))
        feature = split_rows(model.as_features(feature), layout)
        if self._use.has_gradient:
            return Inputs(feature.requires_grad_())
        if not self._use.is_cached:
            return Inputs(feature)
        with torch.no_grad():
            return model.keep(feature)


class LearnedInputs(ModelInputs):
    """Learned features; their initial values depend on the seed and the vertex."""

    def __init__(self, width: int, seed: int, num_vertices: int) -> None:
        super().__init__("none")
        self._width, self._seed, self._num_vertices = width, seed, num_vertices

    def take(self, model: Model) -> Inputs:
        layout, width = model.operator.layout(0), self._width
        feature = first_features(layout.vertex, layout.columns(width), width, self._seed, model.place)
        return Inputs(model.train_features(feature, self._num_vertices))


class FeaturesOnDisk(ModelInputs):
    """Features of a rank's vertices that its row shard has on disk."""

    def __init__(self, rows: VertexRows, norm: str) -> None:
        super().__init__(norm)
        self._rows = rows

    def _settled(self, model: Model) -> ShardFeatures | None:
        """Open the features, and settle how they are scaled; None if they are not in a row shard. Collective."""
        if not isinstance(self._rows, RowShard):
            self.norm = "none" if self.norm == "auto" else self.norm
            return None
        rows = ShardFeatures(self._rows, model.place)
        rows.settle(self.norm, model.operator.grid.comm)
        self.norm = rows.norm
        return rows


class MappedInputs(FeaturesOnDisk):
    """Features in a file that the rank maps, or their product with the adjacency that is kept."""

    def __init__(self, rows: VertexRows, norm: str, folder: Path, *, is_cached: bool) -> None:
        """Make no file yet.

        Args:
            folder: folder for the files.
            is_cached: the first layer's product with the features is kept.
        """
        super().__init__(rows, norm)
        self._folder, self._is_cached = folder, is_cached

    def take(self, model: Model) -> Inputs:
        rows = self._settled(model)
        with torch.no_grad():
            kept = self._kept(model, rows) if self._is_cached else None
        return kept or Inputs(self._copied(model, rows))

    def _copied(self, model: Model, rows: ShardFeatures | None) -> Tensor:
        """The features in a file."""
        feature = self._mapped(model, "features", (model.operator.layout(0).num_rows, model.options.dims[0]))
        if rows is not None:
            together(model.operator.grid.comm, lambda: rows.copy_to(feature))
        return feature.tensor

    def _kept(self, model: Model, rows: ShardFeatures | None) -> Inputs | None:
        """The inputs that the model keeps, in files; None if it keeps only the features.

        The product is computed for one range of columns at a time, as wide as the widest hidden layer. The columns are
        read from the shard, because a copy of all features would take as much disk space as the product.
        """
        place, width, num_rows = model.place, model.options.dims[0], model.operator.layout(0).num_rows
        step, product, has_own = max(_LEAST_COLUMNS, *model.options.dims[1:-1]), None, False
        for start in range(0, width, step):
            columns = slice(start, min(start + step, width))
            feature = place.empty((num_rows, columns.stop - start), place.feature_dtype)
            if rows is not None:
                together(model.operator.grid.comm, partial(rows.read_columns, columns, feature))
            kept = model.keep(feature)
            del feature
            if not kept.propagated:
                return None
            if product is None:
                product = self._mapped(model, "the adjacency times the features", (len(kept.value), width))
            product.write(slice(None), kept.value, columns)
            has_own = kept.own is not None
            # Freed before the next columns need the memory.
            del kept
        if product is None:
            return None
        return Inputs(product.tensor, propagated=True, own=self._copied(model, rows) if has_own else None)

    def _mapped(self, model: Model, what: str, shape: tuple[int, int]) -> MappedRows:
        """Zeros of the dtype of features, in a file that is checked while it is used. Collective."""
        place = model.place
        made = together(model.operator.grid.comm, lambda: place.mapped(self._folder, what, shape, place.feature_dtype))
        if not isinstance(made, UnbackedRows):
            place.files.while_used(made.recorded)
        return made


class BatchInputs(FeaturesOnDisk):
    """Batches come with their features, so there are no features and no adjacency in memory."""

    def __init__(self, rows: VertexRows, norm: str, samples: Samples | None) -> None:
        super().__init__(rows, norm)
        self.samples = samples

    def take(self, model: Model) -> Inputs:
        if self.samples is None:
            self._settled(model)
        elif self.norm == "auto":
            self.norm = "none" if self.samples.has_negative_feature else "row"
        return Inputs(model.place.lasting((0, model.options.dims[0]), model.dtype))


class TypedInputs(ModelInputs):
    """Batches of a graph with types contain the stored features of all types; steps fetch learned features.

    Attributes:
        data: stored data that ranks map.
        views: open views of the data from which batches are made.
        learned: views of the learned features by type, once the model has them.
        packed: stored batches with their features; None if there are none.
    """

    def __init__(
        self, data: TypedVertices, norm: str, seed: int, views: TypedViews, packed: TypedSamples | None = None
    ) -> None:
        """Communicates nothing.

        Args:
            seed: seed of the initial values of learned features.
        """
        # Columns of tables, such as ages, are not counts.
        super().__init__("none" if norm == "auto" else norm)
        self.data, self._seed, self.views, self.packed = data, seed, views, packed
        self.learned: dict[str, FeatureView] = {}

    def take(self, model: Model) -> Inputs:
        schema = model.options.schema
        if schema is not None:
            self.learned = {
                name: self._learned(model, name, schema.counts[name], schema.widths[name]) for name in schema.learned
            }
        return Inputs(model.place.lasting((0, model.options.dims[0]), model.dtype))

    def _learned(self, model: Model, of_type: str, count: int, width: int) -> FeatureView:
        """Make the features of a type a parameter; every rank holds the rows of a range of vertices."""
        place, grid, axes = model.place, model.operator.grid, model.operator.layout(0).row_axes
        start, stop = grid.span(count, axes)
        layout = Layout(grid, np.arange(start, stop), axes)
        first = first_features(layout.vertex, slice(0, width), width, self._seed, place, of_type)
        parameter = PartialParameter.of(first, vertex_piece(layout, count, width))
        model.register_parameter(f"feature_{of_type}", parameter)
        owner = None if grid.comm.size == 1 else RangeOwners(count, grid.comm.size)
        exchange = RowExchange(grid.comm, lambda vertices: vertices - start, parameter.detach(), owner, place)
        return LearnedFeatures(parameter, exchange, place)


class StepInputs(ModelInputs):
    """Rows of features and of their propagated steps stay on disk, and there is no adjacency.

    Attributes:
        rows: stored rows that the mode ``rows`` reads.
    """

    def __init__(self, rows: StoredRows, norm: str) -> None:
        super().__init__(norm)
        self.rows = rows

    def take(self, model: Model) -> Inputs:
        self.norm = self.rows.settled_norm(self.norm, model.operator.grid.comm, model.place)
        return Inputs(model.place.lasting((0, self.rows.width), model.dtype))
