"""Three-dimensional tensor parallelism (``tensor3d``): the adjacency on planes of the grid that rotate over layers.

Ranjan et al., "Plexus" (SC 2025), sections 3 and 5. In every layer the three axes have three roles: *outer* splits the
rows of the layer's input, *inner* its columns, and ranks along *depth* hold copies. (The model's input features have
no copies: depth splits their rows further.) With (outer, inner, depth) = (x, y, z) in the first layer:

* (A H) W, as in the paper: A has rows over depth and columns over outer. W has rows over inner, split further over
  depth, and columns over outer. The output has rows over depth and columns over outer.
* A (H W), ours: W has columns over depth, and its rows are split over inner and further over outer. A has rows over
  inner and columns over outer. The output has rows over inner and columns over depth.

Both outputs are the input of the next layer with the roles rotated, in one direction or the other.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gnnloom.storage.matrix.ranges import Span
from gnnloom.trainer.comm.communicator import Communicator, Request
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.kernels.dispatch import SparseProduct, converted, seconds_of_weight_gradients
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import ParameterPiece
from gnnloom.trainer.operators.exclusion import ExcludedBlock
from gnnloom.trainer.operators.grid import GridOperator, InFlight
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
        return self.inner, self.weight_split

    @property
    def weight_columns(self) -> str:
        """The axis that splits the weight's columns."""
        return self.outer if self.propagates_first else self.depth

    @property
    def weight_split(self) -> str:
        """The axis along which ranks need the same block of the weight, and each hold a slice of it."""
        return self.depth if self.propagates_first else self.outer

    def following(self, propagates_first: bool) -> Roles:
        """The roles in the next layer."""
        # The output's rows and columns lie on two of the axes, which become the next outer and inner; the third becomes
        # depth.
        if self.propagates_first:
            return Roles(self.depth, self.outer, self.inner, propagates_first)
        return Roles(self.inner, self.depth, self.outer, propagates_first)


class Tensor3D(GridOperator):
    """An X x Y x Z grid; coordinate (x, y, z) is rank x * (Y * Z) + y * Z + z. Ranks hold pieces of the weights."""

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
            aggregation_blocks: number of row blocks of a product; the ranks sum a block while they multiply the next.
            gradient_product: compute a weight's gradient as H^T dQ (``straight``), as (dQ^T H)^T (``transposed``), or
                in the way that the first product of each layer finds faster (``measured``).

        Raises:
            InputError: a degree is negative or not finite.
        """
        super().__init__(grid, adjacency, plan, weight_axes=tuple(grid.axes))
        self._dims = plan.dims
        chosen = {"straight": False, "transposed": True}.get(gradient_product)
        #: For each layer, whether its weight's gradient is (dQ^T H)^T; None until it is measured.
        self._transposed = dict.fromkeys(range(plan.num_layers), chosen)
        self._roles = [Roles("x", "y", "z", plan.propagates_first[0])]
        # One more than the number of layers, for the layout of the output.
        for following in (*plan.propagates_first[1:], True):
            self._roles.append(self._roles[-1].following(following))
        self._num_blocks = aggregation_blocks
        self._products = {(layer, backward): self._read(layer, backward=backward) for layer, backward in plan.products}

    def _read(self, layer: int, *, backward: bool) -> list[tuple[slice, SparseProduct]]:
        """The plane's window in blocks of rows."""
        source, target = self._roles[layer].sides(backward=backward)
        self.read_scaling(layer, (source,), (target,), backward=backward)
        rows, columns, num_blocks = self.window(layer, backward=backward)
        (window,) = self.adjacency.blocks(layer, rows, columns, transposed=backward)
        return [(block_rows, self.adjacency.product(block)) for block_rows, block in split_rows(window, num_blocks)]

    def window(self, layer: int, *, backward: bool) -> tuple[Span, list[Span], int]:
        source, target = self._roles[layer].sides(backward=backward)
        return self.rows((target,)), [self.rows((source,))], self._num_blocks

    def layout(self, layer: int) -> Layout:
        roles = self._roles[layer]
        return self.grid_layout(layer, roles.input_rows if layer == 0 else (roles.outer,), (roles.inner,))

    def product_layouts(self, layer: int) -> tuple[Layout, Layout]:
        roles = self._roles[layer]
        if roles.propagates_first:
            return self.layout(layer), self.grid_layout(layer + 1, (roles.depth,), (roles.inner,))
        return self.grid_layout(layer, (roles.outer,), (roles.depth,)), self.layout(layer + 1)

    def weight_piece(self, layer: int, shape: tuple[int, int]) -> ParameterPiece:
        roles = self._roles[layer]
        rows = self.place.arange(*self.grid.span(shape[0], roles.weight_rows))
        return ParameterPiece(self.grid, shape, rows, slice(*self.grid.span(shape[1], (roles.weight_columns,))))

    def multiply(self, features: Tensor, layer: int, dtype: torch.dtype, *, backward: bool) -> Tensor:
        roles = self._roles[layer]
        source, target = roles.sides(backward=backward)
        kind = Kind.PROPAGATE_BACKWARD if backward else Kind.PROPAGATE_FORWARD
        # The model's input has no copies along depth: forward its rows are gathered, backward they are scattered.
        takes_input = layer == 0 and roles.propagates_first
        if takes_input and not backward:
            features = self._gather_input(features, kind)
        scaled = self.scaled(features, layer, (source,), backward=backward)
        row_scale = self.row_scale(layer, (target,), backward=backward)
        products = [
            (*product, self.excluded(layer, number, backward=backward))
            for number, product in enumerate(self._products[layer, backward])
        ]
        # Backward, the first layer's transpose has its columns split along depth, so the reduce-scatter forms the sum
        # that the all-reduce would form, and leaves each rank the rows that it holds.
        scatters, group = takes_input and backward, self.grid.group((source,))
        result = self._aggregate(products, scaled, row_scale, dtype, group, kind, reduces=not scatters)
        result = self._scatter_input(result, kind) if scatters else result
        return converted(result, dtype, self.place)

    def _aggregate(
        self,
        products: list[tuple[slice, SparseProduct, ExcludedBlock | None]],
        features: Tensor,
        row_scale: Tensor,
        dtype: torch.dtype,
        group: Communicator,
        kind: Kind,
        *,
        reduces: bool,
    ) -> Tensor:
        """The product in ``dtype``; this rank's summands are summed over a group. Collective."""
        # Blocks of rows are contiguous, so each is reduced in place, and in the dtype of sums.
        num_rows = sum(product.num_rows for _, product, _ in products)
        dtype = dtype if group.size == 1 and not self.excludes else self.place.sum_dtype
        result = self.place.empty((num_rows, features.shape[1]), dtype)
        requests: list[Request] = []
        for rows, product, excluded in products:
            in_flight = InFlight(group, requests, kind)
            # The left factors scale every summand alike, so scaling before the sum is right. A slice of (0,) is (0,).
            self.multiply_locally(
                product, features, result[rows], row_scale[rows], in_flight, accumulate=False, excluded=excluded
            )
            if reduces:
                # In flight while the next block is multiplied (Plexus, section 5).
                requests += group.begin_all_reduce(result[rows], kind)
        if reduces:
            group.finish(requests, kind)
        return result

    def gather_weight(self, weight: Tensor, layer: int) -> Tensor:
        # These ranks hold consecutive slices of a block's rows, so concatenating them in rank order restores the block.
        return self.all_gather(self._weight_group(layer), weight, self._weight_sizes(layer), Kind.WEIGHT)

    def scatter_gradient(self, gradient: Tensor, layer: int) -> Tensor:
        # Each rank multiplied the block with other rows of the features, so the gradient of the block is the sum over
        # the ranks.
        return self.reduce_scatter(self._weight_group(layer), gradient, self._weight_sizes(layer), Kind.WEIGHT)

    def _weight_group(self, layer: int) -> Communicator:
        return self.grid.group((self._roles[layer].weight_split,))

    def _weight_sizes(self, layer: int) -> list[int]:
        return self.grid.sizes_along_last(self._dims[layer], self._roles[layer].weight_rows)

    def gather_features(self, features: Tensor, layer: int) -> Tensor:
        if layer == 0 and not self._roles[0].propagates_first:
            return self._gather_input(features, Kind.TRANSFORM_FORWARD)
        return features

    def multiply_weight(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:
        # Ranks along inner hold different columns of the features, so their products are summands.
        group = self.grid.group((self._roles[layer].inner,))
        return self.summed(group, self.gemm(features, weight), Kind.TRANSFORM_FORWARD)

    def weight_adjoints(
        self, gradient: Tensor, features: Tensor, weight: Tensor, layer: int, *, of_features: bool
    ) -> tuple[Tensor | None, Tensor]:
        roles, back = self._roles[layer], None
        if of_features:
            back = self.gemm(gradient, weight.T)
            if layer == 0 and not roles.propagates_first:
                # Depth splits the weight's columns here, so the reduce-scatter sums over the same ranks as the
                # all-reduce below, and keeps this rank's rows only.
                back = self._scatter_input(back, Kind.TRANSFORM_BACKWARD)
            else:
                # Ranks along these axes hold different columns of the gradient.
                back = self.summed(self.grid.group((roles.weight_columns,)), back, Kind.TRANSFORM_BACKWARD)
        return back, self._chosen_weight_gradient(features, gradient, layer)

    def _chosen_weight_gradient(self, features: Tensor, gradient: Tensor, layer: int) -> Tensor:
        transposed = self._transposed[layer]
        # All ranks reach a layer's first gradient in the same epoch, so the collective measurement is safe. One choice
        # for all, since each waits for the slowest (Ranjan et al., section 5).
        if transposed is None:
            seconds = seconds_of_weight_gradients(features, gradient, self.place)
            straight, other = self.grid.comm.gather_numbers(seconds).sum(0)
            transposed = self._transposed[layer] = bool(other < straight)
        return self.weight_gradient(features, gradient, transposed=transposed)

    def release(self, layer: int) -> None:
        super().release(layer)
        del self._products[layer, False]

    def _gather_input(self, features: Tensor, kind: Kind) -> Tensor:
        """The input features' rows of all ranks along the first layer's depth. Collective."""
        return self.all_gather(self.grid.group((self._roles[0].depth,)), features, self._input_sizes(), kind)

    def _scatter_input(self, gradient: Tensor, kind: Kind) -> Tensor:
        """The adjoint of :meth:`_gather_input`: the summed gradient of this rank's rows. Collective."""
        return self.reduce_scatter(self.grid.group((self._roles[0].depth,)), gradient, self._input_sizes(), kind)

    def _input_sizes(self) -> list[int]:
        return self.grid.sizes_along_last(self.adjacency.num_vertices, self._roles[0].input_rows)
