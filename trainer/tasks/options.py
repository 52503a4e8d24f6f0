"""Options that the tasks on pairs of vertices share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gnnloom.storage.option import Option
from gnnloom.trainer.links.choices import NEGATIVE_SAMPLERS
from gnnloom.trainer.links.decoders.registry import DECODERS

#: Number of steps per epoch without --link-batch. A step on all pairs would leave nothing to multiply with.
_PARTS: Final = 10
#: Training pairs in a batch of a mode that samples, if none are given.
BATCH_PAIRS: Final = 1024
#: A choice that depends on the task.
AUTO: Final = "auto"

#: How pairs are predicted, and in what steps a training takes them.
PAIRS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "links": Option(kind=str, help="Key of the links, if the graph has several"),
        "output_dim": Option(
            default=64, help="Width of the vectors of a pair's ends, the input of the decoder", least=1, most=1 << 20
        ),
        "decoder": Option(
            default=AUTO,
            help="Module that computes the score of a pair from the vectors of its ends; auto: dot for links, mlp for"
            " edges; or your own class as package.module:Class",
            choices=(AUTO, *DECODERS),
            importable=True,
        ),
        **{name: option for kind in DECODERS.values() for name, option in kind.options.items()},
        "link_batch": Option(
            default=0,
            help="Training pairs per step; 0: a tenth of all pairs if pairs are excluded, otherwise all; 1024 with"
            " --mode neighbor",
            least=0,
        ),
        "exclude_targets": Option(
            default=True,
            help="Remove the training pairs of a step from the adjacency that the step uses",
            deniable=True,
        ),
    }
)
#: What a training on links draws to compare its pairs with.
NEGATIVES: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "negatives": Option(default=1, help="Negatives of each training pair", least=1),
        "negative_sampler": Option(
            default="uniform",
            help="How to replace the target of a pair: "
            + "; ".join(f"{name}: {text}" for name, text in NEGATIVE_SAMPLERS.items()),
            choices=tuple(NEGATIVE_SAMPLERS),
        ),
        "strict_negatives": Option(
            default=False, help="Redraw a negative that is an edge of the graph or a training pair"
        ),
        "filtered_ranks": Option(
            default=False,
            help="After the last epoch, also rank the target of each test pair (both ends of an undirected pair) among"
            " all vertices, except vertices that an edge or a pair of any split joins to its other end",
        ),
    }
)


def step_pairs(link_batch: int, total: int, *, excludes: bool) -> int:
    """Training pairs of a step on the whole graph.

    Args:
        link_batch: as given; 0 for the usual number.
        total: all training pairs.
        excludes: a step leaves its pairs out of the graph.
    """
    if link_batch:
        return min(link_batch, total)
    return -(-total // _PARTS) if excludes else total
