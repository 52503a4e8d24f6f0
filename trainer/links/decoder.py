"""The contract of a decoder: scores of pairs from the rows of both ends.

A decoder of your own is a subclass of :class:`Decoder`, named as ``--decoder mypackage.mydecoder:MyDecoder`` or by the
descriptor of another package. It defines ``forward``, and ``create_parameters`` if it has parameters. With every
algorithm, rows are whole and every pair is on one rank: a decoder is plain PyTorch on some pairs, and needs no
communication. Its parameters are the same on every rank; the trainer sums their gradients over the ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option
from gnnloom.trainer.place.global_generator import seeded
from gnnloom.trainer.place.place import Place

#: Pairs per call of a decoder without a kernel; the number is constant, so that scores do not depend on the number of
#: pairs.
_PAIRS = 1024


class Decoder(nn.Module, ABC):
    """Scores pairs of vertices; communicates nothing.

    Attributes:
        dim: width of the rows.
        num_outputs: number of scores of a pair: one, or for instance one per class.
        place: place of the rows.
        options: the decoder's own options by name, checked.
    """

    #: Contents of a decoder's descriptor, for a class that a user names; see
    #: :class:`~gnnloom.trainer.links.decoders.kind.DecoderKind`.
    own_options: ClassVar[Mapping[str, Option]] = {}
    is_symmetric: ClassVar[bool] = False
    gives_several: ClassVar[bool] = True

    def __init__(
        self, dim: int, place: Place, seed: int, num_outputs: int = 1, options: Mapping[str, Any] | None = None
    ) -> None:
        """Initialize the parameters. Communicates nothing.

        Args:
            seed: seed of the draws of ``create_parameters``, the same on every rank.

        Raises:
            InputError: the decoder gives one score, but several are needed.
        """
        super().__init__()
        if num_outputs > 1 and not self.gives_several:
            raise InputError(
                f"decoder {type(self).__name__}: gives one score per pair, but {num_outputs} scores per pair are"
                " needed, such as one per class; use distmult or mlp"
            )
        self.dim, self.num_outputs, self.place, self.options = dim, num_outputs, place, options or {}
        # torch modules draw from the global generator, so parameters are the same on every rank.
        with seeded(seed), place.creating_modules():
            self.create_parameters()

    def create_parameters(self) -> None:
        """Create the parameters; the order of the draws decides their initial values. None by default."""

    @abstractmethod
    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Scores of pairs; differentiable.

        A pair's scores depend only on its own rows.

        Args:
            source, target: (num_pairs, dim) rows of both ends.

        Returns:
            (num_pairs,) scores, or (num_pairs, num_outputs) if there are several.
        """

    def scores_of_pairs(self, source: Tensor, target: Tensor) -> Tensor:
        """(num_pairs,) scores of pairs, without a gradient; the bits depend only on the two rows.

        This holds for gnnloom's own decoders by construction. Other decoders always get the same number of pairs, so it
        holds if torch treats all rows of a matrix alike.

        Args:
            source, target: (num_pairs, dim) rows of both ends.
        """
        found = self.place.empty((len(source),), source.dtype)
        rows = self.place.zeros((2, _PAIRS, self.dim), source.dtype)
        with torch.no_grad():
            for start in self.place.steps(range(0, len(source), _PAIRS)):
                stop = min(start + _PAIRS, len(source))
                rows[0, : stop - start], rows[1, : stop - start] = source[start:stop], target[start:stop]
                found[start:stop] = self(rows[0], rows[1])[: stop - start]
        return found

    def scores_of_block(self, source: Tensor, targets: Tensor) -> Tensor:
        """(num_sources, num_targets) scores of all pairs of two lists, with the bits of :meth:`scores_of_pairs`.

        Args:
            source: (num_sources, dim).
            targets: (num_targets, dim).
        """
        found = self.place.empty((len(source), len(targets)), source.dtype)
        for number, row in enumerate(source):
            found[number] = self.scores_of_pairs(row.expand_as(targets), targets)
        return found
