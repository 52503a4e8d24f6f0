"""A recipe: one TOML file that describes a whole run, from raw data to predictions, checked before anything runs."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.table import BY_ROW
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.settings import AUTO
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions
from gnnloom.pipeline.shards.grid.typed_grid_stage import check_typed_grid
from gnnloom.storage.artifacts.typed.typed_names import check_distinct
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.disk.remote_folder import masked_settings
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.wording import did_you_mean
from gnnloom.trainer.config.algorithm_config import AlgorithmConfig
from gnnloom.trainer.config.fields import Config
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.sections import (
    CatalogSection,
    ClusterSection,
    DatasetSection,
    PredictSection,
    PropagateSection,
    SamplesSection,
    ShardsSection,
    SlurmSection,
)
from gnnloom.workflows.recipe.sources import (
    SourceSection,
    VerticesSection,
    shown_path,
    source_section,
    vertices_section,
    whole_path,
)
from gnnloom.workflows.recipe.tables import (
    LISTS,
    ListSection,
    RelationSection,
    list_section,
    open_tables,
    relation_section,
)
from gnnloom.workflows.recipe.toml.document import Document, Mistakes
from gnnloom.workflows.recipe.toml.text import to_toml
from gnnloom.workflows.recipe.unused_keys import (
    refuse_unused_partition,
    refuse_unused_shards_keys,
    refuse_unused_train_keys,
    unused_seed,
    unused_train_keys,
)

#: Folder of the recipes that come with gnnloom.
RECIPES = Path(__file__).parents[1] / "recipes"

#: Fields of the training that select shards; the recipe's stages make those shards.
_SELECTS_SHARDS = ("shards", "method", "permutation")
#: Fields of the training that a recipe cannot set.
SETTLED = frozenset({"catalog", "dataset", *_SELECTS_SHARDS})
#: Sections of recipes without types.
_WITHOUT_TYPES = ("source", "vertices", "propagate")
#: Sections of recipes with types whose artifacts no training reads so far.
_NOT_TRAINED = ("partition", "shards")


@dataclass(frozen=True)
class Recipe:
    """A checked recipe.

    Attributes:
        source_name: the file it was read from.
        source: of the edges; of a graph with types, the files of the first relation.
        links: edges that are held out of the graph that the later stages read; None if none are.
        partition: None if the shards need no partition, or the recipe has types and neither section.
        shards: of a recipe with types and without shards, a section without a layout.
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
    links: DrawOptions | None
    partition: PartitionOptions | None
    shards: ShardsSection
    samples: SamplesSection
    propagate: PropagateSection
    train: TrainConfig | None
    predict: PredictSection | None
    cluster: ClusterSection
    slurm: SlurmSection
    relations: tuple[RelationSection, ...] = ()
    lists: tuple[ListSection, ...] = ()

    @classmethod
    def read(cls, path: Path, catalog: Path, settings: Sequence[str] = ()) -> Recipe:
        """Read and check a recipe: a file, or the name of one that comes with gnnloom.

        Args:
            catalog: folder of the datasets, unless the recipe names one.
            settings: ``section.key=value`` each; they override the file.

        Raises:
            InputError: keys are wrong; names their lines and what is allowed.
            NotFoundError: the recipe does not exist.
        """
        document = Document.read(find_recipe(path), settings, LISTS)
        _check_each_section(document)
        relations = tuple(document.build(name, relation_section()) for name in document.entries("relations"))
        edges = {"path": relations[0].path} if relations else {}
        dataset = document.build("dataset", DatasetSection)
        named = document.build("catalog", CatalogSection).path
        root = user_path(named) if named else catalog
        mistakes = Mistakes()
        with mistakes.noted():
            _check_dataset(document, dataset, is_typed=bool(relations))
        links = document.build("links", DrawOptions) if "links" in document.sections else None
        with mistakes.noted():
            _check_links(document, links, [each.name for each in relations])
        train = _train(document, root, dataset, mistakes)
        with mistakes.noted():
            _check_typed_training(document, train, links, is_typed=bool(relations))
        algorithm = train.algorithm if train else None
        shards = _shards(document, algorithm, mistakes)
        partition = _partition(document, algorithm, shards, mistakes)
        lists = tuple(document.build(name, list_section()) for name in document.entries("vertices"))
        types = {name for each in relations for name in (each.source, each.target)} | {each.type for each in lists}
        with mistakes.noted():
            _check_types(document, relations, lists)
        with mistakes.noted():
            _check_types_of_parts(document, partition, shards, types)
        recipe = cls(
            document.name,
            root,
            dataset,
            document.build("source", source_section(), **edges),
            document.build("vertices", vertices_section()),
            links,
            partition,
            shards,
            _samples(document, train, mistakes),
            _propagate(document, train, shards, mistakes),
            train,
            _predict(document, train, mistakes),
            document.build("cluster", ClusterSection),
            document.build("slurm", SlurmSection),
            relations,
            lists,
        )
        mistakes.check()
        return recipe

    @property
    def training(self) -> TrainConfig:
        """The training of a recipe that trains.

        Raises:
            InputError: it has none.
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
        left_out = {"catalog", "relations", *(_WITHOUT_TYPES if self.relations else ())}
        left_out |= set() if self.makes_shards else {"shards"}
        sections: dict[str, Any] = {name: getattr(self, name) for name in SECTIONS if name not in left_out}
        content = {
            name: section.values() if isinstance(section, Config) else dataclasses.asdict(section)
            for name, section in sections.items()
            if section is not None
        }
        # An empty list is a value of `hidden` (no hidden layer); for all other keys it means that nothing was given.
        given = {
            name: {key: value for key, value in keys.items() if value != () or key == "hidden"}
            for name, keys in content.items()
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


SECTIONS = tuple(field.name for field in dataclasses.fields(Recipe) if field.name not in {"source_name", "lists"})


def section_kinds() -> dict[str, type[Any]]:
    """The dataclass of every section, in the order in which mistakes are reported."""
    return {
        "dataset": DatasetSection,
        "catalog": CatalogSection,
        "source": source_section(),
        "vertices": vertices_section(),
        "links": DrawOptions,
        "partition": PartitionOptions,
        "shards": ShardsSection,
        "samples": SamplesSection,
        "propagate": PropagateSection,
        "train": TrainConfig,
        "predict": PredictSection,
        "cluster": ClusterSection,
        "slurm": SlurmSection,
    }


def list_kinds() -> dict[str, type[Any]]:
    """The dataclass of the entries of every list of sections."""
    return {"relations": relation_section(), "vertices": list_section()}


def find_recipe(path: Path) -> Path:
    """Return the file of a recipe: the given file, or the recipe of this name that comes with gnnloom.

    Raises:
        NotFoundError: neither exists.
    """
    if path.is_file():
        return path
    if len(path.parts) == 1:
        return find_bundled(path.name)
    raise _not_found(str(path))


def bundled_recipes() -> list[Path]:
    """Return the files of the recipes that come with gnnloom."""
    return sorted(RECIPES.glob("*.toml"))


def find_bundled(name: str) -> Path:
    """Return the file of a recipe that comes with gnnloom.

    Raises:
        NotFoundError: there is none of this name.
    """
    found = next((path for path in bundled_recipes() if path.stem == name), None)
    if found is None:
        raise _not_found(name)
    return found


def summary_of(path: Path) -> str:
    """Return the first sentence of the comment that a recipe begins with."""
    lines = itertools.takewhile(lambda line: len(line) > 1, path.read_text(encoding="utf-8").splitlines())
    text = " ".join(line.removeprefix("#").strip() for line in lines)
    return re.split(r"(?<=[^.]{3}\.)\s", text)[0]


def _not_found(name: str) -> NotFoundError:
    there = ", ".join(path.stem for path in bundled_recipes())
    return NotFoundError(f"{name}: no recipe found; give a file, or one that comes with gnnloom: {there}")


def _check_each_section(document: Document) -> None:
    """Check every section by itself, before sections that depend on each other are compared."""
    mistakes = Mistakes()
    with mistakes.noted():
        document.check_sections(SECTIONS)
    with mistakes.noted():
        _check_tables(document)
    # Fields that follow from other sections; any values will do.
    settled: dict[str, dict[str, Any]] = {
        "train": dict.fromkeys(SETTLED) | {"catalog": "catalog", "dataset": "dataset"}
    }
    if "parts" not in document.sections.get("partition", {}):
        settled["partition"] = {"parts": 1}
    if document.entries("relations"):
        # Any file will do.
        settled["source"] = {"path": ("edges",)}
    for name, kind in section_kinds().items():
        with mistakes.noted():
            document.build(name, kind, **settled.get(name, {}))
    for name, kind in list_kinds().items():
        for entry in document.entries(name):
            with mistakes.noted():
                document.build(entry, kind)
    mistakes.check()


def _check_tables(document: Document) -> None:
    """Refuse sections that a graph with types does not have, and its lists in other recipes.

    Raises:
        InputError: there is such a section; names its line.
    """
    if document.entries("relations"):
        mistakes = Mistakes()
        for section in filter(document.sections.__contains__, _WITHOUT_TYPES):
            with mistakes.noted():
                remedy = "write [[vertices]] with a type" if section == "vertices" else "remove the section"
                raise document.error(
                    section,
                    ": the recipe has [[relations]], and the other stages of a graph with types are its links, the"
                    f" partition, the shards, the samples, the training and the prediction; {remedy}",
                )
        for section in filter(document.sections.__contains__, _NOT_TRAINED):
            with mistakes.noted():
                if "train" in document.sections:
                    raise document.error(
                        section,
                        ": training on a graph with types reads the stored graph, so nothing would read the output of"
                        " this section; remove the section, or [train]",
                    )
        mistakes.check()
    elif "relations" in document.sections:
        raise InputError(f"{document.where('relations')}: write [[relations]], once for each relation")
    elif lists := document.entries("vertices"):
        raise InputError(
            f"{document.where(lists[0])}: [[vertices]] belongs to a graph with types, which needs [[relations]]; write"
            " [vertices] for features, labels and split"
        )


def _check_dataset(document: Document, dataset: DatasetSection, *, is_typed: bool) -> None:
    """Refuse options of graphs with types for other graphs, and the other way round.

    Raises:
        InputError: there is such an option; names its line.
    """
    if is_typed and dataset.undirected:
        derived = "undirected: relations have a direction; their reverses are derived, under the name rev_NAME"
        raise document.error("dataset", derived, "undirected")
    if not is_typed and dataset.unknown != TypedOptions.unknown:
        typed = "unknown: only graphs with types have it; give their [[relations]]"
        raise document.error("dataset", typed, "unknown")


def _check_types(document: Document, relations: Sequence[RelationSection], lists: Sequence[ListSection]) -> None:
    """Check that no two types are meant to be one.

    Raises:
        InputError: two types look alike; names the line.
    """
    seen: list[str] = []
    named: list[tuple[str, Any, tuple[str, ...]]] = [
        (entry, each, ("source", "target"))
        for entry, each in zip(document.entries("relations"), relations, strict=True)
    ]
    named += [(entry, each, ("type",)) for entry, each in zip(document.entries("vertices"), lists, strict=True)]
    for entry, each, keys in named:
        for key in keys:
            name = getattr(each, key)
            if name != BY_ROW and name not in seen:
                try:
                    check_distinct([*seen, name], "type")
                except InputError as error:
                    raise document.error(entry, f"{key}: {error}", key) from error
                seen.append(name)


def _check_links(document: Document, links: DrawOptions | None, relations: Sequence[str]) -> None:
    """Check that links are of a relation if the recipe has some, and of none otherwise.

    Raises:
        InputError: they are not, or there is no such relation; names the line.
    """
    if links is None or (not relations and links.relation is None):
        return
    # Rows of a table may name relations.
    if links.relation in relations or (links.relation is not None and BY_ROW in relations):
        return
    if links.relation is not None and relations:
        meant = did_you_mean(links.relation, relations, "there are")
        unknown = f"relation: no relation {links.relation!r} in [[relations]]; {meant}"
        raise document.error("links", unknown, "relation")
    if not relations:
        typed = "relation: only graphs with types have it; give their [[relations]]"
        raise document.error("links", typed, "relation")
    raise document.error(
        "links",
        ": the recipe has [[relations]]; name the relation whose edges are the pairs with the key relation:"
        f" {', '.join(relations)}",
    )


def _check_types_of_parts(
    document: Document, partition: PartitionOptions | None, shards: ShardsSection, types: Collection[str]
) -> None:
    """Check the options of partitions and shards against the types of the recipe.

    Args:
        types: names of the types, ``*`` if rows name types; empty without types.

    Raises:
        InputError: there is no such type, or the graph does not have such an option; names the line.
    """
    if partition is not None and not types:
        for name in ("balance", "reverse", "replicate"):
            if getattr(partition, name):
                raise document.error("partition", f"{name}: only graphs with types have it; remove the key", name)
    named = (
        [("balance", partition.balance), *(("replicate", each) for each in partition.replicate)] if partition else []
    )
    for key, name in named if types and BY_ROW not in types else ():
        if name not in {"", AUTO, *types}:
            meant = did_you_mean(name, sorted(types), "there are")
            raise document.error("partition", f"{key}: no type {name!r} in the recipe; {meant}", key)
    if types and shards.reorder != "none":
        raise document.error(
            "shards", "reorder: rows of a graph with types stay in the order of their types; remove the key", "reorder"
        )
    if types and shards.layout == "grid":
        with document.located("shards"):
            check_typed_grid(shards.options())


def _train(document: Document, root: Path, dataset: DatasetSection, mistakes: Mistakes) -> TrainConfig | None:
    """Read the section on the training; None if there is none."""
    if "train" not in document.sections:
        return None
    settled = {"catalog": str(root.resolve()), "dataset": dataset.name}
    train = document.build("train", TrainConfig, **settled, **dict.fromkeys(_SELECTS_SHARDS))
    with mistakes.noted():
        refuse_unused_train_keys(document, train)
    return train


def _check_typed_training(
    document: Document, train: TrainConfig | None, links: DrawOptions | None, *, is_typed: bool
) -> None:
    """Check that a training is on types if the recipe has some, and on pairs of the relation of its links.

    Raises:
        InputError: it is not; names the line.
    """
    if train is None:
        return
    mode = train.mode
    if is_typed != mode.on_types:
        needs = "name of_type, or relation and links" if is_typed else "of_type and relation need [[relations]]"
        has, where = "" if is_typed else "no ", document.where("train", "relation" if mode.relation else "of_type")
        raise InputError(f"{where}: [train]: the recipe has {has}[[relations]]; {needs}")
    if is_typed and mode.relation != (None if links is None else links.relation):
        wanted = f'relation = "{mode.relation}"' if mode.relation else "no [links], which labels do not need"
        raise InputError(f"{document.where('train')}: [train]: it needs {wanted} in [links]")


def _samples(document: Document, train: TrainConfig | None, mistakes: Mistakes) -> SamplesSection:
    section = document.build("samples", SamplesSection)
    with mistakes.noted(), document.located("samples"):
        if section.epochs and train is None:
            raise InputError("epochs: nothing is trained on the samples; add a section [train]")
        if section.epochs and train is not None:
            section.options(train)
    return section


def _propagate(
    document: Document, train: TrainConfig | None, shards: ShardsSection, mistakes: Mistakes
) -> PropagateSection:
    section = document.build("propagate", PropagateSection)
    with mistakes.noted():
        if section.steps and shards.layout == "grid":
            raise document.error("propagate", "reads row shards, and this recipe makes grid shards", "steps")
        if section.steps and train is not None:
            with document.located("propagate"):
                section.check_training(train)
    return section


def _predict(document: Document, train: TrainConfig | None, mistakes: Mistakes) -> PredictSection | None:
    if "predict" not in document.sections:
        return None
    with mistakes.noted():
        if "train" not in document.sections:
            raise document.error("predict", "needs a trained model; add a section [train]")
    section = document.build("predict", PredictSection)
    with mistakes.noted(), document.located("predict"):
        key = "pairs" if section.pairs is not None else "top"
        if section.wanted and (train is None or not train.task.on_pairs):
            raise InputError(f'{key}: the run trains on vertices; train on pairs, such as with task = "link"')
        if section.wanted and (section.on or section.graph):
            raise InputError(f"{key}: pairs can be scored only on the training graph")
    return section


def _shards(document: Document, algorithm: AlgorithmConfig | None, mistakes: Mistakes) -> ShardsSection:
    """Read the section on shards and settle their layout: the one that the algorithm reads, if the recipe trains."""
    shards = document.build("shards", ShardsSection)
    if document.entries("relations") and "shards" not in document.sections:
        return shards
    # Options of grid shards mean a grid.
    meant = "grid" if document.sections.get("shards", {}).keys() - {"reorder"} else "row"
    needed = algorithm.kind.reads.name if algorithm else shards.layout or meant
    settled = dataclasses.replace(shards, layout=needed)
    with mistakes.noted():
        if algorithm is not None and shards.layout not in {None, needed}:
            reads = f"layout {shards.layout!r}: algorithm {algorithm.name} reads {needed} shards"
            raise document.error("shards", f"{reads}; remove the key, or change [train] algorithm", "layout")
        refuse_unused_shards_keys(document, settled, algorithm.name if algorithm else None)
    return settled


def _partition(
    document: Document, algorithm: AlgorithmConfig | None, shards: ShardsSection, mistakes: Mistakes
) -> PartitionOptions | None:
    """Read the section on the partition, by default with one part per rank; None if the shards need no partition."""
    if document.entries("relations") and not document.sections.keys() & set(_NOT_TRAINED):
        return None
    given = document.sections.get("partition", {})
    ranks = algorithm.ranks if algorithm else AlgorithmConfig.ranks
    options = document.build("partition", PartitionOptions, **({} if "parts" in given else {"parts": ranks}))
    is_unused = shards.layout == "grid" and shards.permutation != "partition"
    with mistakes.noted():
        if is_unused:
            refuse_unused_partition(document, shards)
        elif algorithm is not None and shards.layout == "row" and options.parts != algorithm.ranks:
            differs = f"parts = {options.parts}, but [train] ranks = {algorithm.ranks}"
            needs = f"algorithm {algorithm.name} needs one part per rank; remove parts, or make them equal"
            raise document.error("partition", f"{differs}: {needs}", "parts")
    return None if is_unused else options
