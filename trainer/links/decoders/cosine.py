"""``cosine``: the cosine of the angle between both rows."""

from __future__ import annotations

from gnnloom.trainer.links.decoders.kind import DecoderKind

DECODER = DecoderKind(
    name="cosine",
    order=1,
    help="Cosine of the angle between both rows",
    place=("gnnloom.trainer.links.bilinear", "Cosine"),
    is_symmetric=True,
    gives_several=False,
)
