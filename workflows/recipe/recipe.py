"""A recipe: a whole run, from raw data to predictions; ``read.py`` reads and checks one from a TOML file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.shards.shard_options import GridOptions
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.disk.remote_folder import masked_settings
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import option_fields
from gnnloom.trainer.config.algorithm_config import AlgorithmConfig
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.sections import (
    ClusterSection,
    DatasetSection,
    PredictSection,
    PropagateSection,
    SamplesSection,
    ShardsSection,
    SlurmSection,
)
from gnnloom.workflows.recipe.sources import SourceSection, VerticesSection, shown_path, whole_path
from gnnloom.workflows.recipe.tables import ListSection, RelationSection, open_tables
from gnnloom.workflows.recipe.toml.text import to_toml
from gnnloom.workflows.recipe.unused_keys import unused_seed, unused_train_keys

#: Fields of the training run that select shards; the recipe's stages make these shards.
SELECTS_SHARDS: Final = ("shards", "method", "permutation")
#: Fields of the training run that a recipe cannot set.
SETTLED: Final = frozenset({"catalog", "dataset", *SELECTS_SHARDS})
#: Sections of recipes without types.
WITHOUT_TYPES: Final = ("source", "vertices", "propagate")


@dataclass(frozen=True)
class Recipe:
    """A checked recipe. A section that its file lacks has the default of its field.

    Attributes:
        source_name: the file it was read from.
        source: source of the edges; for a graph with types, the files of the first relation.
        links: edges that are held out of the graph that later stages read; None if no edges are.
        partition: None if the shards need no partition, or the recipe has types and neither section.
        shards: for a recipe with types and without shards, a section without a layout.
        train: None if the recipe stops before the training.
        predict: None if nothing is predicted.
        relations: tables of the relations of a graph with types; empty for other graphs.
        lists: tables of the vertices of such a graph.
    """

    source_name: str
    catalog: Path
    dataset: DatasetSection
    source: SourceSection
    vertices: VerticesSection
    links: DrawOptions | None = None
    partition: PartitionOptions | None = None
    shards: ShardsSection = ShardsSection()
    samples: SamplesSection = SamplesSection()
    propagate: PropagateSection = PropagateSection()
    train: TrainConfig | None = None
    predict: PredictSection | None = None
    cluster: ClusterSection = ClusterSection()
    slurm: SlurmSection = SlurmSection()
    relations: tuple[RelationSection, ...] = ()
    lists: tuple[ListSection, ...] = ()

    @property
    def training(self) -> TrainConfig:
        """The configuration of the recipe's training run.

        Raises:
            InputError: the recipe does not train.
        """
        if self.train is None:
            raise InputError(f"{self.source_name}: the recipe has no section [train], so nothing is trained; add one")
        return self.train

    @property
    def num_ranks(self) -> int:
        """Number of ranks that propagate and train, which is the number of parts."""
        if self.train is not None:
            return self.train.algorithm.ranks
        return self.partition.parts if self.partition is not None else AlgorithmConfig.ranks

    @property
    def propagation(self) -> PropagateConfig | None:
        """Configuration of the propagation, for any shards; None if nothing is propagated."""
        if not self.propagate.steps:
            return None
        return self.propagate.options(str(self.catalog.resolve()), self.dataset.name, self.num_ranks)

    def tables(self) -> TypedTables:
        """Open the tables of a graph with types.

        Raises:
            InputError, NotFoundError: as :meth:`TypedTables.open`.
        """
        return open_tables(self.relations, self.lists, any_name=self.dataset.ids == "names")

    @property
    def dataset_path(self) -> Path:
        """Folder of the dataset, which may not exist yet."""
        return user_path(self.catalog).resolve() / self.dataset.name

    @property
    def sampled(self) -> SampleOptions | None:
        """Options of the samples that are drawn ahead of training; None if there are none."""
        return self.samples.options(self.training) if self.samples.epochs else None

    @property
    def makes_shards(self) -> bool:
        """Whether the recipe has shards: always, unless it has types and no section for them."""
        return self.shards.layout is not None

    @property
    def grid(self) -> GridOptions | None:
        """Options of grid shards; None for row shards."""
        return self.shards.options() if self.shards.layout == "grid" else None

    def values(self) -> dict[str, dict[str, Any]]:
        """The values of each section that the recipe has, by section and key; without the catalog and the lists."""
        content = {name: getattr(self, name) for name in SECTIONS if name not in {"catalog", "relations"}}
        return {
            name: {key: each.value(section) for key, each in option_fields(type(section)).items()}
            for name, section in content.items()
            if section is not None
        }

    def anywhere(self, place: Callable[[str], str] = whole_path) -> Recipe:
        """Return the same recipe with absolute paths, so that it works from any current folder.

        Args:
            place: writes the location of a source.
        """
        predict = self.predict
        if predict is not None:
            out, pairs, top_of = (
                None if path is None else whole_path(path) for path in (predict.out, predict.pairs, predict.top_of)
            )
            predict = dataclasses.replace(predict, out=out, pairs=pairs, top_of=top_of)
        return dataclasses.replace(
            self,
            source=self.source.anywhere(place),
            vertices=self.vertices.anywhere(place),
            predict=predict,
            relations=tuple(each.anywhere(place) for each in self.relations),
            lists=tuple(each.anywhere(place) for each in self.lists),
        )

    def public(self) -> Recipe:
        """Return the same recipe without secrets, as it is stored with a run and shared with others.

        URLs are without user, password and query, and lines of ``[slurm] setup`` without the values of variables whose
        names say that they hold a secret.
        """
        slurm = dataclasses.replace(self.slurm, setup=tuple(map(masked_settings, self.slurm.setup)))
        return dataclasses.replace(self.anywhere(shown_path), slurm=slurm)

    def to_toml(self) -> str:
        """Write the recipe as TOML with every default filled in."""
        left_out = {"catalog", *(WITHOUT_TYPES if self.relations else ()), *(() if self.makes_shards else ("shards",))}
        # An empty list is a value of `hidden` (no hidden layer); for all other keys it means that no value was given.
        given = {
            name: {key: value for key, value in keys.items() if value != () or key == "hidden"}
            for name, keys in self.values().items()
            if name not in left_out
        }
        of_grid = {"grid", "permutation", "seed"}
        unused = {"shards": of_grid if self.grid is None else {"reorder", *unused_seed(self.shards)}}
        if self.train is not None:
            unused["train"] = {*SETTLED, *unused_train_keys(self.train)}
        for name, keys in unused.items():
            if name in given or not self.relations:
                given[name] = {key: value for key, value in given.get(name, {}).items() if key not in keys}
        tables = {"relations": self.relations, "vertices": self.lists}
        lists = {
            name: [{key: value for key, value in dataclasses.asdict(each).items() if value != ()} for each in entries]
            for name, entries in tables.items()
        }
        # An absolute path, so that the saved recipe finds its catalog from any folder.
        return to_toml({"catalog": {"path": str(self.catalog.resolve())}, **given}, lists)


#: Names of all sections; lists have the names of sections.
SECTIONS: Final = tuple(
    field.name for field in dataclasses.fields(Recipe) if field.name not in {"source_name", "lists"}
)
