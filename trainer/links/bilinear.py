"""Decoders that are scalar products: ``dot``, ``cosine`` and ``distmult``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gnnloom.trainer.kernels.dispatch import score_block, score_pairs
from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.place.place import Place

#: Lower bound of the length of a row, as in ``torch.nn.CosineSimilarity``.
_SHORTEST = 1e-8


class Dot(Decoder):
    """The scalar product of both rows."""

    is_symmetric = True
    gives_several = False

    def side(self, rows: Tensor) -> Tensor:
        """Factors of a row at either end of a pair; differentiable."""
        return rows

    def weighted(self, rows: Tensor) -> Tensor:
        """Factors of the source's row; differentiable."""
        return self.side(rows)

    def both(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Factors of rows as sources and as targets, one tensor if both are the same; differentiable."""
        side = self.side(rows)
        return side, side

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return row_products(self.weighted(source), self.side(target), self.place)

    def factors(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Factors of both rows for ranking pairs; swapped rows have the same products, to the last bit."""
        return self.weighted(source), self.side(target)

    def scores_of_pairs(self, source: Tensor, target: Tensor) -> Tensor:
        with torch.no_grad():
            return score_pairs(*self.factors(source, target), self.place)

    def scores_of_block(self, source: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad():
            return score_block(*self.factors(source, targets), self.place)


class Cosine(Dot):
    """The cosine of the angle between both rows; 0 if a row is zero."""

    def side(self, rows: Tensor) -> Tensor:
        # Clamped before the root, whose derivative at 0 is infinite.
        length = row_products(rows, rows, self.place).clamp_min(_SHORTEST**2).sqrt()
        return rows / length.unsqueeze(1)


class DistMult(Dot):
    """The scalar product with a learned weight for each column, and for each of several scores.

    All weights begin as 1, so that the initial score is the scalar product. Yang, Yih, He, Gao, Deng, "Embedding
    Entities and Relations for Learning and Inference in Knowledge Bases" (ICLR 2015), section 3.1.
    """

    gives_several = True

    def create_parameters(self) -> None:
        self.weight = nn.Parameter(self.place.lasting((self.num_outputs, self.dim), self.place.sum_dtype).fill_(1))

    def weighted(self, rows: Tensor) -> Tensor:
        return rows * self.weight[0]

    def both(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.weighted(rows), rows

    def factors(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        # Half of the weight on either side: a pair and its reverse are a tie.
        weight = self.weight[0]
        half = weight.abs().sqrt()
        return source * torch.copysign(half, weight), target * half

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        if self.num_outputs == 1:
            return super().forward(source, target)
        return (source * target) @ self.weight.T


def row_products(left: Tensor, right: Tensor, place: Place) -> Tensor:
    """Scalar products of rows, with the bits of :func:`gnnloom.trainer.kernels.dispatch.score_pairs`; differentiable.

    Args:
        left, right: (num_rows, dim).

    Returns:
        (num_rows,).
    """
    result: Tensor = _RowProducts.apply(left, right, place)  # type: ignore[no-untyped-call]
    return result


class _RowProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, place: Place) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.place = place
        return score_pairs(left.detach(), right.detach(), place)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        wanted, column = ctx.needs_input_grad, gradient.unsqueeze(1)
        of_left = torch.mul(right, column, out=ctx.place.like(right)) if wanted[0] else None
        of_right = torch.mul(left, column, out=ctx.place.like(left)) if wanted[1] else None
        return of_left, of_right, None
