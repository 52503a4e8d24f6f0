"""The sides of bench_epoch: gnnloom on one and two ranks in two precisions, and PyG with three kinds of adjacency.

gnnloom multiplies in the cheaper order, and forms the product of the adjacency and fixed features once. The sides with
the "same products" do neither: they form the products that PyG's layers form, in every epoch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from allocator import KEPT
from graphs import NUM_CLASSES, NUM_FEATURES
from launching import HERE, last_line, train_ranks

from gnnloom.storage import Catalog
from gnnloom.storage.machine_memory import available_memory, memory_text
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import rank_environment

SEED = 0
#: Options by which gnnloom forms the products of PyG's layers: GCNConv multiplies with the weights first.
SAME_PRODUCTS: Mapping[str, Mapping[str, Any]] = {
    "gcn": {"cache_input_product": False, "product_order": "transform-first"},
    "sage": {"cache_input_product": False, "product_order": "propagate-first"},
    "gin": {"cache_input_product": False, "product_order": "propagate-first"},
    "gat": {"cache_input_product": False},
    "gatv2": {"cache_input_product": False},
}
#: Memory that Python, torch and PyG take, in bytes.
_PROGRAM = 1 << 30


@dataclass(frozen=True)
class Case:
    """A model of three layers on a stored graph.

    Attributes:
        width: of the hidden layers.
        shards: keys of the graph's row shards by number of ranks.
    """

    model: str
    graph: str
    width: int
    shards: Mapping[int, str]

    @property
    def dims(self) -> tuple[int, ...]:
        """Widths from the features to the classes."""
        return (NUM_FEATURES, self.width, self.width, NUM_CLASSES)

    @property
    def rate(self) -> float:
        """The learning rate. Sums over thousands of neighbors make a GIN's steps on R-MAT chaotic with a large one."""
        return 1e-4 if self.model == "gin" else 0.01

    @property
    def title(self) -> str:
        return f"{self.model} {self.graph} {self.width}"


def family(graph: str) -> str:
    """The kind of a graph, which its name begins with; its size follows."""
    return graph.split("-", maxsplit=1)[0]


@dataclass(frozen=True)
class Side:
    """A program that trains.

    Attributes:
        title: what the table calls it.
        ranks: of gnnloom; 0 for PyG.
        precision: of gnnloom's features; PyG computes in float32.
        adjacency: what PyG's layers get as the graph.
        saves: products as gnnloom forms them by default; otherwise those of PyG's layers.
    """

    title: str
    ranks: int = 0
    precision: str = "float32"
    adjacency: str = ""
    saves: bool = True

    def hindrance(self, case: Case, catalog: Path) -> str:
        """Why this side cannot train a case here; empty if it can."""
        if self.ranks:
            return ""
        if "gat" in case.model and self.adjacency != "edge_index":
            return "PyG's attention turns every adjacency into edges"
        if self.adjacency == "sparse" and find_spec("torch_sparse") is None:
            return "torch-sparse is not installed"
        needed, free = self._memory(case, catalog), available_memory()
        if needed > free:
            return f"needs about {memory_text(needed)} of memory, of which {memory_text(free)} are free"
        return ""

    def _memory(self, case: Case, catalog: Path) -> int:
        """Bytes that PyG needs if it forms a message for every edge; 0 if it does not."""
        if self.adjacency != "edge_index":
            return 0
        # Layers that weight their messages keep them for the backward pass; each of a GAT's heads has all classes.
        kept = sum(case.dims[1:])
        wide = kept + 3 * case.dims[-1]
        # GATv2's scores keep two more matrices of that size, before and after the LeakyReLU.
        columns = {"gcn": 3 * kept, "gat": 4 * wide, "gatv2": 8 * wide}.get(case.model, 3 * max(case.dims))
        return 4 * columns * Catalog(catalog).dataset(case.graph).graph().nnz + _PROGRAM

    def measure(self, case: Case, catalog: Path, epochs: int) -> dict[str, Any]:
        """Train in new processes; the figures of epoch_figures.py, and the losses."""
        if self.ranks:
            return train_ranks(self._config(case, catalog, epochs), KEPT)
        arguments = [catalog, case.graph, case.model, self.adjacency, case.width, epochs, case.rate, SEED]
        program = [sys.executable, str(HERE / "epoch_peers.py"), *map(str, arguments)]
        return last_line(program, rank_environment(1) | KEPT)

    def _config(self, case: Case, catalog: Path, epochs: int) -> TrainConfig:
        return TrainConfig.of(
            catalog=str(catalog),
            dataset=case.graph,
            shards=case.shards[self.ranks],
            ranks=self.ranks,
            model=case.model.removesuffix("v2"),
            attention="v2" if case.model == "gatv2" else "v1",
            hidden=case.dims[1:-1],
            epochs=epochs,
            lr=case.rate,
            eval_every=0,
            dropout=0.0,
            seed=SEED,
            precision=self.precision,
            run=f"{case.model}-{case.width}-{self.ranks}-{self.precision}{'' if self.saves else '-same'}",
            **({} if self.saves else SAME_PRODUCTS[case.model]),
        )


SIDES = {
    "1": Side("gnnloom, 1 rank", 1),
    "2": Side("gnnloom, 2 ranks", 2),
    "1-bf16": Side("gnnloom bf16, 1 rank", 1, "bf16"),
    "2-bf16": Side("gnnloom bf16, 2 ranks", 2, "bf16"),
    "1-same": Side("same products, 1 rank", 1, saves=False),
    "1-bf16-same": Side("same products, bf16", 1, "bf16", saves=False),
    "csr": Side("PyG, CSR", adjacency="csr"),
    "sparse": Side("PyG, SparseTensor", adjacency="sparse"),
    "edge_index": Side("PyG, edge_index", adjacency="edge_index"),
}
