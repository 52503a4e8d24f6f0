"""All partitioners: the built-in ones in ``methods``, and those that other packages announce."""

from __future__ import annotations

from gnnloom.pipeline.partition import methods
from gnnloom.pipeline.partition.partitioner import Partitioner
from gnnloom.storage.descriptors import load_descriptors

#: Descriptors by the value of ``--method``, in the order of choices.
METHODS = load_descriptors(methods, "PARTITIONER", "gnnloom.partitioners", Partitioner)
#: Models that some method offers, in the order in which the methods name them.
MODELS = tuple(dict.fromkeys(model for method in METHODS.values() for model in method.models))
#: Names of all presets of all methods.
PRESETS = tuple(sorted({name for method in METHODS.values() for name in method.preset_names if name}))
