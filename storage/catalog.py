"""The catalog: a directory of datasets, each a Zarr group of artifacts and runs."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zarr

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.grid_shards import GridShards
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import CorruptError, ExistsError, FormatError, GnnloomError, InputError, NotFoundError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import MANIFEST, WORK, Artifact, write_group
from gnnloom.storage.format.files import read_json, tree_bytes
from gnnloom.storage.format.locks import LOCKS, held, is_held, lock_path
from gnnloom.storage.format.schema import FORMAT_VERSION, SCHEMAS

if TYPE_CHECKING:
    from gnnloom.storage.checks.verify import Finding
    from gnnloom.storage.upkeep.garbage import Garbage
    from gnnloom.storage.upkeep.lineage import Node, Usage

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_ENCODING = "gnnloom-dataset"
LOGGER = logging.getLogger("gnnloom.storage")


def check_name(name: str, what: str = "dataset") -> str:
    """Return ``name`` if it may name a dataset or run.

    Raises:
        InputError: it has other characters than a-z, 0-9, ``.``, ``_``, ``-``, or starts with one of the last three.
    """
    if not _NAME.fullmatch(name) or len(name) > 200:
        raise InputError(
            f"{what} name {name!r}: use lower-case letters, digits, '.', '_' and '-', and start with a letter or digit"
        )
    return name


@dataclass(frozen=True)
class ArtifactInfo:
    """One artifact as a listing shows it.

    Attributes:
        state: ``complete`` or ``incomplete``; what is damaged has the one or the other too.
        parameters: empty where they cannot be read; opening the artifact tells why.
    """

    kind: str
    key: str
    state: str
    parameters: dict[str, Any]
    path: Path

    def stored_bytes(self) -> int:
        return tree_bytes(self.path)


class Dataset:
    """One dataset of a catalog: where its artifacts are and how to find them by what was asked for."""

    def __init__(self, path: Path) -> None:
        """Open a dataset.

        Raises:
            NotFoundError: there is none at ``path``.
            FormatError: what is there is not a dataset, or is of a newer format.
        """
        self.path = path
        self.name = path.name
        if not path.is_dir():
            raise NotFoundError(f"{path}: there is no such dataset; `gnnloom catalog ls` lists those that are there")
        _check_dataset_group(path)

    def __repr__(self) -> str:
        kinds = [f"{info.kind}/{info.key}" for info in self.artifacts()]
        return f"Dataset({self.name!r}: {', '.join(kinds) or 'empty'})"

    def artifacts(self, kind: str | None = None) -> list[ArtifactInfo]:
        """All artifacts, or those of one kind, complete or not."""
        found = []
        for name in SCHEMAS if kind is None else (kind,):
            for path in sorted((self.path / name).glob("[!.]*")):
                if path.is_dir():
                    found.append(_artifact_info(name, path))  # noqa: PERF401 - reads better than a nested comprehension
        return found

    def find(self, kind: str, key: str | None = None, **parameters: Any) -> Artifact:
        """The one complete artifact of a kind with these parameters.

        Args:
            key: of the artifact, or the beginning of it; needed only to choose between several.
            parameters: those that must be equal; None means any.

        Raises:
            NotFoundError: none fits; the message says what there is.
            InputError: several fit; the message lists them.
        """
        wanted = {name: value for name, value in parameters.items() if value is not None}
        infos = [info for info in self.artifacts(kind) if info.state == "complete"]
        fitting = [
            info
            for info in infos
            if info.key.startswith(key or "")
            and all(info.parameters.get(name) == value for name, value in wanted.items())
        ]
        asked = _asked(key, wanted)
        if not fitting:
            there = "; ".join(_describe(info) for info in infos) or "none"
            incomplete = [info.key for info in self.artifacts(kind) if info.state != "complete"]
            hint = f"; begun and not finished: {', '.join(incomplete)}" if incomplete else ""
            raise NotFoundError(f"dataset {self.name} has no {kind}{asked}; there are: {there}{hint}")
        if len(fitting) > 1:
            listing = "; ".join(_describe(info) for info in fitting)
            raise InputError(f"dataset {self.name} has several {kind} artifacts{asked}; give a key: {listing}")
        return Artifact(fitting[0].path)

    def graph(self, key: str | None = None) -> Graph:
        """The adjacency; ``key`` chooses between several."""
        return Graph(self.find("graph", key))

    def vertices(self, key: str | None = None) -> Vertices:
        """Features, labels and split."""
        return Vertices(self.find("vertices", key))

    def partition(self, parts: int | None = None, key: str | None = None, **parameters: Any) -> Partition:
        """A partition, by its number of parts and other parameters (``method``, ``seed``, ...)."""
        return Partition(self.find("partition", key, parts=parts, **parameters))

    def row_shards(
        self, parts: int | None = None, key: str | None = None, counter: ReadCounter | None = None, **parameters: Any
    ) -> RowShards:
        """Row shards for ``parts`` ranks."""
        artifact = self.find("shards", key, layout="row", parts=parts, **parameters)
        return RowShards(Artifact(artifact.path, counter))

    def grid_shards(self, key: str | None = None, counter: ReadCounter | None = None, **parameters: Any) -> GridShards:
        """Grid shards, by their parameters (``permutation``, ``grid``, ``seed``)."""
        artifact = self.find("shards", key, layout="grid", **parameters)
        return GridShards(Artifact(artifact.path, counter))

    @property
    def runs_path(self) -> Path:
        return self.path / "runs"

    def runs(self) -> list[str]:
        """Names of the training runs."""
        return sorted(path.name for path in self.runs_path.glob("[!.]*") if (path / "config.json").exists())

    def run_path(self, run: str) -> Path:
        """Folder of a run, existing or not.

        Raises:
            InputError: the name is not one of a run.
        """
        return self.runs_path / check_name(run, "run")

    def remove_artifact(self, kind: str, key: str, *, force: bool = False) -> None:
        """Delete an artifact, or a run (``kind`` "runs").

        Args:
            force: though others were made of it, which are worth nothing then: the next collection of garbage
                removes them, but for runs.

        Raises:
            NotFoundError: there is none.
            InputError: something was made of it, or a process is writing it.
        """
        name = f"{kind}/{key}"
        path = self.path / check_name(kind, "artifact kind") / check_name(key, "artifact")
        if not path.is_dir():
            raise NotFoundError(f"dataset {self.name} has no {name}")
        node = None if force else self.lineage().get(name)
        if node is not None and node.outputs:
            raise InputError(f"{path}: needed by {', '.join(node.outputs)}; remove these first, or use --force")
        with held(lock_path(self.path, kind, key)) as is_ours:
            if not is_ours:
                raise InputError(f"{path}: is being written by another process; wait for it, or end it")
            _remove_tree(path)

    def stored_bytes(self) -> int:
        return tree_bytes(self.path)

    # What looks at a whole dataset stands on this module, and is imported when it is asked for.

    def lineage(self) -> dict[str, Node]:
        """What everything was made from and what was made from it."""
        from gnnloom.storage.upkeep.lineage import lineage  # noqa: PLC0415

        return lineage(self)

    def disk_usage(self) -> list[Usage]:
        """Bytes of every artifact and run; see :func:`gnnloom.storage.upkeep.lineage.disk_usage`."""
        from gnnloom.storage.upkeep.lineage import disk_usage  # noqa: PLC0415

        return disk_usage(self)

    def verify(self, *, quick: bool = False) -> list[Finding]:
        """Whether everything is whole; see :func:`gnnloom.storage.checks.verify.verify_dataset`."""
        from gnnloom.storage.checks.verify import verify_dataset  # noqa: PLC0415

        return verify_dataset(self, quick=quick)

    def collect_garbage(self, *, dry_run: bool = False) -> list[Garbage]:
        """Remove what nothing needs and no process holds, or only find it."""
        from gnnloom.storage.upkeep.garbage import find_garbage, remove_garbage  # noqa: PLC0415

        return find_garbage(self) if dry_run else remove_garbage(find_garbage(self))

    def export(self, file: Path | str) -> dict[str, Any]:
        """Write the dataset to one file; see :func:`gnnloom.storage.upkeep.archive.export_dataset`."""
        from gnnloom.storage.upkeep.archive import export_dataset  # noqa: PLC0415

        return export_dataset(self, Path(file))


class Catalog:
    """A directory of datasets.

    >>> catalog = Catalog("catalog")              # doctest: +SKIP
    >>> catalog["cora"].graph().to_scipy()        # doctest: +SKIP
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).expanduser().resolve()

    def __repr__(self) -> str:
        return f"Catalog({str(self.root)!r}: {', '.join(self) or 'empty'})"

    def __iter__(self) -> Iterator[str]:
        """Names of the datasets."""
        if self.root.is_dir():
            for path in sorted(self.root.iterdir()):
                if _NAME.fullmatch(path.name) and (path / "zarr.json").exists():
                    yield path.name

    def datasets(self) -> Iterator[Dataset]:
        """The datasets that can be opened; a warning in the log says of any other why it cannot."""
        for name in self:
            try:
                yield self[name]
            except GnnloomError as error:
                LOGGER.warning("left out: %s", error)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in set(self)

    def __getitem__(self, name: str) -> Dataset:
        return self.dataset(name)

    def dataset(self, name: str) -> Dataset:
        """Open a dataset.

        Raises:
            InputError: the name is not one of a dataset, or leads out of the catalog.
            NotFoundError: there is no such dataset.
            FormatError: what is there is not a dataset, or is of a newer format.
        """
        return Dataset(self._path(name))

    def create(self, name: str) -> Dataset:
        """Open a dataset, made empty where it is not there."""
        path = self._path(name)
        if path.exists() and not (path / "zarr.json").exists() and any(path.iterdir()):
            raise ExistsError(f"{path}: there is a folder of this name that is not a dataset")
        if not (path / "zarr.json").exists():
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(
                    f"{path}: cannot make this folder ({error.strerror}); choose another catalog"
                ) from error
            write_group(path, {"encoding-type": _ENCODING, "encoding-version": str(FORMAT_VERSION)})
        return Dataset(path)

    def remove(self, name: str) -> None:
        """Delete a dataset with all its artifacts and runs.

        Raises:
            InputError: a process is writing to it.
        """
        path = self.dataset(name).path
        taken = next((lock for lock in sorted((path / LOCKS).glob("*")) if is_held(lock)), None)
        if taken is not None:
            raise InputError(f"{path}: {taken.name} is being written by another process; wait for it, or end it")
        _remove_tree(path)

    def import_dataset(self, file: Path | str, name: str | None = None) -> Dataset:
        """Bring in a dataset that :meth:`Dataset.export` wrote; see :mod:`gnnloom.storage.upkeep.archive_import`."""
        from gnnloom.storage.upkeep.archive_import import import_dataset  # noqa: PLC0415

        return import_dataset(self, Path(file), name)

    def collect_garbage(self, *, dry_run: bool = False) -> list[Garbage]:
        """Of all :meth:`datasets`, and of the catalog's own folder; see :meth:`Dataset.collect_garbage`."""
        from gnnloom.storage.upkeep.garbage import find_catalog_garbage, remove_garbage  # noqa: PLC0415

        found = [item for dataset in self.datasets() for item in dataset.collect_garbage(dry_run=dry_run)]
        own = find_catalog_garbage(self)
        return found + (own if dry_run else remove_garbage(own))

    def _path(self, name: str) -> Path:
        path = self.root / check_name(name)
        if path.resolve().parent != self.root:
            raise InputError(f"dataset name {name!r}: {path} leads out of the catalog {self.root}")
        return path


def _check_dataset_group(path: Path) -> None:
    try:
        attributes = dict(zarr.open_group(str(path), mode="r").attrs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: not a gnnloom dataset ({error})") from error
    version = attributes.get("encoding-version")
    if attributes.get("encoding-type") != _ENCODING or not str(version).isdigit():
        raise FormatError(f"{path}: a Zarr group, but not a gnnloom dataset")
    if int(str(version)) > FORMAT_VERSION:
        raise FormatError(f"{path}: format {version} is newer than {FORMAT_VERSION}, the newest this gnnloom reads")


def _artifact_info(kind: str, path: Path) -> ArtifactInfo:
    manifest = (path / MANIFEST, "complete")
    # A commit writes the manifest before it drops the plan: where both were missing, there is a manifest by now.
    for source, state in (manifest, (path / WORK / "plan.json", "incomplete"), manifest):
        try:
            parameters = read_json(source).get("parameters")
        except FileNotFoundError:
            continue
        except (CorruptError, OSError):
            parameters = None
        return ArtifactInfo(kind, path.name, state, parameters if isinstance(parameters, dict) else {}, path)
    return ArtifactInfo(kind, path.name, "incomplete", {}, path)


def _asked(key: str | None, parameters: Mapping[str, Any]) -> str:
    """What was asked for, as the end of a sentence."""
    keys = [f"key {key}"] if key else []
    asked = ", ".join([*keys, *(f"{name}={value}" for name, value in parameters.items())])
    return f" with {asked}" if asked else ""


def _describe(info: ArtifactInfo) -> str:
    pairs = [f"{name}={value}" for name, value in info.parameters.items() if isinstance(value, str | int | float)]
    return f"{info.key} ({', '.join(pairs)})"


def _remove_tree(path: Path) -> None:
    """Delete a folder: first its name, at once, so that nobody sees half of it."""
    doomed = path.with_name(f".removed-{path.name}")
    if doomed.exists():
        shutil.rmtree(doomed)
    path.rename(doomed)
    shutil.rmtree(doomed)
