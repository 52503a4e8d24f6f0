"""`--quality`: which method each graph gets, that nothing else decides it, and what it leaves as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import scipy.sparse

from gnnloom.pipeline.partition.choice import LEVELS, MOST_PINS, choose
from gnnloom.pipeline.partition.multilevel.ways import measure_structure
from gnnloom.pipeline.partition.options import METHODS, PartitionOptions, partition_key
from gnnloom.pipeline.partition.partition_plan import project_methods
from gnnloom.pipeline.partition.partitioner import PartitionWorkload, Structure
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset, Graph
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import artifact_key
from support.graphs import random_adjacency, store_graph

HERE = InProcessCluster()
MESH, WEB, SOCIAL, RANDOM, SKEWED = (
    Structure(0, left, skew) for left, skew in ((0.56, 1.0), (0.69, 50.0), (0.8, 200.0), (0.95, 2.0), (0.93, 100.0))
)
QUICK = "kaminpar default, 40 passes of refinement on up to 6 levels"
FEW = "kaminpar default, 16 passes of refinement"
CYCLE, QUALITY = "mtkahypar large-k, 16 passes of refinement, a V-cycle", "mtkahypar deterministic-quality"
COVERED = "kaminpar default, 16 passes of cover refinement"


@pytest.mark.parametrize(
    ("level", "pins", "structure", "exchange", "chosen"),
    [
        ("balanced", 200_000, MESH, "rows", [CYCLE]),
        ("balanced", 200_000, WEB, "rows", ["mtkahypar large-k, 40 passes of refinement on up to 6 levels"]),
        ("balanced", 200_000, WEB, "cover", [COVERED]),
        ("balanced", 200_000, SOCIAL, "rows", [QUICK]),
        ("balanced", 5_000_000, SOCIAL, "rows", [QUICK]),
        ("balanced", 200_000, RANDOM, "rows", [QUICK]),
        ("balanced", 200_000, SKEWED, "rows", ["heavy-first, 64 passes of refinement"]),
        ("balanced", MOST_PINS + 1, None, "rows", ["multilevel"]),
        ("balanced", 200_000, MESH, "cover", [CYCLE]),
        ("balanced", 200_000, SOCIAL, "cover", [COVERED]),
        ("balanced", 200_000, SKEWED, "cover", [COVERED]),
        ("balanced", MOST_PINS + 1, None, "cover", ["multilevel"]),
        ("fast", 200_000, MESH, "rows", ["mtkahypar large-k, 16 passes of refinement"]),
        ("fast", 200_000, SOCIAL, "rows", [FEW]),
        ("fast", 200_000, RANDOM, "rows", [FEW]),
        ("fast", 200_000, SKEWED, "rows", ["heavy-first, 16 passes of refinement"]),
        ("fast", 200_000, RANDOM, "cover", ["kaminpar default, 4 passes of cover refinement"]),
        ("fast", MOST_PINS + 1, None, "rows", ["heavy-first, 2 passes of refinement"]),
        ("best", 200_000, SKEWED, "rows", [QUALITY, "heavy-first, 200 passes of refinement"]),
        ("best", MOST_PINS + 1, None, "rows", ["multilevel"]),
    ],
)
def test_the_table_of_choices(
    level: str, pins: int, structure: Structure | None, exchange: str, chosen: list[str]
) -> None:
    choice = choose(level, pins, structure, exchange)
    assert list(map(str, choice.ways)) == chosen
    assert choice.reason


def seconds(level: str, structure: Structure, exchange: str = "rows") -> float:
    """Projected for a million pins in 64 parts."""
    workload = PartitionWorkload(
        10**4, 10**6 - 10**4, True, 64, "hypergraph", 1, "vertex", 1 << 30, structure, exchange
    )
    return sum(way.cpu_seconds(workload) for way in choose(level, workload.num_pins, structure, exchange).ways)


@pytest.mark.parametrize("exchange", ["rows", "cover"])
@pytest.mark.parametrize("structure", [MESH, WEB, SOCIAL, RANDOM, SKEWED])
def test_better_levels_try_more(structure: Structure, exchange: str) -> None:
    found = [seconds(level, structure, exchange) for level in ("fast", "balanced", "best")]
    assert found == sorted(found)
    assert len(set(found)) == 3


@pytest.mark.parametrize("structure", [SOCIAL, RANDOM, SKEWED])
def test_the_default_is_projected_at_a_fifth_of_the_slow_level(structure: Structure) -> None:
    assert seconds("balanced", structure) <= seconds("best", structure) / 5


def lattice(side: int) -> scipy.sparse.csr_array[Any]:
    line = scipy.sparse.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(side, side))
    both = scipy.sparse.kronsum(line, line, format="csr")
    both.data[:] = 1
    return scipy.sparse.csr_array(both)


@pytest.mark.parametrize("symmetric", [True, False])
def test_clusters_are_told_from_their_absence(catalog: Catalog, tmp_path: Path, symmetric: bool) -> None:
    mesh = lattice(30)
    if not symmetric:
        mesh = scipy.sparse.csr_array(scipy.sparse.triu(mesh))
    without = random_adjacency(900, 12_000, 0, symmetric=symmetric)
    left = []
    for name, matrix in (("mesh", mesh), ("without", without)):
        graph = store_graph(catalog.create(name), matrix, symmetric=symmetric)
        structure = measure_structure(graph, tmp_path / name)
        assert structure == measure_structure(graph, tmp_path / f"{name}-again")
        left.append(structure.pins_left)
    assert left[0] < 0.65
    assert left[1] > 0.89


def stored(catalog: Catalog, name: str = "g") -> tuple[Dataset, Graph]:
    dataset = catalog.create(name)
    return dataset, store_graph(dataset, random_adjacency(300, 4000, 0, symmetric=True), symmetric=True)


@pytest.mark.slow
def test_the_same_graph_gets_the_same_parts_with_any_number_of_threads(catalog: Catalog) -> None:
    """On a mesh, because only the V-cycle runs on several threads."""
    found = []
    for name, threads in (("one", 1), ("two", 2)):
        dataset = catalog.create(name)
        graph = store_graph(dataset, lattice(30), symmetric=True)
        partition = partition_graph(dataset, graph, PartitionOptions(4, threads=threads), HERE)
        found.append((partition.artifact.key, partition.artifact.digest, partition.quality))
    assert found[0] == found[1]
    quality = found[0][2]
    assert (quality["method"], quality["quality"], quality["chosen"]) == ("auto", "balanced", CYCLE)
    assert "of the pins, longest row" in quality["reason"]
    assert quality["imbalance"] <= 0.01 + 1e-9


@pytest.mark.slow
def test_repeating_the_default_gives_the_same_parts_and_best_sends_no_more_rows(catalog: Catalog) -> None:
    found = []
    for name, level in (("one", "balanced"), ("again", "balanced"), ("best", "best")):
        dataset, graph = stored(catalog, name)
        partition = partition_graph(dataset, graph, PartitionOptions(4, quality=level), HERE)
        found.append((partition.artifact.digest, partition.quality))
    assert found[0] == found[1]
    assert found[0][1]["chosen"] == QUICK
    best = found[2][1]
    # The count of the ways, by which one was kept, is that of the stored graph.
    assert best["km1"] == best["tried"][best["chosen"]] == min(best["tried"].values())
    assert best["km1"] <= found[0][1]["km1"]


@pytest.mark.slow
def test_the_best_level_for_an_exchange_of_covers_keeps_the_parts_with_the_smallest_cover(catalog: Catalog) -> None:
    dataset, graph = stored(catalog)
    fast, best = (
        partition_graph(dataset, graph, PartitionOptions(4, quality=level, exchange="cover"), HERE).quality
        for level in ("fast", "best")
    )
    assert best["tried"][best["chosen"]] == min(best["tried"].values()) == best["volume_cover_total"]
    assert best["volume_cover_total"] < fast["volume_cover_total"]


@pytest.mark.parametrize(("exchange", "passes"), [("rows", 0), ("cover", 0), ("cover", 3)])
def test_the_plan_says_what_would_be_chosen(catalog: Catalog, exchange: str, passes: int) -> None:
    dataset, graph = stored(catalog)
    projected = project_methods(graph, 4, exchange=exchange, cover_passes=passes)
    planned = {each.preset: each.chosen for each in projected if each.method == "auto"}
    assert list(planned) == list(LEVELS)
    options = PartitionOptions(4, quality="fast", exchange=exchange, cover_passes=passes)
    quality = partition_graph(dataset, graph, options, HERE).quality
    assert planned["fast"] == f"{quality['chosen']}; {quality['reason']}"
    # Passes that are asked for follow in the place of the level's own.
    assert ("of cover refinement" in planned["fast"]) == (exchange == "cover" and not passes)


def test_a_level_weighs_both_directions_of_a_directed_graph(catalog: Catalog) -> None:
    """KaMinPar, which starts it, has no directions."""
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(200, 900, 1, symmetric=False), symmetric=False)
    quality = partition_graph(dataset, graph, PartitionOptions(4, quality="fast", directions="both"), HERE).quality
    assert quality["chosen"].startswith("kaminpar")


def test_a_quality_is_a_method_and_explicit_choices_stay_what_they_were() -> None:
    assert PartitionOptions(4) == PartitionOptions(4, quality="balanced") == PartitionOptions(4, "auto")
    assert PartitionOptions(4, quality="fast") == PartitionOptions(4, "auto", preset="fast")
    explicit: list[dict[str, Any]] = [
        {"preset": "large-k"},
        {"model": "stochastic"},
        {"model": "graph"},
        {"preset": "deterministic"},
    ]
    for given in explicit:
        assert PartitionOptions(4, **given).method == "mtkahypar"
    clashes: list[dict[str, Any]] = [{"method": "metis"}, {"preset": "large-k"}]
    for clash in clashes:
        with pytest.raises(InputError, match="quality fast: "):
            PartitionOptions(4, quality="fast", **clash)
    with pytest.raises(InputError, match="quality 'finest': "):
        PartitionOptions(4, quality="finest")


def test_every_option_that_decides_the_parts_is_part_of_the_key() -> None:
    parameters = {"parts": 4, "imbalance": 0.01, "seed": 0, "weights": "nonzeros", "directions": "forward"}
    chosen = {"method": "auto", "model": "hypergraph", "preset": "balanced", "revision": 1, "memory": 1 << 29}
    assert PartitionOptions(4).parameters(1 << 29) == {**parameters, **chosen}
    plain = {"method": "random", "model": PartitionOptions(4, "random").model, "preset": ""}
    assert PartitionOptions(4, "random").parameters(1 << 29) == {**parameters, **plain}


def test_a_preset_that_makes_other_parts_than_before_has_another_key_and_all_others_keep_theirs() -> None:
    fast = PartitionOptions(4, quality="fast")
    before = {name: value for name, value in fast.parameters(1 << 30).items() if name != "revision"}
    assert partition_key("0" * 16, fast, 1 << 30) != artifact_key("partition", before, {"graph": "0" * 16})
    kept = [PartitionOptions(4, method, preset=preset.name) for method in METHODS for preset in METHODS[method].presets]
    assert all("revision" not in each.parameters(1 << 30) for each in kept if each.method != "auto")
