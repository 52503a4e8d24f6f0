"""The catalog: a directory of datasets, each a Zarr group of artifacts and runs.

The classes here find things. :mod:`gnnloom.storage.public` adds the methods that look at a whole dataset (verify,
lineage, export, ...); this module imports nothing of those rooms.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gnnloom.storage.artifacts.artifact_info import ArtifactInfo, describe_candidates
from gnnloom.storage.artifacts.graph import Graph, refuse_types
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.propagated import Propagated
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph, VertexType
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.disk.files import MAPPED, refuse_link, tree_bytes, user_path, write_json
from gnnloom.storage.disk.groups import METADATA, group_metadata, read_group
from gnnloom.storage.disk.locks import LOCKS, is_held
from gnnloom.storage.disk.work_folder import remove_tree_and_scratch
from gnnloom.storage.errors import CorruptError, ExistsError, FormatError, GnnloomError, InputError, NotFoundError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import WORK, Artifact
from gnnloom.storage.format.schema import FORMAT_VERSION, SCHEMAS, TYPED_VERSION, VERSION_ENTRY, check_version
from gnnloom.storage.system_errors import OF_PERMISSION, check_is_of_content
from gnnloom.storage.wording import did_you_mean, printable, shell_command, shortened

# A listing needs no shards and no samples, so methods import their classes.
if TYPE_CHECKING:
    from gnnloom.storage.artifacts.samples import Samples
    from gnnloom.storage.artifacts.typed.typed_samples import TypedSamples
    from gnnloom.storage.shards.grid_shards import GridShards
    from gnnloom.storage.shards.row_shards import RowShards
    from gnnloom.storage.shards.typed_grid_shards import TypedGridShards
    from gnnloom.storage.shards.typed_row_shards import TypedRowShards

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
#: Number of artifacts that an error lists.
_MOST_LISTED = 5
#: Words for kinds of artifacts in messages, where they differ from the names.
_NAMES: Mapping[str, str] = {"vertices": "vertex data", "propagated": "propagated values"}
#: The commands that make artifacts, with the name of the dataset to fill in.
_MAKERS: Mapping[str, str] = {
    "graph": "ingest {} SOURCE",
    "vertices": "features {} --feature FILE",
    "partition": "partition {}",
    "samples": "sample {}",
    "links": "links {} random",
}
#: Attributes of the Zarr group of a dataset.
DATASET_ATTRIBUTES: Mapping[str, Any] = {"encoding-type": "gnnloom-dataset", VERSION_ENTRY: FORMAT_VERSION}
LOGGER = logging.getLogger("gnnloom.storage")


#: Kinds of artifacts that no graph with types has, or that it has in another form.
_WITHOUT_TYPES = frozenset({"transpose", "vertices", "shards", "propagated"})


def check_name(name: str, what: str = "dataset") -> str:
    """Return ``name`` if it is a valid name of a dataset or run.

    Raises:
        InputError: it has other characters than a-z, 0-9, ``.``, ``_``, ``-``, or starts with one of the last three.
    """
    if not _NAME.fullmatch(name) or len(name) > 200:
        raise InputError(
            f"{what} name {name!r}: use lower-case letters, digits, '.', '_' and '-', and start with a letter or digit"
        )
    return name


class Dataset:
    """One dataset of a catalog: locates its artifacts and runs, and finds artifacts by their parameters."""

    def __init__(self, path: Path) -> None:
        """Open a dataset.

        Raises:
            NotFoundError: ``path`` does not exist.
            FormatError: ``path`` is not a dataset, or has a newer format or the format of a development version.
            CorruptError: a folder in it is a link.
        """
        self.path = path
        self.name = path.name
        if not path.is_dir():
            meant = did_you_mean(path.name, Catalog(path.parent))
            question = f"{meant} " if meant else ""
            raise NotFoundError(
                f"{path}: there is no such dataset; {question}`gnnloom catalog ls` lists the existing ones"
            )
        _check_dataset_group(path)
        # Files that are written below them would be written elsewhere.
        for name in (*SCHEMAS, "runs", LOCKS, MAPPED):
            refuse_link(path / name)

    def __repr__(self) -> str:
        kinds = [f"{info.kind}/{info.key}" for info in self.artifacts()]
        return f"Dataset({self.name!r}: {', '.join(kinds) or 'empty'})"

    def artifacts(self, kind: str | None = None) -> list[ArtifactInfo]:
        """All artifacts, or all artifacts of one kind, complete or not."""
        found = []
        for name in SCHEMAS if kind is None else (kind,):
            for path in sorted((self.path / name).glob("[!.]*")):
                if path.is_dir():
                    found.append(ArtifactInfo.read(name, path))  # noqa: PERF401 - reads better than a nested comprehension
        return found

    def fitting(
        self, kind: str, key: str | None = None, *, made_from: Mapping[str, str] | None = None, **parameters: Any
    ) -> list[ArtifactInfo]:
        """The complete artifacts of a kind that have these parameters; arguments as for :meth:`find`."""
        return [
            info
            for info in self.artifacts(kind)
            if info.state == "complete"
            and info.key.startswith(key or "")
            and all(value is None or info.parameters.get(name, "") == value for name, value in parameters.items())
            and all(info.inputs.get(name) == value for name, value in (made_from or {}).items())
        ]

    def find(
        self, kind: str, key: str | None = None, *, made_from: Mapping[str, str] | None = None, **parameters: Any
    ) -> Artifact:
        """Find the one complete artifact of a kind that has these parameters.

        Without a key, artifacts of a graph without held-out links are found only if no others fit.

        Args:
            key: key of the artifact, or its first digits; needed only to choose between several.
            made_from: inputs, kind to key, that it must have.
            parameters: values that must be equal; None matches any value, and an empty text a missing one.

        Raises:
            NotFoundError: no artifact matches; the message lists the existing ones.
            InputError: several match; the message lists them.
        """
        wanted = {name: value for name, value in parameters.items() if value is not None}
        fitting = self.fitting(kind, key, made_from=made_from, **wanted)
        asked = _asked(key, {name: value for name, value in wanted.items() if value != ""} | dict(made_from or {}))
        if not fitting:
            infos = self.fitting(kind)
            graphs = [info for info in self.ingested_graphs() if info.state == "complete"]
            if kind in _WITHOUT_TYPES and not infos and graphs and all(info.is_typed for info in graphs):
                raise refuse_types(graphs[0].path)
            there = f"; there are: {self._listed(infos)}" if infos else ""
            incomplete = [info.key for info in self.artifacts(kind) if info.state != "complete"]
            begun = f"; begun and not finished: {', '.join(incomplete)}" if incomplete else ""
            hint = "" if key else _remedy(self.name, kind, wanted)
            raise NotFoundError(f"dataset {self.name} has no {_NAMES.get(kind, kind)}{asked}{there}{begun}{hint}")
        if len(fitting) > 1 and key is None and kind != "graph":
            # A graph without held-out links lacks edges: its artifacts are found only if no others fit.
            ingested = {info.key for info in self.ingested_graphs()}
            fitting = [info for info in fitting if info.inputs.get("graph") in ingested] or fitting
        if len(fitting) > 1:
            raise self._several(kind, fitting, asked)
        return Artifact(fitting[0].path)

    def _several(self, kind: str, infos: Sequence[ArtifactInfo], asked: str = "") -> InputError:
        """The error of a search that leaves a choice between these artifacts."""
        return InputError(
            f"dataset {self.name} has several {kind} artifacts{asked}; choose one with `--{kind} KEY`:"
            f" {describe_candidates(infos)}"
        )

    def _listed(self, infos: Sequence[ArtifactInfo]) -> str:
        """Some artifacts in short, as part of a sentence."""
        shown = "; ".join(info.described for info in infos[:_MOST_LISTED])
        more = len(infos) - _MOST_LISTED
        return shown + (f"; and {more} more, listed by `gnnloom catalog show {self.name}`" if more > 0 else "")

    def graph(self, key: str | None = None) -> Graph:
        """The adjacency; ``key`` chooses between several.

        Without a key, a graph without held-out links is never chosen, because it lacks some edges, and a graph with
        types only if there is no other.

        Raises:
            InputError: the graph has types, or several graphs have none.
            NotFoundError: there is no graph.
        """
        complete = [info for info in self.ingested_graphs() if info.state == "complete"]
        ingested = [info for info in complete if not info.is_typed] or complete
        if key is None and not ingested and (others := [i for i in self.artifacts("graph") if i.state == "complete"]):
            raise NotFoundError(
                f"dataset {self.name} has no graph that was made from a source; choose one without held-out links with"
                f" `--graph KEY`: {self._listed(others)}"
            )
        return Graph(self._find_graph(key, ingested))

    def _find_graph(self, key: str | None, ingested: Sequence[ArtifactInfo]) -> Artifact:
        """The graph with this key; without a key, the only ingested graph. Errors list no other graphs."""
        if key is None and len(ingested) > 1:
            raise self._several("graph", ingested)
        return self.find("graph", ingested[0].key if key is None and ingested else key)

    def any_graph(self, key: str | None = None) -> Graph | TypedGraph:
        """The graph with this key, with types or without; without a key, the one that :meth:`graph` finds.

        If all graphs of the dataset have types, it is the one that :meth:`typed_graph` finds; raises as these do.
        """
        graphs = [each for each in self.ingested_graphs() if each.state == "complete"]
        if key is not None:
            found = self.find("graph", key)
            return TypedGraph(found) if found.version == TYPED_VERSION else Graph(found)
        return self.typed_graph() if graphs and all(each.is_typed for each in graphs) else self.graph()

    def typed_graph(self, key: str | None = None) -> TypedGraph:
        """The graph with types; ``key`` chooses between several.

        Raises:
            InputError: there are several, or the graph with this key has no types.
            NotFoundError: there is none.
        """
        typed = [info for info in self.ingested_graphs() if info.state == "complete" and info.is_typed]
        if key is None and not typed:
            raise NotFoundError(
                f"dataset {self.name} has no graph with types; `gnnloom ingest` makes one from tables (`--relation`)"
            )
        return TypedGraph(self._find_graph(key, typed))

    @property
    def types(self) -> tuple[VertexType, ...]:
        """The types of the vertices, in the order of their numbers; raises as :meth:`typed_graph`."""
        return self.typed_graph().types

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations, by name; raises as :meth:`typed_graph`."""
        return self.typed_graph().relations

    def ingested_graphs(self) -> list[ArtifactInfo]:
        """The graphs that were made from sources, complete or not; the others are graphs without held-out links."""
        return [info for info in self.artifacts("graph") if "graph" not in info.inputs]

    def origin(self, graph: str) -> str:
        """Key of the graph whose vertices a graph has: itself, or the one that links were held out from.

        Both graphs share their vertex data.
        """
        inputs = {info.key: info.inputs for info in self.artifacts("graph")}
        while "graph" in inputs.get(graph, {}):
            graph = inputs[graph]["graph"]
        return graph

    def vertices(self, key: str | None = None, graph: str | None = None, of_type: str | None = None) -> Vertices:
        """Features, labels and split; ``key``, or the key of the graph they belong to, chooses between several.

        A graph without held-out links shares the vertex data of the graph that the links were drawn from, unless it has
        its own.

        Args:
            of_type: type of the vertices, in a graph with types; without it, only a key chooses vertex data of a type.
        """
        made_from = dict[str, str]()
        if graph is not None:
            infos = self.artifacts("vertices")
            own = any(info.state == "complete" and info.inputs.get("graph") == graph for info in infos)
            made_from = {"graph": graph if own else self.origin(graph)}
        without = "" if key is None else None
        return Vertices(self.find("vertices", key, made_from=made_from, type=without if of_type is None else of_type))

    def untyped_vertices(self) -> list[ArtifactInfo]:
        """The vertex data of graphs without types, complete or not."""
        return [info for info in self.artifacts("vertices") if "type" not in info.parameters]

    def vertices_of_types(self, graph: str, keys: Mapping[str, str] | None = None) -> dict[str, Vertices]:
        """Features, labels and splits by type, for the types that have some.

        Args:
            graph: key of a graph with types. One without held-out links has the data of the graph with all edges.
            keys: of vertex data by type, to choose between several.

        Raises:
            InputError: a type has several.
            NotFoundError: there is no vertex data with such a key.
            CorruptError: it is not known whose data some vertex data are.
        """
        chosen, graph = dict(keys or {}), self.origin(graph)
        infos = [info for info in self.artifacts("vertices") if info.state == "complete"]
        for info in infos:
            if not info.inputs:
                # All vertex data have a graph, so the manifest cannot be read, and opening it says why.
                Vertices(Artifact(info.path))
        types = {info.parameters.get("type", "") for info in infos if info.inputs.get("graph") == graph} - {""}
        return {each: self.vertices(chosen.get(each), graph, each) for each in sorted(types | set(chosen))}

    def partition(self, parts: int | None = None, key: str | None = None, **parameters: Any) -> Partition:
        """A partition, found by its number of parts and other parameters (``method``, ``seed``, ...)."""
        return Partition(self.find("partition", key, parts=parts, **parameters))

    def row_shards(
        self, parts: int | None = None, key: str | None = None, counter: ReadCounter | None = None, **parameters: Any
    ) -> RowShards:
        """Row shards for ``parts`` ranks."""
        from gnnloom.storage.shards.row_shards import RowShards  # noqa: PLC0415

        artifact = self.find("shards", key, layout="row", parts=parts, **parameters)
        return RowShards(Artifact(artifact.path, counter))

    def typed_row_shards(
        self, parts: int | None = None, key: str | None = None, counter: ReadCounter | None = None, **parameters: Any
    ) -> TypedRowShards:
        """Row shards of a graph with types for ``parts`` ranks.

        Raises:
            NotFoundError, InputError: as :meth:`find`.
        """
        from gnnloom.storage.shards.typed_row_shards import TypedRowShards  # noqa: PLC0415

        if not self.fitting("shards"):
            raise NotFoundError(f"dataset {self.name} has no shards{_remedy(self.name, 'shards', {'parts': parts})}")
        artifact = self.find("shards", key, layout="row", parts=parts, **parameters)
        return TypedRowShards(Artifact(artifact.path, counter))

    def grid_shards(self, key: str | None = None, counter: ReadCounter | None = None, **parameters: Any) -> GridShards:
        """Grid shards, found by their parameters (``permutation``, ``grid``, ``seed``)."""
        from gnnloom.storage.shards.grid_shards import GridShards  # noqa: PLC0415

        artifact = self.find("shards", key, layout="grid", **parameters)
        return GridShards(Artifact(artifact.path, counter))

    def typed_grid_shards(
        self, key: str | None = None, counter: ReadCounter | None = None, **parameters: Any
    ) -> TypedGridShards:
        """Grid shards of a graph with types, found by their parameters (``permutation``, ``grid``, ``seed``).

        Raises:
            NotFoundError, InputError: as :meth:`find`.
        """
        from gnnloom.storage.shards.typed_grid_shards import TypedGridShards  # noqa: PLC0415

        if not self.fitting("shards"):
            raise NotFoundError(f"dataset {self.name} has no shards{_remedy(self.name, 'shards', {})}")
        artifact = self.find("shards", key, layout="grid", **parameters)
        return TypedGridShards(Artifact(artifact.path, counter))

    def samples(self, key: str | None = None, counter: ReadCounter | None = None, **parameters: Any) -> Samples:
        """Samples on disk, found by their parameters (``ranks``, ``batch_size``, ``seed``, ...)."""
        from gnnloom.storage.artifacts.samples import Samples  # noqa: PLC0415

        artifact = self.find("samples", key, **parameters)
        return Samples(Artifact(artifact.path, counter))

    def typed_samples(
        self, key: str | None = None, counter: ReadCounter | None = None, **parameters: Any
    ) -> TypedSamples:
        """Samples of a graph with types, found by their parameters (``of_type``, ``ranks``, ``seed``, ...)."""
        from gnnloom.storage.artifacts.typed.typed_samples import TypedSamples  # noqa: PLC0415

        artifact = self.find("samples", key, **parameters)
        return TypedSamples(Artifact(artifact.path, counter))

    def links(self, key: str | None = None, counter: ReadCounter | None = None, **parameters: Any) -> Links:
        """Pairs of vertices with their split, found by their parameters (``method``, ``seed``, ...)."""
        artifact = self.find("links", key, **parameters)
        return Links(Artifact(artifact.path, counter))

    def message_graphs(self, links: str | None = None) -> list[str]:
        """Keys of the graphs without the edges that links hold out.

        Args:
            links: key of the links, or its first digits; None for all.
        """
        infos = [info for info in self.artifacts("links") if info.state == "complete"]
        return sorted({self.links(info.key).message_graph for info in infos if info.key.startswith(links or "")})

    def message_graph(self, links: str | None = None) -> str:
        """Key of the graph without the edges that links hold out.

        Args:
            links: key of the links, or its first digits; None if all links hold out the same edges.

        Raises:
            NotFoundError: there are no such links.
            InputError: there are links of several graphs.
        """
        found = self.message_graphs(links)
        if len(found) > 1:
            raise InputError(
                f"dataset {self.name} has links that hold out different edges; choose one of the graphs without them"
                f" with `--graph KEY`: {', '.join(found)}"
            )
        # If there are none, the search for them says so.
        return found[0] if found else self.links(links).message_graph

    def message_edges(self, links: Links) -> Graph | Relation:
        """The graph without the edges that links hold out; in a graph with types, the relation of their pairs in it.

        Raises:
            NotFoundError: the graph was removed.
        """
        if links.relation is None:
            return self.graph(links.message_graph)
        return self.typed_graph(links.message_graph).relation(links.relation.name)

    def end_ids(self, links: Links) -> tuple[SourceIds, SourceIds]:
        """The ids in the source of vertices that may be sources of pairs, and of vertices that may be targets.

        Raises:
            NotFoundError: the graph was removed.
        """
        if links.relation is None:
            return (graph := self.graph(links.graph)), graph
        typed = self.typed_graph(links.graph)
        return typed.ids(links.relation.source), typed.ids(links.relation.target)

    def propagated(self, key: str | None = None, counter: ReadCounter | None = None, **parameters: Any) -> Propagated:
        """Products with powers of the adjacency, found by their parameters (``steps``, ``normalization``, ...)."""
        artifact = self.find("propagated", key, **parameters)
        return Propagated(Artifact(artifact.path, counter))

    @property
    def runs_path(self) -> Path:
        return self.path / "runs"

    def runs(self) -> list[str]:
        """Names of the training runs, sorted."""
        # The configuration is the last file that starting a run writes, so a run that has it was started completely.
        return sorted(path.name for path in self.runs_path.glob("[!.]*") if (path / "config.json").exists())

    def run_path(self, run: str) -> Path:
        """Folder of a run, whether or not it exists.

        Raises:
            InputError: ``run`` is not a valid name of a run.
        """
        return refuse_link(self.runs_path / check_name(run, "run"))

    def stored_bytes(self) -> int:
        return tree_bytes(self.path)


AnyDataset_co = TypeVar("AnyDataset_co", bound=Dataset, covariant=True)


class _Opener(Protocol[AnyDataset_co]):
    """The part of a catalog that these methods need; a subclass that opens other datasets returns their class."""

    def __iter__(self) -> Iterator[str]: ...

    def _path(self, name: str) -> Path: ...

    def _open(self, path: Path) -> AnyDataset_co: ...


class Catalog:
    """A directory of datasets.

    Examples:
        >>> catalog = Catalog("catalog")
        >>> catalog["web"].graph().num_vertices
        200
    """

    def __init__(self, root: Path | str) -> None:
        self.root = user_path(root).resolve()

    def __repr__(self) -> str:
        return f"Catalog({str(self.root)!r}: {', '.join(self) or 'empty'})"

    def __iter__(self) -> Iterator[str]:
        """Names of the datasets, sorted."""
        if self.root.is_dir():
            for path in sorted(self.root.iterdir()):
                if _NAME.fullmatch(path.name) and (path / "zarr.json").exists():
                    yield path.name

    def datasets(self: _Opener[AnyDataset_co]) -> Iterator[AnyDataset_co]:
        """All datasets that can be opened; a warning in the log gives the reason for each that cannot."""
        for name in self:
            try:
                yield self._open(self._path(name))
            except GnnloomError as error:
                LOGGER.warning("left out: %s", error)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in set(self)

    def __getitem__(self: _Opener[AnyDataset_co], name: str) -> AnyDataset_co:
        return self._open(self._path(name))

    def dataset(self: _Opener[AnyDataset_co], name: str) -> AnyDataset_co:
        """Open a dataset.

        Raises:
            InputError: ``name`` is not a valid name of a dataset, or leads out of the catalog.
            NotFoundError: the catalog has no such dataset.
            FormatError: the folder is not a dataset, or has a newer format.
        """
        return self._open(self._path(name))

    def create(self: _Opener[AnyDataset_co], name: str) -> AnyDataset_co:
        """Open a dataset; make an empty one if it does not exist.

        Raises:
            InputError: ``name`` is not a valid name of a dataset, or the folder cannot be made.
            ExistsError: a folder with this name exists and is not a dataset.
        """
        path = self._path(name)
        if not (path / METADATA).exists():
            _make_dataset(path)
        return self._open(path)

    def remove(self, name: str) -> None:
        """Delete a dataset with all its artifacts and runs.

        Raises:
            NotFoundError: there is no such dataset.
            InputError: a process is writing to it.
        """
        path = self.dataset(name).path
        # A removal during a write would leave a writer that goes on below a deleted folder.
        taken = next((lock for lock in sorted((path / LOCKS).glob("*")) if is_held(lock)), None)
        if taken is not None:
            name = taken.name.replace("-", "/", 1)
            raise InputError(f"{path}: {name} is being written by another process; wait for it, or end it")
        try:
            remove_tree_and_scratch(path, f"*/*/{WORK}")
        except FileNotFoundError:
            # If another process has removed it in the meantime, this says so.
            self.dataset(name)
            raise

    def _open(self, path: Path) -> Dataset:
        """Open the dataset in this folder; the one method that a subclass with its own class of datasets overrides."""
        return Dataset(path)

    def _path(self, name: str) -> Path:
        # The name is checked by pattern, and the resolved path in addition: a link inside the catalog could lead out of
        # it.
        path = self.root / check_name(name)
        if path.resolve().parent != self.root:
            raise InputError(f"dataset name {name!r}: {path} leads out of the catalog {self.root}")
        return path


def _make_dataset(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        # A kill during this function leaves an empty folder, or one with a temporary file of the group's metadata.
        foreign = [entry for entry in path.iterdir() if not entry.name.startswith(f".{METADATA}.")]
    except OSError as error:
        check_is_of_content(error, path, OF_PERMISSION)
        raise InputError(f"{path}: cannot make this folder ({error.strerror}); choose another catalog") from error
    # Looked up after the listing: another process that makes the same dataset writes this file before all others.
    if (path / METADATA).exists():
        return
    if foreign:
        raise ExistsError(f"{path}: this folder exists and is not a dataset; choose another name")
    write_json(path / METADATA, group_metadata(DATASET_ATTRIBUTES), sealed=False)


def _check_dataset_group(path: Path) -> None:
    """Check that a folder is a dataset of a format that this version reads."""
    # Read without Zarr, whose import takes longer than listing a catalog.
    try:
        content = read_group(path)
        node_type, attributes = content["node_type"], dict(content.get("attributes", {}))
    except (CorruptError, OSError, ValueError, KeyError, TypeError) as error:
        check_is_of_content(error, path)
        raise FormatError(f"{path}: not a gnnloom dataset ({error})") from error
    if attributes.get("encoding-type") != DATASET_ATTRIBUTES["encoding-type"]:
        raise FormatError(f"{path}: a Zarr {shortened(printable(str(node_type)), 100)}, but not a gnnloom dataset")
    check_version(path, attributes)


def _asked(key: str | None, parameters: Mapping[str, Any]) -> str:
    """The key and parameters of a search, as the end of a sentence."""
    keys = [f"key {key}"] if key else []
    asked = ", ".join([*keys, *(f"{name}={value}" for name, value in parameters.items())])
    return f" with {asked}" if asked else ""


def _remedy(name: str, kind: str, wanted: Mapping[str, Any]) -> str:
    """The command that makes an artifact, as the end of a sentence; empty for kinds that several commands make."""
    if kind not in _MAKERS:
        return ""
    options = {"parts": "P", **wanted} if kind == "partition" else {}
    words = [word for option, value in options.items() for word in (f"--{option}", value)]
    return f"; make one with `{shell_command('gnnloom', *_MAKERS[kind].format(name).split(), *words)}`"
