"""What the stages of a recipe will need: memory, disk and time, projected before anything runs.

The ingest and the partitioner have projections of their own, which are used here. Those of shards and training are
computed from the sizes of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from gnnloom.pipeline.ingest.stage import project_ingest
from gnnloom.pipeline.partition.partitioners import METHODS
from gnnloom.pipeline.partition.workload import Workload as PartitionWorkload
from gnnloom.pipeline.tasks.cluster import ClusterOptions, available_cores, threads_suffice
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.recipe import Recipe
from gnnloom.workflows.recipe.request import Assignment
from gnnloom.workflows.recipe.stages import Stage

#: Bytes of a trainer's rank before it holds anything: the interpreter, torch and MPI.
RANK_BASE_MEMORY = 400 << 20
#: Bytes of an id in a shard; more than 2^31 columns need 8, which shards of one rank do not have.
_ID_BYTES = 4
#: Classes where neither the recipe nor stored labels say how many there are.
_ASSUMED_CLASSES = 64


@dataclass(frozen=True)
class Projection:
    """What one stage will need; None where it is not known before an earlier stage is done.

    Attributes:
        memory: bytes of the largest process.
        disk: bytes of the artifact or run.
        scratch: bytes of temporary files.
        seconds: processor seconds of all processes.
        note: what the figures assume.
    """

    stage: str
    key: str
    is_done: bool
    memory: int | None = None
    disk: int | None = None
    scratch: int | None = None
    seconds: float | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        content = asdict(self)
        return {"done" if name == "is_done" else name: value for name, value in content.items()}


@dataclass(frozen=True)
class GraphSizes:
    """The sizes of a recipe's graph: of the stored one, or as projected from its source."""

    num_vertices: int
    nnz: int
    num_features: int
    num_classes: int
    weighted: bool = False


def project_recipe(assignment: Assignment) -> list[Projection]:
    """Project the stages that were asked for.

    Raises:
        InputError: the source cannot be read.
        BudgetError: the ingest does not fit the memory or the disk.
    """
    workload = assignment.workload
    path = assignment.recipe.dataset_path / "graph" / workload.all_keys["graph"]
    first = None if (path / MANIFEST).exists() else _project_graph(assignment)
    sizes = first[1] if first else _stored_sizes(assignment, Graph(Artifact(path)))
    projections: dict[str, Callable[[Stage], Projection]] = {
        "graph": lambda stage: first[0] if first else _done(stage),
        "vertices": lambda stage: _project_vertices(stage, sizes, assignment.cluster),
        "partition": lambda stage: _project_partition(stage, sizes, assignment),
        "shards": lambda stage: _project_shards(stage, sizes, assignment),
        "train": lambda stage: _project_training(stage, sizes, workload.config),
        "predict": lambda stage: _project_prediction(stage, sizes, assignment),
    }
    return [_done(stage) if stage.is_done else projections[stage.name](stage) for stage in workload.stages]


def _done(stage: Stage) -> Projection:
    return Projection(stage.name, stage.key, is_done=True)


def _project_graph(assignment: Assignment) -> tuple[Projection, GraphSizes]:
    recipe, cluster = assignment.recipe, assignment.cluster
    source = recipe.source.open(undirected=recipe.dataset.undirected)
    folder = next(path for path in recipe.dataset_path.parents if path.is_dir())
    workers = available_cores() if cluster.workers is None else max(1, cluster.workers)
    found = project_ingest(source, recipe.dataset.options(), folder, workers, cluster.memory)
    # An ingest makes the same choice if no number of workers was asked for.
    if cluster.kind == "local" and cluster.workers is None and threads_suffice(workers, found.work):
        found = found.in_one_process()
    # Self loops are entries too.
    nnz = found.entries + (found.vertices if recipe.dataset.self_loops == "add" else 0)
    projection = Projection(
        "graph",
        assignment.workload.all_keys["graph"],
        False,
        found.peak_memory,
        found.output_bytes,
        found.spill_bytes,
        found.work,
        f"about {found.vertices:.2g} vertices and {nnz:.2g} entries",
    )
    return projection, GraphSizes(found.vertices, nnz, *_vertex_sizes(recipe, None))


def _stored_sizes(assignment: Assignment, graph: Graph) -> GraphSizes:
    path = assignment.recipe.dataset_path / "vertices" / assignment.workload.all_keys.get("vertices", "")
    if (path / MANIFEST).exists():
        vertices = Vertices(Artifact(path))
        sizes = vertices.num_features, vertices.num_classes
    else:
        sizes = _vertex_sizes(assignment.recipe, graph)
    return GraphSizes(graph.num_vertices, graph.nnz, *sizes, graph.weighted)


def _vertex_sizes(recipe: Recipe, graph: Graph | None) -> tuple[int, int]:
    """Return the number of features and classes, as far as the recipe or its files say; 0 features if unknown."""
    section = recipe.vertices
    # Synthetic data need the stored graph to be opened, but their sizes are keys of the recipe.
    if section.is_synthetic:
        given = {option.name: option.default for option in section.options()} | section.values()
        return given["dim"], given["classes"]
    source = section.open(recipe.source, graph) if graph or section.format is None else None
    classes = section.classes or recipe.source.given.get("classes") or _ASSUMED_CLASSES
    return source.num_features() if source is not None else 0, int(classes)


def _vertex_bytes(sizes: GraphSizes) -> int:
    # float32 features, an int32 class and a split of one byte.
    return sizes.num_vertices * (4 * sizes.num_features + 5)


def _project_vertices(stage: Stage, sizes: GraphSizes, cluster: ClusterOptions) -> Projection:
    note = f"{sizes.num_features} features" if sizes.num_features else "features not read yet"
    disk = _vertex_bytes(sizes)
    return Projection(stage.name, stage.key, False, cluster.memory, disk, 0, None, f"{note}; before compression")


def _project_partition(stage: Stage, sizes: GraphSizes, assignment: Assignment) -> Projection:
    options = assignment.recipe.partition
    if options is None:
        return _done(stage)
    symmetric = assignment.recipe.dataset.undirected
    directions = 2 if options.directions == "both" and not symmetric else 1
    workload = PartitionWorkload(
        sizes.num_vertices, sizes.nnz, symmetric, options.parts, options.model, directions, options.batches,
        assignment.cluster.memory,
    )  # fmt: skip
    method = METHODS[options.method]
    preset = next(each for each in method.presets if each.name == options.preset)
    cost = method.cost(workload, preset)
    note = f"{options.method} {options.preset}".strip()
    return Projection(
        stage.name, stage.key, False, cost.memory, 4 * sizes.num_vertices, cost.disk, cost.cpu_seconds, note
    )


def _project_shards(stage: Stage, sizes: GraphSizes, assignment: Assignment) -> Projection:
    recipe, weight_bytes = assignment.recipe, 4 if sizes.weighted else 0
    variants = 1 if recipe.dataset.undirected else 2
    orders = 1
    if recipe.grid is not None and recipe.grid.permutation == "double":
        # Rows and columns have orders of their own, so the transpose and the vertex data are stored in both.
        variants, orders = 2, 2
    entries = variants * sizes.nnz * (_ID_BYTES + weight_bytes)
    disk = entries + variants * 8 * sizes.num_vertices + orders * _vertex_bytes(sizes)
    # Every entry passes through a spill file, with its row.
    scratch = variants * sizes.nnz * (2 * _ID_BYTES + weight_bytes) + orders * _vertex_bytes(sizes)
    return Projection(
        stage.name, stage.key, False, assignment.cluster.memory, disk, scratch, None, "before compression"
    )


def training_memory(config: TrainConfig, sizes: GraphSizes) -> int:
    """Project the bytes of one rank: its share of the adjacency, features and activations, without halo rows.

    ``base + nnz/P (id + weight) + 4 n/P (2 F + 2 sum(hidden) + 2 max(F, hidden, C))``: the features and their product
    with the adjacency; of every hidden layer what the backward pass needs; and the gradients of two layers.
    """
    rows, entries = -(-sizes.num_vertices // config.ranks), -(-sizes.nnz // config.ranks)
    widest = max(sizes.num_features, sizes.num_classes, *config.hidden, 0)
    columns = 2 * sizes.num_features + 2 * sum(config.hidden) + 2 * widest
    real = 8 if config.dtype == "float64" else 4
    return RANK_BASE_MEMORY + entries * (_ID_BYTES + (4 if sizes.weighted else 0)) + real * rows * columns


def _parameters(config: TrainConfig, sizes: GraphSizes) -> int:
    widths = (sizes.num_features, *config.hidden, sizes.num_classes)
    return sum(first * second + second for first, second in pairwise(widths))


def _project_training(stage: Stage, sizes: GraphSizes, config: TrainConfig) -> Projection:
    # The weights and the two moments of Adam.
    checkpoint = 3 * 4 * _parameters(config, sizes)
    note = f"{config.ranks} ranks; rows of other ranks come on top"
    return Projection(stage.name, stage.key, False, training_memory(config, sizes), checkpoint, 0, None, note)


def _project_prediction(stage: Stage, sizes: GraphSizes, assignment: Assignment) -> Projection:
    config, predict = assignment.workload.config, assignment.recipe.predict
    width = config.hidden[-1] if predict is not None and predict.embeddings and config.hidden else 0
    disk = sizes.num_vertices * (4 + 4 * width)
    return Projection(stage.name, stage.key, False, training_memory(config, sizes), disk, 0, None, "before compression")
