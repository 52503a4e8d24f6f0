"""Common base of models that consist of one torch module, which computes all layers itself.

The module is created under the run's seed and is the same on all ranks, as every model is. The module is also
responsible for everything between the layers, such as dropout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor, nn

from gnnloom.storage.descriptors import load_named
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted
from gnnloom.trainer.models.edge_modules import arguments
from gnnloom.trainer.models.networks.model import Inputs, Model, entries_by_layer
from gnnloom.trainer.models.networks.norm import WholeBatchNorm
from gnnloom.trainer.place.place import Place


class Inference(Protocol):
    """Forms the scores of a rank's vertices on the whole graph.

    Attributes:
        facts: entries about how scores were computed, for the result of a run; empty before the first call.
    """

    facts: Mapping[str, Any]

    def __call__(self, inputs: Inputs) -> Tensor:
        """(num_own, num_outputs) scores with the current parameters. Collective."""
        ...


class ModuleModel(Model):
    """A torch module, called with the features and the edges of a batch.

    Attributes:
        module: as constructed from the options of the run.
        inference: forms the scores on the whole graph; set before scores are requested.
    """

    multiplies = False
    takes_blocks = True
    takes_edges = True

    module: nn.Module
    inference: Inference

    def found(self) -> type[Any]:
        """The class of the module."""
        found = load_named("model", self.options.module)
        assert isinstance(found, type)
        return found

    def constructed(self, given: Mapping[str, Any]) -> nn.Module:
        """A new instance of the module.

        Args:
            given: see :func:`gnnloom.trainer.models.edge_modules.arguments`.

        Raises:
            InputError: it cannot be constructed with the options.
        """
        name, found = self.options.module, self.found()
        passed = arguments(name, found, given, self.options.own, self.dropout.probability)
        # Any exception of the constructor is about its arguments; one line reports it.
        try:
            module: nn.Module = found(**passed)
        except Exception as error:
            shown = ", ".join(f"{key}={value!r}" for key, value in passed.items())
            raise InputError(
                f"model {name}: its constructor fails with {shown}: {type(error).__name__}: {error}"
            ) from error
        return module

    def parameters_by_layer(self) -> list[list[nn.Parameter]]:
        return entries_by_layer(self.module, self.num_layers)

    def layer(self, inputs: Inputs, layer: int) -> Tensor:  # noqa: ARG002 - of any layer
        """Raises InputError: the layers are the module's own."""
        raise InputError(f"model {self.options.module}: a module of torch, whose layers cannot be run one by one")

    def embed(self, inputs: Inputs) -> Inputs:  # noqa: ARG002 - of any layer
        """Raises InputError: the layers are the module's own."""
        raise InputError(f"model {self.options.module}: a module of torch, whose hidden layers are its own")

    def whole_scores(self, inputs: Inputs) -> Tensor:
        return self.inference(inputs)

    @property
    def inference_facts(self) -> Mapping[str, Any]:
        return self.inference.facts

    @property
    def normalizes_together(self) -> bool:
        """The module has batch normalizations over the rows of all ranks, in which every rank takes part."""
        return self.training and any(isinstance(each, WholeBatchNorm) for each in self.module.modules())

    def no_scores(self) -> Tensor:
        """(0, num_outputs) scores of a rank that has no vertices in a step; no parameter gets a gradient from them."""
        return self.place.lasting((0, self.options.dims[-1]), self.dtype).requires_grad_()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Inside the block, the module is in evaluation mode."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def checked_output(name: str, output: Any, num_vertices: int, num_rows: int, num_outputs: int, place: Place) -> Tensor:
    """(num_rows, num_outputs) leading rows of a module's result, in the dtype of sums.

    Args:
        name: name of the model, for the message.
        num_vertices: number of vertices that the module was given.

    Raises:
        InputError: the module does not return a row for each vertex.
    """
    is_matrix = isinstance(output, Tensor) and output.dim() == 2
    if not is_matrix or len(output) < num_rows or output.shape[1] != num_outputs:
        found = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else repr(type(output).__name__)
        raise InputError(
            f"model {name}: it returns {found} for {counted(num_vertices, 'vertex')}, expected shape"
            f" ({num_vertices}, {num_outputs})"
        )
    result: Tensor = output[:num_rows].to(place.sum_dtype)
    return result
