"""The stages of a recipe, one file each: the key of its result, whether it is done, how it runs, and its needs.

To add a stage, write a :class:`~gnnloom.workflows.recipe.stages.stage.RecipeStage` in its own file, and add its place
here. The options and the key of a stage are known without its implementation: the methods that run it, or count its
needs, import the code for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gnnloom.storage.descriptors import LazyClass


def _place(module: str, name: str) -> LazyClass:
    return LazyClass(place=(f"{__name__}.{module}", name))


#: Name, which is the kind of the artifact, and class of every stage, in order. A recipe may have no vertex data, links,
#: partition, samples, propagated values, training or prediction. Classes are loaded for a recipe, not for the help.
STAGES: Final[Mapping[str, LazyClass]] = MappingProxyType(
    {
        "graph": _place("graph", "GraphStage"),
        "vertices": _place("vertices", "VerticesStage"),
        "links": _place("links", "LinksStage"),
        "partition": _place("partition", "PartitionStage"),
        "shards": _place("shards", "ShardsStage"),
        "samples": _place("samples", "SamplesStage"),
        "propagated": _place("propagated", "PropagatedStage"),
        "train": _place("train", "TrainStage"),
        "predict": _place("predict", "PredictStage"),
    }
)
#: The stages of a recipe with relations.
TYPED_STAGES: Final[Mapping[str, LazyClass]] = MappingProxyType(
    {
        "graph": _place("typed_graph", "TypedGraphStage"),
        "links": _place("links", "RelationLinksStage"),
        "partition": _place("partition", "PartitionStage"),
        "shards": _place("shards", "TypedShardsStage"),
        "transpose": _place("reverses", "ReversesStage"),
        "samples": _place("samples", "TypedSamplesStage"),
        "train": _place("train", "TypedTrainStage"),
        "predict": _place("predict", "TypedPredictStage"),
    }
)
#: Names of all stages; the ranks run the last two.
STAGE_NAMES: Final = tuple(dict.fromkeys((*tuple(STAGES)[:-2], *TYPED_STAGES)))
