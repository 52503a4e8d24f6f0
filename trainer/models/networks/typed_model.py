"""Runs torch modules that take ``(x_dict, edge_index_dict)``, as PyG's layers do, on batches of a graph with types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted
from gnnloom.trainer.data.typed_vertices import TypedSchema
from gnnloom.trainer.kernels.dispatch import converted, performed
from gnnloom.trainer.loader.choices import EDGE_NAMES
from gnnloom.trainer.models.edge_modules import BY_TYPE, TYPED, forward_names
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.module_model import Inference, ModuleModel, checked_output, evaluating
from gnnloom.trainer.place.place import Place

#: Fields that are converted to the dtype of sums.
_NUMBERS: Final = ("x", "edge_attr", "edge_weight")
#: Maximum number of vertices of each type on which a new module is tried.
_TRIED: Final = 6


@dataclass(frozen=True)
class TypedBatch:
    """A batch of a graph with types.

    Attributes:
        fields: values of each type and each relation (source type, name, target type), by PyG's names.
        num_seeds: number of leading vertices of each type that is predicted whose outputs are wanted.
    """

    fields: Mapping[Any, Mapping[str, Any]]
    num_seeds: Mapping[str, int]

    def with_features(self, rows: Mapping[str, tuple[Any, Tensor]]) -> TypedBatch:
        """The same batch with features of some types: the second item of ``rows`` for each type."""
        return replace(self, fields={**self.fields, **{n: {**self.fields[n], "x": x} for n, (_, x) in rows.items()}})


class ScoresOfRows(Inference, Protocol):
    """Forms the scores of some of a rank's vertices on the whole graph."""

    def of(self, rows: NDArray[np.int64] | None) -> Tensor:
        """(num_rows, num_outputs) scores with the present parameters. Collective.

        Args:
            rows: (num_rows,) int64 numbers of rows of the rank, ascending; None for all rows.
        """
        ...


class TypedModel(ModuleModel):
    """A torch module, called with the fields of a batch of a graph with types, by type and by relation."""

    inference: ScoresOfRows

    def create_parameters(self, generator: torch.Generator) -> None:  # noqa: ARG002 - torch's global one
        """See :meth:`Model.create_parameters`.

        Raises:
            InputError: the module cannot be constructed with the options, or does not take a small graph; or a type has
                no features.
        """
        schema, dims = self.schema, self.options.dims
        self._further = tuple(name for name in TYPED if name in forward_names(self.found()))
        given = {
            "in_channels": dict(schema.widths),
            # Without hidden layers, no output has this width.
            "hidden_channels": dims[1],
            "num_layers": self.num_layers,
            "out_channels": dims[-1],
            "edge_dim": {each: columns["feature"] for each, columns in schema.columns.items() if "feature" in columns},
            "num_nodes_dict": dict(schema.counts),
            "metadata": (list(schema.counts), list(schema.columns)),
        }
        self.module = self.constructed(given)
        self._try()

    @property
    def schema(self) -> TypedSchema:
        """The types and relations of the graph.

        Raises:
            ValueError: the model was made for a graph without types.
        """
        if self.options.schema is None:
            raise ValueError(f"model {self.options.module} of a graph without types")
        return self.options.schema

    def _try(self) -> None:
        """Call the module on a small graph; its parameters that have no sizes yet get them.

        Raises:
            InputError: it fails, or does not return a row for each vertex.
        """
        try:
            # With real values, even in a forecast of memory.
            with evaluating(self.module), torch.no_grad(), performed():
                self.scores_of(self._small(_TRIED))
        except InputError:
            raise
        # Any exception here comes from the module, for arguments that it always gets.
        except Exception as error:
            raise InputError(
                f"model {self.options.module}: its forward fails on a graph of at most {_TRIED} vertices of each type,"
                f" {self._described()}: {type(error).__name__}: {error}"
            ) from error

    def _described(self) -> str:
        widths = [f"{name} with {counted(width, 'feature')}" for name, width in self.schema.widths.items()]
        return ", ".join(widths)

    def _small(self, most: int) -> TypedBatch:
        """A batch with at most ``most`` vertices of each type, and an edge to each vertex along each relation."""
        schema, place, found = self.schema, self.place, dict[Any, dict[str, Any]]()
        counts = {name: min(count, most) for name, count in schema.counts.items()}
        for name, count in counts.items():
            found[name] = {"n_id": place.arange(0, count)}
            found[name]["num_sampled_nodes"] = [count, *[0] * self.num_layers]
            if name in schema.widths:
                found[name]["x"] = place.lasting((count, schema.widths[name]), self.dtype).fill_(1)
        for each, columns in schema.columns.items():
            source, target = counts[each[0]], counts[each[2]]
            ends = place.arange(0, target if source else 0)
            own: dict[str, Any] = {"edge_index": torch.stack([ends % max(1, source), ends])}
            own["num_sampled_edges"] = [len(ends), *[0] * (self.num_layers - 1)]
            for column, width in columns.items():
                shape = (len(ends), width) if column == "feature" else (len(ends),)
                dtype = torch.int64 if column in {"time", "label"} else self.dtype
                own[EDGE_NAMES[column]] = place.lasting(shape, dtype).fill_(column != "label")
            found[each] = own
        return TypedBatch(found, {name: counts[name] for name in schema.of_types})

    def forward(self, inputs: Inputs) -> Tensor:  # noqa: ARG002 - of any batch
        """Raises InputError: a module on a graph with types has an input for each type, see :meth:`scores_of`."""
        raise InputError(f"model {self.options.module}: it takes batches of a graph with types only")

    def scores_of(self, batch: TypedBatch | None) -> Tensor:
        """(num_seeds, num_outputs) scores of the seeds of a batch; for pairs, rows of sources come first.

        Collective if the module has batch normalizations over the rows of all ranks.

        Args:
            batch: None on a rank that has none in a step.

        Raises:
            InputError: the module does not return a row for each vertex of the type.
        """
        self.operator.grid.comm.traffic.watch.step = "forward"
        if batch is None:
            if not self.normalizes_together:
                return self.no_scores()
            batch = self._small(0)
        scores = self.output(batch, self.place)
        self._announce_backward(scores, self.num_layers)
        return scores

    def output(self, batch: TypedBatch, place: Place) -> Tensor:
        """(num_seeds, num_outputs) the module's result for the seeds of a batch, in the dtype of sums of a place.

        If two types are predicted, the rows of the first type come first.

        Raises:
            InputError: as :meth:`scores_of`.
        """
        schema = self.schema

        def given(argument: str) -> dict[Any, Any]:
            return self._by_key(batch, argument, place)

        output = self.module(given("x_dict"), given("edge_index_dict"), **{name: given(name) for name in self._further})
        name, found = self.options.module, list[Tensor]()
        if len(schema.of_types) > 1 and not isinstance(output, Mapping):
            expected = " and of ".join(schema.of_types)
            raise InputError(
                f"model {name}: it returns {type(output).__name__!r}, expected a mapping with the rows of {expected}"
            )
        for of_type in schema.of_types:
            rows = output.get(of_type) if isinstance(output, Mapping) else output
            count = len(batch.fields[of_type]["n_id"])
            found.append(checked_output(name, rows, count, batch.num_seeds[of_type], self.options.dims[-1], place))
        return found[0] if len(found) == 1 else torch.cat(found)

    def _by_key(self, batch: TypedBatch, argument: str, place: Place) -> dict[Any, Any]:
        """An argument of ``forward``: values of the types or relations that the model sees and that have a value."""
        name = argument.removesuffix(BY_TYPE)
        keys = (key for key in (*self.schema.counts, *self.schema.columns) if name in batch.fields[key])
        values = {key: batch.fields[key][name] for key in keys}
        if name not in _NUMBERS:
            return values
        return {key: converted(value, place.sum_dtype, place) for key, value in values.items()}
