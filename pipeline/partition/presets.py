"""What each method offers: its models and presets, the default first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """What can be asked of a method.

    Attributes:
        models: that it partitions.
        presets: its settings; none where there is nothing to choose.
        package: the Python package that a native partitioner comes in; empty for our own.
        module: that runs in the child process.
        improving: presets that can improve parts that are given, too.
    """

    models: tuple[str, ...]
    presets: tuple[str, ...] = ("",)
    package: str = ""
    module: str = ""
    improving: tuple[str, ...] = ()


METHODS: Mapping[str, Method] = {
    "mtkahypar": Method(
        ("hypergraph", "graph", "stochastic"),
        ("deterministic", "deterministic-quality", "default", "quality", "highest-quality", "large-k"),
        "mtkahypar",
        "mt_kahypar",
        improving=("deterministic", "deterministic-quality", "default", "quality", "highest-quality"),
    ),
    "kahypar": Method(("hypergraph", "stochastic"), ("recursive", "direct"), "kahypar", "kahypar_program"),
    "metis": Method(("graph",), ("",), "pymetis", "metis"),
    "multilevel": Method(("hypergraph",), ("auto", "streaming", "flat")),
    "random": Method(("hypergraph",)),
    "block": Method(("hypergraph",)),
}
MODELS = ("hypergraph", "graph", "stochastic")
PRESETS = tuple(sorted({preset for method in METHODS.values() for preset in method.presets if preset}))
NATIVE_METHODS = tuple(name for name, method in METHODS.items() if method.package)
