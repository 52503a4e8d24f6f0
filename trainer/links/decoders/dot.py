"""``dot``: the scalar product of both rows."""

from __future__ import annotations

from gnnloom.trainer.links.decoders.kind import DecoderKind

DECODER = DecoderKind(
    name="dot",
    order=0,
    help="Scalar product of both rows",
    source="Kipf, Welling, Variational Graph Auto-Encoders, 2016",
    place=("gnnloom.trainer.links.bilinear", "Dot"),
    is_symmetric=True,
    gives_several=False,
)
