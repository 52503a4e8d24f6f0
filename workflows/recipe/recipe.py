"""Recipes: one TOML file that says all of a run, from raw data to predictions, checked before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.shards.grid_stage import GridOptions
from gnnloom.pipeline.tasks.cluster import ClusterOptions
from gnnloom.storage.catalog import check_name
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.cli.options import MemorySize
from gnnloom.workflows.interop.tables import check_file
from gnnloom.workflows.recipe.document import Document, to_toml
from gnnloom.workflows.recipe.sources import (
    SourceSection,
    VerticesSection,
    source_section,
    vertices_section,
    whole_path,
)

#: Recipes that come with gnnloom.
RECIPES = Path(__file__).parents[1] / "recipes"

#: Fields of the training that say which shards it reads: those of the recipe.
_FOUND = ("shards", "method", "permutation")
#: Bytes of a core that can be asked for: less would be written as 0, which asks for all.
_LEAST_MEMORY = 1 << 20
_SETTLED = frozenset({"catalog", "dataset", "resume", *_FOUND})


@dataclass(frozen=True, kw_only=True)
class CatalogSection:
    """``[catalog]``: the folder of the datasets; the command's ``--catalog`` by default."""

    path: str | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetSection:
    """``[dataset]``: its name, and how edges become its graph (see :class:`IngestOptions`)."""

    name: str
    undirected: bool = False
    self_loops: str = IngestOptions.self_loops
    ids: str = IngestOptions.ids
    merge: str = IngestOptions.merge
    codec: str = IngestOptions.codec

    def __post_init__(self) -> None:
        check_name(self.name)
        self.options()

    def options(self) -> IngestOptions:
        return IngestOptions(self.undirected, self.self_loops, self.ids, self.merge, self.codec)


@dataclass(frozen=True, kw_only=True)
class ShardsSection:
    """``[shards]``: ``row`` shards of the partition, or ``grid`` shards; by default what the algorithm reads."""

    layout: str | None = None
    grid: tuple[int, int] = GridOptions.grid
    permutation: str = GridOptions.permutation
    seed: int = GridOptions.seed

    def __post_init__(self) -> None:
        if self.layout not in {None, "row", "grid"}:
            raise InputError(f"layout {self.layout!r}: expected 'row' or 'grid'")
        self.options()

    def options(self) -> GridOptions:
        return GridOptions(self.grid, self.permutation, self.seed)


@dataclass(frozen=True, kw_only=True)
class PredictSection:
    """``[predict]``: predict every vertex's class after training, and the file to export them to, if any."""

    out: str | None = None
    embeddings: bool = False

    def __post_init__(self) -> None:
        try:
            check_file(Path(self.out) if self.out else None)
        except InputError as error:
            raise InputError(f"out: {error}") from error


@dataclass(frozen=True, kw_only=True)
class ClusterSection:
    """``[cluster]``: where the stages before training run, unless options of the command say otherwise.

    Attributes:
        workers: local processes; one per core by default, 0 for none.
        memory: that the work of one worker may take, such as ``1G``.
        interface: of the network, such as ``ib0``; needed by ranks on several machines.
        dashboard: serve Dask's dashboard.
    """

    workers: int | None = None
    memory: str = "1G"
    interface: str | None = None
    dashboard: bool = False

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 0:
            raise InputError(f"workers {self.workers}: expected 0 or more")
        self.options("local")

    @property
    def task_memory(self) -> int:
        """Bytes that the work of one worker may take."""
        return _size(self.memory)

    def options(self, where: str) -> ClusterOptions:
        """What to open for ``where``: ``local``, ``mpi``, the address of a scheduler, or the file it left it in.

        Raises:
            InputError: ``memory`` is no size, or ``where`` none of these.
        """
        memory = self.task_memory
        if where in {"local", "mpi"}:
            return ClusterOptions(where, self.workers, memory)
        if "://" in where:
            return ClusterOptions("address", None, memory, where)
        if not Path(where).is_file():
            raise InputError(f"--cluster {where}: expected local, mpi, an address such as tcp://host:8786, or a file")
        return ClusterOptions("scheduler-file", None, memory, where)


@dataclass(frozen=True, kw_only=True)
class SlurmSection:
    """``[slurm]``: sizes of the batch jobs that ``--emit slurm`` writes.

    Attributes:
        prepare_ranks: of the job that only prepares; as many as train by default.
        memory: of one rank.
        seeds: runs of the job array, which differ in their seed.
        mpi: what ``srun --mpi=`` gets.
    """

    ranks_per_node: int = 16
    prepare_ranks: int | None = None
    cpus_per_rank: int = 2
    memory: str = "8G"
    time: str = "04:00:00"
    prepare_time: str = "04:00:00"
    partition: str | None = None
    account: str | None = None
    seeds: int = 5
    mpi: str = "pmi2"

    def __post_init__(self) -> None:
        for name in ("ranks_per_node", "prepare_ranks", "cpus_per_rank", "seeds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} {value}: expected at least 1")
        if self.memory_per_cpu < _LEAST_MEMORY:
            raise InputError(f"memory {self.memory}: expected at least 1M for each of {self.cpus_per_rank} cores")

    @property
    def rank_memory(self) -> int:
        """Bytes of each rank."""
        return _size(self.memory)

    @property
    def memory_per_cpu(self) -> int:
        """Bytes of each core."""
        return self.rank_memory // self.cpus_per_rank


def _size(memory: str) -> int:
    try:
        return MemorySize().convert(memory, None, None)
    except click.BadParameter as error:
        raise InputError(f"memory: {error.message}") from error


@dataclass(frozen=True)
class Recipe:
    """A checked recipe; ``partition`` is None where the shards need none, ``predict`` where nothing is predicted."""

    source_name: str
    catalog: Path
    dataset: DatasetSection
    source: SourceSection
    vertices: VerticesSection
    partition: PartitionOptions | None
    shards: ShardsSection
    train: TrainConfig
    predict: PredictSection | None
    cluster: ClusterSection
    slurm: SlurmSection

    @classmethod
    def read(cls, path: Path, catalog: Path, settings: Sequence[str] = ()) -> Recipe:
        """Read and check a recipe: a file, or the name of one that comes with gnnloom.

        Args:
            catalog: the folder of datasets, where the recipe names none.
            settings: ``section.key=value``, which win over the file.

        Raises:
            InputError: with the line of the key that is wrong and what it may be.
            NotFoundError: there is no such recipe.
        """
        document = Document.read(find_recipe(path), settings)
        document.check_sections(SECTIONS)
        dataset = document.build("dataset", DatasetSection)
        named = document.build("catalog", CatalogSection).path
        root = Path(named).expanduser() if named else catalog
        settled = {"catalog": str(root.resolve()), "dataset": dataset.name, "resume": True}
        train = document.build("train", TrainConfig, **settled, **dict.fromkeys(_FOUND))
        shards = _shards(document, train)
        return cls(
            document.name,
            root,
            dataset,
            document.build("source", source_section()),
            document.build("vertices", vertices_section()),
            _partition(document, train, shards),
            shards,
            train,
            document.build("predict", PredictSection) if "predict" in document.sections else None,
            document.build("cluster", ClusterSection),
            document.build("slurm", SlurmSection),
        )

    @property
    def dataset_path(self) -> Path:
        """Folder of the dataset, which may not be there yet."""
        return self.catalog.expanduser().resolve() / self.dataset.name

    @property
    def grid(self) -> GridOptions | None:
        """How to cut grid shards; None for row shards."""
        return self.shards.options() if self.shards.layout == "grid" else None

    def anywhere(self) -> Recipe:
        """The same recipe, which names local files so that any folder may be the current one."""
        predict = self.predict
        if predict is not None and predict.out is not None:
            predict = dataclasses.replace(predict, out=whole_path(predict.out))
        return dataclasses.replace(
            self, source=self.source.anywhere(), vertices=self.vertices.anywhere(), predict=predict
        )

    def to_toml(self) -> str:
        """The recipe with everything settled that was left to defaults."""
        sections: dict[str, Any] = {name: getattr(self, name) for name in SECTIONS if name != "catalog"}
        content = {name: dataclasses.asdict(section) for name, section in sections.items() if section is not None}
        content["train"] = {key: value for key, value in content["train"].items() if key not in _SETTLED}
        given = {name: {key: value for key, value in keys.items() if value != ()} for name, keys in content.items()}
        given["train"]["hidden"] = list(self.train.hidden)
        return to_toml({"catalog": {"path": str(self.catalog.resolve())}, **given})


SECTIONS = tuple(field.name for field in dataclasses.fields(Recipe) if field.name != "source_name")


def find_recipe(path: Path) -> Path:
    """The file of a recipe: as given, or the one that comes with gnnloom under this name.

    Raises:
        NotFoundError: there is neither.
    """
    if path.is_file():
        return path
    named = RECIPES / f"{path.name}.toml"
    if len(path.parts) == 1 and named.is_file():
        return named
    there = ", ".join(sorted(recipe.stem for recipe in RECIPES.glob("*.toml")))
    raise NotFoundError(f"{path}: there is no such recipe; give a file, or one that comes with gnnloom: {there}")


def _shards(document: Document, train: TrainConfig) -> ShardsSection:
    """The shards with their layout settled: what the algorithm reads."""
    needed = train.chosen_algorithm.reads.name
    shards = document.build("shards", ShardsSection)
    if shards.layout not in {None, needed}:
        where = document.where("shards", "layout")
        raise InputError(
            f"{where}: [shards] layout {shards.layout!r}: algorithm {train.algorithm} reads {needed} shards; leave the"
            " key out, or change [train] algorithm"
        )
    return dataclasses.replace(shards, layout=needed)


def _partition(document: Document, train: TrainConfig, shards: ShardsSection) -> PartitionOptions | None:
    """The partition, into as many parts as ranks train or as orders a grid; None where the shards need none."""
    given = document.sections.get("partition", {})
    options = document.build("partition", PartitionOptions, **({} if "parts" in given else {"parts": train.ranks}))
    if shards.layout == "grid" and shards.permutation != "partition":
        return None
    if shards.layout == "row" and options.parts != train.ranks:
        raise InputError(
            f"{document.where('partition', 'parts')}: [partition] parts = {options.parts}, but [train] ranks ="
            f" {train.ranks}: algorithm {train.algorithm} needs one part per rank; leave parts out, or make them equal"
        )
    return options
