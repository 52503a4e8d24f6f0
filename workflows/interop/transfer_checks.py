"""Checks that a trained run can predict on another graph: features, classes, weights, directions and products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.propagated import Propagated
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.runs.transfer import Transfer
from gnnloom.storage.wording import counted, shell_command

#: Array of a checkpoint with the learned vector of each vertex.
LEARNED: Final = "parameter/feature"
#: Maximum number of classes that an error lists.
_SHOWN: Final = 5


@dataclass(frozen=True)
class Data:
    """A graph and its vertex data.

    Attributes:
        vertices: vertex data; None if the graph has none.
    """

    dataset: Dataset
    graph: Graph
    vertices: Vertices | None

    @property
    def learned(self) -> Mapping[str, SourceIds]:
        """The array of a checkpoint with a learned vector of each vertex, and the ids of the vertices."""
        return {LEARNED: self.graph}

    @property
    def inputs(self) -> dict[str, str]:
        """Keys by kind, in the form of the inputs of shards."""
        of_vertices = {} if self.vertices is None else {"vertices": self.vertices.artifact.key}
        return {"graph": self.graph.artifact.key, **of_vertices}

    def ingested(self, name: str) -> Any:
        """A parameter with which the graph was ingested, even if links were later held out of it."""
        key = self.dataset.origin(self.graph.artifact.key)
        return self.dataset.find("graph", key).parameters.get(name)


def check_graph(trained: Data, other: Data) -> None:
    """Check that two graphs are of one kind: with or without weights, directions and self loops.

    Raises:
        InputError: the graphs differ.
    """
    path = other.graph.artifact.path
    for before, now, kinds, option in (
        (trained.graph.weighted, other.graph.weighted, ("unweighted", "weighted"), "--weights"),
        (trained.graph.symmetric, other.graph.symmetric, ("directed", "undirected"), "--undirected"),
    ):
        if before != now:
            raise InputError(
                f"{path}: this graph is {kinds[now]}, but the graph of the training is {kinds[before]}"
                f" ({trained.graph.artifact.path}); ingest it with{'' if before else 'out'} `{shell_command(option)}`"
            )
    before, now = trained.ingested("self_loops"), other.ingested("self_loops")
    if before != now:
        raise InputError(
            f"{path}: ingested with self loops {now!r}, but the run was trained on a graph that"
            f" was ingested with {before!r}; ingest it with `{shell_command('--self-loops', str(before))}`"
        )


def check_features(trained: Vertices, other: Vertices | None, where: str, of_type: str | None = None) -> None:
    """Check that features are the same columns, with the same categories and the same values for missing ones.

    Args:
        trained: vertex data of the training.
        other: vertex data for predictions; None if the graph has none.
        where: the dataset of ``other``, for messages.
        of_type: type of the vertices, in a graph with types.

    Raises:
        InputError: columns differ, or there are no features.
    """
    words = ["gnnloom", "features", where, *([] if of_type is None else ["--of-type", of_type]), "--feature"]
    before, stored = trained.feature_columns, trained.artifact.path
    # Columns are stored with the categories and means of the training data.
    words += ["FILE:COLUMNS", "--like", f"{stored.parents[1].name}/{stored.name}"] if before else ["FILE"]
    if other is None or not other.has_feature:
        raise InputError(
            f"dataset {where} has no features of {'this graph' if of_type is None else f'type {of_type}'}, but the run"
            f" reads {counted(trained.num_features, 'feature')}; add them with `{shell_command(*words)}`"
        )
    path, now = other.artifact.path, other.feature_columns
    if before and now and (difference := _difference(before, now)):
        choice = "KEY" if of_type is None else f"{of_type}=KEY"
        raise InputError(
            f"{path}: the features are not the columns that the run was trained on: {difference}; store the same"
            f" columns with `{shell_command(*words, '--add')}`, and choose them with"
            f" `{shell_command('--vertices', choice)}`"
        )
    if trained.num_features != other.num_features:
        raise InputError(
            f"{path}: {counted(other.num_features, 'feature')}, but the run was trained on"
            f" {counted(trained.num_features, 'feature')} ({trained.artifact.path}); store the same columns"
        )


def _difference(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> str:
    """The first difference between two lists of columns in words; empty if there is none."""
    for number, (then, this) in enumerate(zip(before, now, strict=False), 1):
        if then["name"] != this["name"]:
            return f"column {number} is {this['name']!r}, but was {then['name']!r}"
        if then.get("words") != this.get("words"):
            lost = [word for word in then.get("words", ()) if word not in this.get("words", ())]
            more = [word for word in this.get("words", ()) if word not in then.get("words", ())]
            found = [f"lacks {_listed(lost)}"] * bool(lost) + [f"has {_listed(more)} in addition"] * bool(more)
            return f"column {this['name']!r} {' and '.join(found) or 'has its categories in another order'}"
        if then.get("filled") != this.get("filled"):
            return (
                f"missing values of column {this['name']!r} are filled with {_means(this)}, but were filled with"
                f" {_means(then)}"
            )
        if then["width"] != this["width"] or then.get("missing") != this.get("missing"):
            return f"column {this['name']!r} has {counted(this['width'], 'feature')}, but had {then['width']:,}"
    if len(before) == len(now):
        return ""
    what = "in addition" if len(now) > len(before) else "missing"
    longer = now if len(now) > len(before) else before
    return f"column {longer[min(len(now), len(before))]['name']!r} is {what}"


def _means(column: Mapping[str, Any]) -> str:
    filled = column.get("filled")
    return "nothing" if filled is None else ", ".join(f"{mean:.6g}" for mean in filled)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def renumbered(transfer: Transfer, vertices: Vertices) -> list[int]:
    """Number in a transferred run of each class of some labels; empty if the vertices have no labels.

    Raises:
        InputError: the run was not trained on a class.
    """
    if not (vertices.has_label or "multilabel" in vertices.names):
        return []
    return _class_numbers(transfer, vertices.class_names, vertices.num_classes, str(vertices.artifact.path))


def _class_numbers(transfer: Transfer, names: Sequence[str], num_classes: int, where: str) -> list[int]:
    """Number in a run of each class of some labels.

    Args:
        names: names of the classes of the labels; empty if they are numbers.
        num_classes: number of classes of the labels.
        where: the vertex data with the labels, for messages.

    Raises:
        InputError: the run was not trained on a class.
    """
    trained = f"run {transfer.dataset}/{transfer.run}"
    if bool(names) != bool(transfer.class_names):
        now, before = ("names", "numbers") if names else ("numbers", "names")
        raise InputError(f"{where}: labels are {now} of classes, but {trained} was trained on {before}")
    if not names:
        if num_classes > transfer.num_classes:
            raise InputError(
                f"{where}: labels have {counted(num_classes, 'class')}, but {trained} was trained on"
                f" {transfer.num_classes:,}"
            )
        return [*range(num_classes)]
    number = {name: at for at, name in enumerate(transfer.class_names)}
    unknown = [name for name in names if name not in number]
    if unknown:
        raise InputError(f"{where}: labels have {_listed(unknown)}, which {trained} was not trained on")
    return [number[name] for name in names]


def find_products(trained: Propagated, other: Data, steps: Sequence[int]) -> Propagated:
    """The propagated features of another graph that a run on rows reads.

    Args:
        trained: products that the run was trained on.
        steps: powers of the adjacency that the run reads.

    Raises:
        NotFoundError: no such features were made in the same way; the message has the command that makes them.
    """
    same = {"of": trained.of, "normalization": trained.normalization, "ppr": trained.ppr}
    for info in other.dataset.artifacts("propagated"):
        is_made = info.state == "complete" and all(info.parameters.get(name) == value for name, value in same.items())
        if is_made and all(info.inputs.get(kind) == key for kind, key in other.inputs.items()):
            found = other.dataset.propagated(info.key)
            exact = trained.ppr is None or found.num_steps == trained.num_steps
            if exact and {*steps} - {0} <= {*found.steps}:
                return found
    needed = trained.num_steps if trained.ppr is not None else max(steps)
    words = [other.dataset.name, "--steps", str(needed), "--normalization", trained.normalization]
    words += [] if trained.ppr is None else ["--ppr", str(trained.ppr)]
    shards = [
        info.key
        for info in other.dataset.artifacts("shards")
        if info.parameters.get("layout") == "row" and info.inputs.get("graph") == other.graph.artifact.key
    ]
    words += ["--shards", shards[0]] if len(other.dataset.ingested_graphs()) > 1 and shards else []
    raise NotFoundError(
        f"dataset {other.dataset.name} has no features of graph {other.graph.artifact.key} that were propagated as in"
        f" the training; make them with `{shell_command('gnnloom', 'propagate', *words)}`"
    )
