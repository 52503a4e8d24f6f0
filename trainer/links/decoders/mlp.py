"""``mlp``: a perceptron of the element-wise product of both rows."""

from __future__ import annotations

from gnnloom.storage.option import Option
from gnnloom.trainer.links.decoders.kind import DecoderKind

DECODER = DecoderKind(
    name="mlp",
    order=3,
    help="Perceptron of the element-wise product of both rows",
    source="LinkPredictor of the examples of Hu et al., Open Graph Benchmark, NeurIPS 2020",
    place=("gnnloom.trainer.links.perceptron", "Perceptron"),
    is_symmetric=True,
    options={
        "decoder_hidden": Option(
            kind=tuple[int, ...],
            default=(),
            least=1,
            help="Widths of the decoder's hidden layers",
            default_text="one of the width of the model's output",
        )
    },
)
