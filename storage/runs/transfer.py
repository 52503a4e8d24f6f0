"""Runs that predict on another graph than they were trained on: copies of trained weights, next to that graph.

The copy is a run of the dataset that the graph belongs to. It has the configuration and one checkpoint of the run that
was trained, and whatever else a prediction needs of the training data, so it stays complete without these. It has no
metrics, as no epoch was trained on its graph, and it cannot be trained further.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.links import LinkedRelation, Links
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.files import JsonObject, parsing, read_json, remove_tree, write_json
from gnnloom.storage.format.array_pieces import ArrayAppender, ArrayForm
from gnnloom.storage.format.arrays import Array, ArrayRecord
from gnnloom.storage.format.listing import list_run
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.runs.checkpoint import StoredCheckpoint, begin_checkpoint, publish_checkpoint
from gnnloom.storage.runs.run import TRANSFER, Run

#: State of an optimizer in a checkpoint, which predictions do not need.
_OPTIMIZER: Final = "optimizer/"


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Origin of the weights of a run, with facts about the data that they were trained on.

    Attributes:
        dataset, run: names of the dataset and of the run that was trained.
        epoch: number of epochs after which the copied checkpoint was written.
        source: digest of everything that the copy was made from.
        task: name of the task, which the vertex data of another graph need not suggest.
        num_classes, num_targets: sizes of the labels that the run was trained on; 0 for what they lack.
        class_names: names of the classes by number; empty if the labels were numbers.
        kind: kind of the values of the pairs that the run was trained on, as :class:`Links` has it; empty for a run on
            vertices.
    """

    dataset: str
    run: str
    epoch: int
    source: str
    task: str
    num_classes: int = 0
    num_targets: int = 0
    class_names: tuple[str, ...] = field(default=())
    kind: str = ""

    @classmethod
    def of(cls, run: Run) -> Self | None:
        """The transfer that made a run; None if the run was trained on its own graph.

        Raises:
            CorruptError: the file is damaged.
        """
        path = run.path / TRANSFER
        if not path.exists():
            return None
        content = read_json(path)
        with parsing(path, "a transfer"):
            return cls(**{**content, "class_names": tuple(content["class_names"])})


class AllEdges(Links):
    """Stands for the links of a graph that no pairs were drawn from: models read all of its edges."""

    def __init__(self, graph: Graph | TypedGraph, transfer: Transfer | None, relation: str | None = None) -> None:
        """Read nothing.

        Args:
            transfer: what the run knows of the values of pairs; None if these do not matter.
            relation: the relation of a graph with types whose pairs are scored.
        """
        self.artifact, self.num_vertices = graph.artifact, graph.num_vertices
        if isinstance(graph, Graph):
            self.relation, self.symmetric, self.weighted = None, graph.symmetric, graph.weighted
        else:
            of = graph.relation(relation or "")
            ends, counts = (of.source.name, of.target.name), (of.source.count, of.target.count)
            self.relation, self.symmetric, self.weighted = LinkedRelation(of.name, *ends, *counts, of.nnz), False, False
        self.num_pairs = MappingProxyType(dict.fromkeys(LINK_SPLITS, 0))
        self.graph = self.message_graph = graph.artifact.key
        self.together = False
        self.kind, self.num_classes, self.class_names = "", 0, ()
        if transfer is not None:
            self.kind, self.num_classes = transfer.kind, transfer.num_classes
            self.class_names = transfer.class_names

    @property
    def trains_on_edges(self) -> bool:
        return True


def links_of_run(dataset: Dataset, run: Run) -> Links:
    """The links of a run on pairs.

    Raises:
        NotFoundError: the links, or the graph that a transferred run predicts on, were removed.
    """
    transfer, inputs = Transfer.of(run), run.inputs()
    if transfer is None:
        return dataset.links(inputs["links"])
    relation = run.config().get("relation")
    graph = dataset.graph(inputs["graph"]) if relation is None else dataset.typed_graph(inputs["graph"])
    return AllEdges(graph, transfer, relation)


def write_transfer(
    run: Run,
    config: JsonObject,
    inputs: Mapping[str, str],
    transfer: Transfer,
    checkpoint: StoredCheckpoint,
    rows: Mapping[str, tuple[int, Iterator[Array]]],
) -> None:
    """Write a transferred run, or replace one; called by one process that holds the run's lock.

    However it is killed, the run does not exist, or its file ``transfer.json`` is missing or differs from what is to be
    written, and the next call writes it again.

    Args:
        config: configuration of the run.
        inputs: kind to key of the artifacts that the run reads.
        checkpoint: checkpoint of the run that was trained. The state of its optimizer is left out.
        rows: arrays of the checkpoint with a row for each vertex, by name: the number of vertices of the other graph,
            and their rows in their order, some at a time.
    """
    (run.path / TRANSFER).unlink(missing_ok=True)
    run.drop_predictions()
    if run.checkpoints.is_dir():
        remove_tree(run.checkpoints)
    aside = begin_checkpoint(run.checkpoints, checkpoint.epoch)
    records = []
    for name, reader in sorted(checkpoint.readers.items()):
        if not name.startswith(_OPTIMIZER):
            length, pieces = rows.get(name, (len(reader), reader.chunks()))
            records.append(_copy(aside, reader.record, length, pieces))
    publish_checkpoint(run.checkpoints, checkpoint.epoch, records, checkpoint.facts)
    write_json(run.inputs_path, dict(inputs))
    write_json(run.path / TRANSFER, asdict(transfer))
    # Last: a folder with a configuration counts as a run.
    write_json(run.config_path, config)
    list_run(run.path)


def _copy(aside: Path, record: ArrayRecord, length: int, pieces: Iterator[Array]) -> ArrayRecord:
    """Write an array like a recorded one, with ``length`` rows that come in pieces."""
    out = ArrayAppender(aside, ArrayForm(record.path, (length, *record.shape[1:]), record.dtype, record.dims))
    for piece in pieces:
        out.append(piece)
    return out.close()
