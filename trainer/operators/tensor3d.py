"""Three-dimensional tensor parallelism (``tensor3d``): the adjacency on planes that turn from layer to layer.

Singh et al., "Plexus" (SC 2025), sections 3 and 5.  A layer gives the three axes three roles: *outer*
splits the rows of its input, *inner* the columns, and along *depth* lie copies.  (The input features of
the model have no copies: their rows are split further over depth.)  With (x, y, z) at first:

* (A H) W, as in the paper: A has rows over depth and columns over outer, W rows over inner and columns
  over outer, split further over depth.  The output has rows over depth and columns over outer.
* A (H W), ours: W has columns over depth and is split further over outer, A has rows over inner.  The
  output has rows over inner and columns over depth.

Both outputs are the next layer's input with the roles turned, one way or the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.communicator import GEMM, Communicator, Kind, Request
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.kernels.gemm import transposed_product, turned_is_faster
from gnnloom.trainer.kernels.numba_spmm import SparseProduct
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import Place
from gnnloom.trainer.operators.grid import GridOperator
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency, split_rows
from gnnloom.trainer.operators.operator import LayerPlan


class Roles(NamedTuple):
    """The axis of each role in one layer, and the order of the layer's products."""

    outer: str
    inner: str
    depth: str
    propagates_first: bool

    @property
    def input_rows(self) -> tuple[str, str]:
        """The axes that split the rows of the model's input features."""
        return self.outer, self.depth

    def sides(self, *, backward: bool) -> tuple[str, str]:
        """The axes that split the columns and the rows of the adjacency, or (``backward``) of its transpose."""
        rows = self.depth if self.propagates_first else self.inner
        return (rows, self.outer) if backward else (self.outer, rows)

    @property
    def weight_rows(self) -> tuple[str, str]:
        """The axes that split the weight's rows, the second one further."""
        return self.inner, self.weight_share

    @property
    def weight_columns(self) -> str:
        """The axis that splits the weight's columns."""
        return self.outer if self.propagates_first else self.depth

    @property
    def weight_share(self) -> str:
        """The axis along which the weight's blocks are split further."""
        return self.depth if self.propagates_first else self.outer

    def following(self, propagates_first: bool) -> Roles:
        """The roles in the next layer."""
        if self.propagates_first:
            return Roles(self.depth, self.outer, self.inner, propagates_first)
        return Roles(self.inner, self.depth, self.outer, propagates_first)


class Tensor3D(GridOperator):
    """Rank x * (Y * Z) + y * Z + z of an X x Y x Z grid; weights are held in shares."""

    def __init__(
        self,
        grid: ProcessGrid,
        adjacency: GridAdjacency,
        plan: LayerPlan,
        aggregation_blocks: int = 1,
        gradient_product: str = "straight",
    ) -> None:
        """Read this rank's windows. Communicates nothing.

        Args:
            grid: axes ``x``, ``y``, ``z``.
            aggregation_blocks: blocks of rows of a product, each summed over the ranks while the next is formed.
            gradient_product: form a weight's gradient as H^T dQ (``straight``), as (dQ^T H)^T (``transposed``), or as
                the first product of each layer finds to be faster (``measured``).
        """
        super().__init__(grid, adjacency, weight_axes=tuple(grid.axes))
        self._dims = plan.dims
        chosen = {"straight": False, "transposed": True}.get(gradient_product)
        self._turned = dict.fromkeys(range(plan.num_layers), chosen)
        self._roles = [Roles("x", "y", "z", plan.propagates_first[0])]
        for following in (*plan.propagates_first[1:], True):
            self._roles.append(self._roles[-1].following(following))
        self._products = {
            (layer, backward): self._read(layer, aggregation_blocks, backward=backward)
            for layer, backward in plan.products
        }

    def _read(self, layer: int, num_blocks: int, *, backward: bool) -> list[tuple[slice, SparseProduct]]:
        """The plane's window in blocks of rows."""
        source, target = self._roles[layer].sides(backward=backward)
        self.read_scaling(layer, (source,), (target,), backward=backward)
        rows, columns = self.rows((target,)), self.rows((source,))
        (window,) = self.adjacency.blocks(layer, rows, [columns], transposed=backward)
        return [(part, self.adjacency.product(block)) for part, block in split_rows(window, num_blocks)]

    def layout(self, layer: int) -> Layout:
        roles = self._roles[layer]
        return self.grid_layout(layer, roles.input_rows if layer == 0 else (roles.outer,), (roles.inner,))

    def product_layouts(self, layer: int) -> tuple[Layout, Layout]:
        roles = self._roles[layer]
        if roles.propagates_first:
            return self.layout(layer), self.grid_layout(layer + 1, (roles.depth,), (roles.inner,))
        return self.grid_layout(layer, (roles.outer,), (roles.depth,)), self.layout(layer + 1)

    def weight_place(self, layer: int, shape: tuple[int, int]) -> Place:
        roles = self._roles[layer]
        rows = torch.arange(*self.grid.span(shape[0], roles.weight_rows))
        return Place(self.grid.comm, shape, rows, slice(*self.grid.span(shape[1], (roles.weight_columns,))))

    def multiply(self, features: Tensor, layer: int, *, backward: bool) -> Tensor:
        roles = self._roles[layer]
        source, target = roles.sides(backward=backward)
        kind = Kind.PROPAGATE_BACKWARD if backward else Kind.PROPAGATE_FORWARD
        takes_input = layer == 0 and roles.propagates_first
        if takes_input and not backward:
            features = self._gather_input(features, kind)
        scaled = self.scaled(features, layer, (source,), backward=backward)
        row_scale = self.row_scale(layer, (target,), backward=backward)
        products = self._products[layer, backward]
        if takes_input and backward:
            return self._scatter_input(self._aggregate(products, scaled, row_scale, None, kind), kind)
        return self._aggregate(products, scaled, row_scale, self.grid.group((source,)), kind)

    def _aggregate(
        self,
        products: list[tuple[slice, SparseProduct]],
        features: Tensor,
        row_scale: NDArray[Any],
        group: Communicator | None,
        kind: Kind,
    ) -> Tensor:
        """The product, summed over a group; a block of rows is on its way while the next one is multiplied."""
        result = features.new_zeros(sum(product.num_rows for _, product in products), features.shape[1])
        requests: list[Request] = []
        for part, product in products:
            self.add_product(product, features, result[part], row_scale[part])
            if group is not None:
                requests += group.begin_all_reduce(result[part], kind)
        if group is not None:
            group.finish(requests, kind)
        return result

    def gather_weight(self, weight: Tensor, layer: int) -> Tensor:
        return self._weight_group(layer).all_gather(weight, self._weight_sizes(layer), Kind.WEIGHT)

    def scatter_gradient(self, gradient: Tensor, layer: int) -> Tensor:
        return self._weight_group(layer).reduce_scatter(gradient, self._weight_sizes(layer), Kind.WEIGHT)

    def _weight_group(self, layer: int) -> Communicator:
        return self.grid.group((self._roles[layer].weight_share,))

    def _weight_sizes(self, layer: int) -> list[int]:
        return self.grid.sizes_along_last(self._dims[layer], self._roles[layer].weight_rows)

    def gather_features(self, features: Tensor, layer: int) -> Tensor:
        if layer == 0 and not self._roles[0].propagates_first:
            return self._gather_input(features, Kind.TRANSFORM_FORWARD)
        return features

    def multiply_weight(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:
        result = self.gemm(features, weight)
        self.grid.group((self._roles[layer].inner,)).all_reduce(result, Kind.TRANSFORM_FORWARD)
        return result

    def weight_adjoints(
        self, gradient: Tensor, features: Tensor, weight: Tensor, layer: int, *, of_features: bool
    ) -> tuple[Tensor | None, Tensor]:
        roles, back = self._roles[layer], None
        if of_features:
            back = self.gemm(gradient, weight.T)
            if layer == 0 and not roles.propagates_first:
                back = self._scatter_input(back, Kind.TRANSFORM_BACKWARD)
            else:
                self.grid.group((roles.weight_columns,)).all_reduce(back, Kind.TRANSFORM_BACKWARD)
        return back, self._weight_gradient(features, gradient, layer)

    def _weight_gradient(self, features: Tensor, gradient: Tensor, layer: int) -> Tensor:
        turned = self._turned[layer]
        if turned is None:
            turned = self._turned[layer] = turned_is_faster(features, gradient, self.grid.comm)
        with self.grid.comm.traffic.timing(GEMM):
            return transposed_product(features, gradient, turned=turned)

    def release(self, layer: int) -> None:
        del self._products[layer, False]

    def _gather_input(self, features: Tensor, kind: Kind) -> Tensor:
        """The input features' rows of all ranks along the first layer's depth."""
        return self.grid.group((self._roles[0].depth,)).all_gather(features, self._input_sizes(), kind)

    def _scatter_input(self, gradient: Tensor, kind: Kind) -> Tensor:
        """The adjoint: sums the gradients, and keeps this rank's rows."""
        return self.grid.group((self._roles[0].depth,)).reduce_scatter(gradient, self._input_sizes(), kind)

    def _input_sizes(self) -> list[int]:
        return self.grid.sizes_along_last(self.adjacency.num_vertices, self._roles[0].input_rows)
