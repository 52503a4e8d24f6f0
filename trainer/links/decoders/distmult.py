"""``distmult``: the scalar product with a learned weight for each column."""

from __future__ import annotations

from gnnloom.trainer.links.decoders.kind import DecoderKind

DECODER = DecoderKind(
    name="distmult",
    order=2,
    help="Scalar product with a learned weight for each column",
    source="Yang et al., ICLR 2015",
    place=("gnnloom.trainer.links.bilinear", "DistMult"),
    is_symmetric=True,
)
