"""A recipe: one TOML file that describes a whole run, from raw data to predictions, checked before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.shards.grid_stage import GridOptions
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.document import Document
from gnnloom.workflows.recipe.sections import (
    CatalogSection,
    ClusterSection,
    DatasetSection,
    PredictSection,
    ShardsSection,
    SlurmSection,
)
from gnnloom.workflows.recipe.sources import (
    SourceSection,
    VerticesSection,
    source_section,
    vertices_section,
    whole_path,
)
from gnnloom.workflows.recipe.toml_writer import to_toml

#: Folder of the recipes that come with gnnloom.
RECIPES = Path(__file__).parents[1] / "recipes"

#: Fields of the training that select shards; the recipe's stages make those shards.
_SELECTS_SHARDS = ("shards", "method", "permutation")
#: Fields of the training that a recipe cannot set.
_SETTLED = frozenset({"catalog", "dataset", *_SELECTS_SHARDS})


@dataclass(frozen=True)
class Recipe:
    """A checked recipe.

    Attributes:
        source_name: the file it was read from.
        partition: None if the shards need no partition.
        predict: None if nothing is predicted.
    """

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
            catalog: folder of the datasets, unless the recipe names one.
            settings: ``section.key=value`` each; they override the file.

        Raises:
            InputError: a key is wrong; names its line and what is allowed.
            NotFoundError: the recipe does not exist.
        """
        document = Document.read(find_recipe(path), settings)
        document.check_sections(SECTIONS)
        dataset = document.build("dataset", DatasetSection)
        named = document.build("catalog", CatalogSection).path
        root = Path(named).expanduser() if named else catalog
        settled = {"catalog": str(root.resolve()), "dataset": dataset.name}
        # Before the shards and the partition: the algorithm decides the layout, and the ranks the number of parts.
        train = document.build("train", TrainConfig, **settled, **dict.fromkeys(_SELECTS_SHARDS))
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
        """Folder of the dataset, which may not exist yet."""
        return self.catalog.expanduser().resolve() / self.dataset.name

    @property
    def grid(self) -> GridOptions | None:
        """Options of grid shards; None for row shards."""
        return self.shards.options() if self.shards.layout == "grid" else None

    def anywhere(self) -> Recipe:
        """Return the same recipe with absolute paths, so that it works from any current folder."""
        predict = self.predict
        if predict is not None and predict.out is not None:
            predict = dataclasses.replace(predict, out=whole_path(predict.out))
        return dataclasses.replace(
            self, source=self.source.anywhere(), vertices=self.vertices.anywhere(), predict=predict
        )

    def to_toml(self) -> str:
        """Write the recipe as TOML with every default filled in."""
        sections: dict[str, Any] = {name: getattr(self, name) for name in SECTIONS if name != "catalog"}
        content = {name: dataclasses.asdict(section) for name, section in sections.items() if section is not None}
        content["train"] = {key: value for key, value in content["train"].items() if key not in _SETTLED}
        given = {name: {key: value for key, value in keys.items() if value != ()} for name, keys in content.items()}
        # An empty list is a value here (no hidden layer); for all other keys it means that nothing was given.
        given["train"]["hidden"] = list(self.train.hidden)
        # An absolute path, so that the saved recipe finds its catalog from any folder.
        return to_toml({"catalog": {"path": str(self.catalog.resolve())}, **given})


SECTIONS = tuple(field.name for field in dataclasses.fields(Recipe) if field.name != "source_name")


def find_recipe(path: Path) -> Path:
    """Return the file of a recipe: the given file, or the recipe of this name that comes with gnnloom.

    Raises:
        NotFoundError: neither exists.
    """
    if path.is_file():
        return path
    named = RECIPES / f"{path.name}.toml"
    if len(path.parts) == 1 and named.is_file():
        return named
    there = ", ".join(sorted(recipe.stem for recipe in RECIPES.glob("*.toml")))
    raise NotFoundError(f"{path}: no recipe found; give a file, or one that comes with gnnloom: {there}")


def _shards(document: Document, train: TrainConfig) -> ShardsSection:
    """Read the section on shards and settle their layout: the one that the algorithm reads."""
    needed = train.chosen_algorithm.reads.name
    shards = document.build("shards", ShardsSection)
    if shards.layout not in {None, needed}:
        where = document.where("shards", "layout")
        raise InputError(
            f"{where}: [shards] layout {shards.layout!r}: algorithm {train.algorithm} reads {needed} shards; remove"
            " the key, or change [train] algorithm"
        )
    return dataclasses.replace(shards, layout=needed)


def _partition(document: Document, train: TrainConfig, shards: ShardsSection) -> PartitionOptions | None:
    """Read the section on the partition, by default with one part per rank; None if the shards need no partition."""
    given = document.sections.get("partition", {})
    options = document.build("partition", PartitionOptions, **({} if "parts" in given else {"parts": train.ranks}))
    # Built first all the same, so that errors in an unused section are reported.
    if shards.layout == "grid" and shards.permutation != "partition":
        return None
    if shards.layout == "row" and options.parts != train.ranks:
        raise InputError(
            f"{document.where('partition', 'parts')}: [partition] parts = {options.parts}, but [train] ranks ="
            f" {train.ranks}: algorithm {train.algorithm} needs one part per rank; remove parts, or make them equal"
        )
    return options
