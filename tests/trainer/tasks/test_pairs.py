"""Tasks on pairs: the same losses and figures on any layout, those of a dense reference, and of mode neighbor."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.links import CLASS, NUMBER, Links
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.tasks.registry import TASKS
from support.covering import FEW_OR_EVERY, covering
from support.mpi import train_all
from support.pair_problems import pair_config, store_pair_links, store_pairs
from support.problems import problem

EPOCHS = 2
#: How losses may differ between layouts.
SAME = 1e-10

GRAPHS = {
    given.name: given
    for given in (
        problem("directed", 60, 240, symmetric=False),
        problem("undirected", 61, 150, symmetric=True),
        problem("weighted", 45, 200, symmetric=False, weighted=True),
    )
}
#: What is trained: every task, loss, decoder and sampler of negatives, with and without exclusion, on every kind of
#: graph. ``of`` names the graph.
TRAINED: dict[str, dict[str, Any]] = {
    "dot": {"of": "directed", "decoder": "dot", "loss": "bce", "negatives": 2},
    "mlp": {
        "of": "undirected",
        "decoder": "mlp",
        "loss": "bpr",
        "negative_sampler": "joint",
        "strict_negatives": True,
        "negatives": 3,
    },
    "distmult": {"of": "weighted", "decoder": "distmult", "loss": "ce", "negative_sampler": "degree", "negatives": 4},
    "cosine": {
        "of": "undirected",
        "decoder": "cosine",
        "loss": "margin",
        "negative_sampler": "degree",
        "exclude_targets": False,
        "filtered_ranks": True,
        "link_batch": 0,
    },
    "class": {"of": "directed", "task": "edge-class", "model": "sage"},
    "class-distmult": {"of": "undirected", "task": "edge-class", "decoder": "distmult"},
    "number": {"of": "weighted", "task": "edge-number", "decoder_hidden": (5, 4)},
    "number-dot": {"of": "undirected", "task": "edge-number", "decoder": "dot", "link_batch": 0},
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "p2p-1": {},
    "p2p-2": {"ranks": 2},
    "p2p-4": {"ranks": 4},
    "broadcast-1": {"algorithm": "broadcast", "grid": (1,)},
    "broadcast-4": {"algorithm": "broadcast", "grid": (4,)},
    "broadcast-8": {"algorithm": "broadcast", "grid": (8,)},
    "replicated-4": {"algorithm": "replicated", "grid": (2, 2)},
    "replicated-8": {"algorithm": "replicated", "grid": (2, 4)},
    "summa-1": {"algorithm": "summa", "grid": (1, 1)},
    "summa-4": {"algorithm": "summa", "grid": (2, 2)},
    "summa-8": {"algorithm": "summa", "grid": (4, 2)},
    "split3d-4": {"algorithm": "split3d", "grid": (2, 1, 2)},
    "split3d-8": {"algorithm": "split3d", "grid": (2, 2, 2)},
    "tensor3d-1": {"algorithm": "tensor3d", "grid": (1, 1, 1)},
    "tensor3d-4": {"algorithm": "tensor3d", "grid": (1, 4, 1)},
    "tensor3d-8": {"algorithm": "tensor3d", "grid": (2, 2, 2)},
    "by-part-4": {"algorithm": "summa", "grid": (2, 2), "permutation": "partition"},
}


@dataclass(frozen=True)
class Case:
    """One training."""

    trained: str
    layout: str

    @property
    def run(self) -> str:
        return f"{self.trained}-{self.layout}"

    @property
    def ranks(self) -> int:
        return int(self.layout.rpartition("-")[2])

    @property
    def graph(self) -> str:
        return str(TRAINED[self.trained]["of"])

    @property
    def kind(self) -> str:
        """Kind of the values of the pairs."""
        task = TRAINED[self.trained].get("task", "link")
        return {"link": "pair", "edge-class": CLASS, "edge-number": NUMBER}[task]

    def config(self, catalog: Catalog, links: str) -> TrainConfig:
        options = {name: value for name, value in TRAINED[self.trained].items() if name != "of"}
        on = {"ranks": self.ranks, "permutation": None if self.layout.startswith("p2p") else "double"}
        # A few steps of an epoch show what many do; 0 is what a user gets.
        fixed = {"epochs": EPOCHS, "dropout": 0.3, "eval_every": 1, "link_batch": 70, "links": links}
        return pair_config(catalog, self.graph, self.run, **{**fixed, **options, **on, **LAYOUTS[self.layout]})

    def shows(self) -> set[Hashable]:
        """What a few cases must show, too."""
        # Eight ranks on two cores mostly wait, so the long tests have them.
        if self.ranks > 4:
            return set()
        algorithm = LAYOUTS[self.layout].get("algorithm", "p2p")
        shared = {(self.kind, algorithm == "p2p"), (self.kind == "pair", algorithm), self.trained}
        return {self.layout, *(shared if self.ranks > 1 else ())}


CASES = [Case(trained, layout) for trained in TRAINED for layout in LAYOUTS]


class Results:
    """The results of all runs of one MPI job."""

    def __init__(self, catalog: Catalog, cases: list[Case], folder: Path) -> None:
        self.catalog, self.cases = catalog, cases
        links = dict[tuple[str, str], Links]()
        for name, given in GRAPHS.items():
            dataset, links[name, "pair"] = store_pairs(catalog, given, 1, 2, 4, grid=(3, 2))
            for kind in (CLASS, NUMBER):
                links[name, kind] = store_pair_links(dataset, given, kind)
        configs = [case.config(catalog, links[case.graph, case.kind].artifact.key) for case in cases]
        found = train_all(folder, configs, timeout=600)
        self.by_case = dict(zip(cases, found, strict=True))

    def of(self, trained: str) -> dict[str, dict[str, Any]]:
        """The results by layout."""
        return {case.layout: result for case, result in self.by_case.items() if case.trained == trained}


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("pairs")
    chosen = CASES if request.param else covering(CASES, Case.shows, lambda case: case.ranks)
    chosen = sorted({*chosen, *(Case(trained, "p2p-1") for trained in TRAINED)}, key=CASES.index)
    return Results(Catalog(folder / "catalog"), chosen, folder)


@pytest.mark.slow
@pytest.mark.parametrize("trained", TRAINED)
def test_losses_and_figures_are_the_same_on_any_layout(results: Results, trained: str) -> None:
    found = results.of(trained)
    expected = found["p2p-1"]
    assert len(found) > 1
    assert "error" not in expected, expected
    assert expected["loss"][1] != expected["loss"][0]
    task = TASKS[TRAINED[trained].get("task", "link")]
    figures = [name for figure in task.figures for name in figure.names]
    assert [name for name in expected if name in figures] == figures
    for layout, result in found.items():
        assert "error" not in result, (layout, result)
        np.testing.assert_allclose(result["loss"], expected["loss"], rtol=SAME, atol=0, err_msg=layout)
        for name in figures:
            # Figures of links and accuracies count; others are sums of squares.
            if TRAINED[trained].get("task") == "edge-number":
                np.testing.assert_allclose(result[name], expected[name], rtol=SAME, err_msg=f"{layout} {name}")
            else:
                assert result[name] == expected[name], (layout, name)
        assert result.get("filtered") == expected.get("filtered")
