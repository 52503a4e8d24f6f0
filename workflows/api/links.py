"""Makes links: pairs of vertices in splits, and the graph without the edges that are held out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.links.given.given_stage import GivenLinks, store_links
from gnnloom.pipeline.links.hard_stage import draw_hard_negatives as draw_hard
from gnnloom.pipeline.links.options import DrawOptions, FileOptions, HardOptions
from gnnloom.pipeline.links.relation.given import store_relation_links
from gnnloom.pipeline.links.relation.stage import draw_relation_links
from gnnloom.pipeline.links.stage import draw_links as draw
from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage import Graph
from gnnloom.storage.artifacts.links import PAIR, Links
from gnnloom.storage.artifacts.typed.typed_graph import Relation
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.option import options_of
from gnnloom.storage.wording import did_you_mean, shell_command
from gnnloom.workflows.api.catalog import CatalogLike, DatasetLike, as_dataset
from gnnloom.workflows.api.cluster import CLUSTER, on_cluster, once_per_job, stage_options
from gnnloom.workflows.api.options.keywords import ArtifactLike, key_of, with_options
from gnnloom.workflows.interop.graph_libraries import typed_graph

if TYPE_CHECKING:
    from gnnloom.workflows.api.options.option_types import ClusterKeywords, DrawKeywords, HardKeywords, LinksKeywords

_OPTIONS = options_of(DrawOptions)
_FILE_OPTIONS = options_of(FileOptions)
_HARD_OPTIONS = options_of(HardOptions)


@with_options({**_OPTIONS, **CLUSTER})
def draw_links(
    dataset: DatasetLike,
    *,
    graph: ArtifactLike | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[DrawKeywords],
) -> Links:
    """Hold out edges of a graph for validation and testing, and store the graph without these edges as another graph.

    The two directions of an edge count as one edge if the graph is undirected, or if every edge of a directed graph has
    its reverse. Loops are never held out. ``by="time"`` holds out the latest edges of a graph that was ingested with
    times.

    In a graph with types, ``relation`` names the relation whose edges are the pairs. Negatives are pairs of the
    relation's types, and the new graph refers to the original graph for all other relations. An edge and its reverse in
    a relation within one type are held out together by default.

    >>> links = gnnloom.draw_links("web", valid=0.1, test=0.1)
    >>> links.num_pairs["test"], links.pair("test").shape
    (72, (72, 2))

    Args:
        dataset: the dataset or its name.
        graph: the graph or its key, to choose between several; by default the only one that was made from files.
        catalog: as for :func:`gnnloom.ingest`, as are the options of the workers.
        options: as in ``gnnloom links NAME random --help``: ``by``, ``times``, ``valid``, ``test``,
            ``disjoint``, ``negatives``, ``seed``, ``reciprocal``, ``relation``.

    Returns:
        The pairs; ``dataset.graph(result.message_graph)`` is the graph without held-out edges, and
        ``dataset.typed_graph(...)`` if it has types.

    Raises:
        InputError: an option is unknown or out of range; a split would be empty; edges are chosen by time, but have no
            times or equal times; or ``relation`` is missing for a graph with types, or given for a graph without.
        NotFoundError: the dataset or one of its graphs does not exist.
        BudgetError: the memory per worker is too small.
    """
    found = as_dataset(dataset, catalog)
    settings, cluster = stage_options("draw_links", options, DrawOptions, _OPTIONS)
    return once_per_job(lambda: store_drawn(found, find_drawn(found, key_of(graph), settings), settings, cluster))


@with_options({**_FILE_OPTIONS, **CLUSTER})
def read_links(
    dataset: DatasetLike,
    *,
    graph: ArtifactLike | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[LinksKeywords],
) -> Links:
    """Store pairs of vertices from files, and the graph without the pairs for validation and testing.

    The files use the same ids, numbers or names, as the files that the graph was made from. A split without negatives
    gets ``negatives`` random pairs for each of its pairs; they are drawn uniformly from the pairs that are not edges.

    In a graph with types, ``relation`` names the relation of the pairs: the two columns are ids of its source type and
    of its target type, and negatives have the same types.

    Args:
        dataset: the dataset or its name.
        graph: the graph or its key, to choose between several; by default the only one that was made from files.
        catalog: as for :func:`gnnloom.ingest`, as are the options of the workers.
        options: as in ``gnnloom links NAME file --help``: the files ``train``, ``valid`` and ``test``, and more.

    Returns:
        The pairs; ``dataset.graph(result.message_graph)`` is the graph without held-out edges.

    Raises:
        InputError: an option is unknown, a file has a row that is not a pair of vertices of the graph, or a pair is in
            several splits.
        NotFoundError: the dataset, its graph or a file does not exist.
        BudgetError: the memory per worker is too small.
    """
    found = as_dataset(dataset, catalog)
    settings, cluster = stage_options("read_links", options, FileOptions, _FILE_OPTIONS)

    def make() -> Links:
        linked = find_drawn(found, key_of(graph), settings)
        return store_given(found, linked, GivenLinks.of(settings), cluster)

    return once_per_job(make)


@with_options(CLUSTER)
def read_ogb_links(
    dataset: DatasetLike,
    folder: Path | str,
    *,
    split: str | None = None,
    graph: ArtifactLike | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[ClusterKeywords],
) -> Links:
    """Store the pairs of an OGB folder for link prediction, with their negatives.

    The graph in such a folder has only the training edges, so no edge is held out.

    Args:
        dataset: the dataset of the folder's graph, or its name.
        folder: the folder, which has ``split/NAME/train.pt``.
        split: NAME, if there are several splits.
        graph: the graph or its key, to choose between several; by default the only one that was made from files.
        catalog: as for :func:`gnnloom.ingest`, as are the options of the workers.

    Raises:
        InputError: a file has unexpected arrays, or pairs of numbers that are not vertices of the graph.
        NotFoundError: the dataset, its graph, the folder or a file in it does not exist.
        BudgetError: the memory per worker is too small.
    """
    found = as_dataset(dataset, catalog)
    _, cluster = stage_options("read_ogb_links", options, dict, ())

    def make() -> Links:
        linked = find_linked(found, key_of(graph))
        return store_given(found, linked, GivenLinks.of_ogb(str(folder), split), cluster)

    return once_per_job(make)


@with_options({**_HARD_OPTIONS, **CLUSTER})
def draw_hard_negatives(
    dataset: DatasetLike,
    *,
    links: ArtifactLike | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[HardKeywords],
) -> Links:
    """Store new links with the pairs of existing links, and hard negatives for each validation and test pair.

    Half of the negatives replace the target of their pair, the other half its source, by vertices that rank high with
    the other end by resource allocation, personalized PageRank and features. The new links have the message graph of
    the existing links.

    Args:
        dataset: the dataset or its name.
        links: the links with the pairs, or their key, if the dataset has several without negatives of each pair.
        catalog: as for :func:`gnnloom.ingest`, as are the options of the workers.
        options: as in ``gnnloom links NAME hard --help``: ``negatives``, ``features``, ``seed``, ``relation``.

    Returns:
        The new links. Runs on the message graph must choose between the links: ``links=result``.

    Raises:
        InputError: an option is unknown or out of range, the pairs already have values or negatives, or the graph has
            too few vertices.
        NotFoundError: the dataset or its links do not exist.
        BudgetError: the memory per worker is too small.
    """
    found = as_dataset(dataset, catalog)
    settings, cluster = stage_options("draw_hard_negatives", options, HardOptions, _HARD_OPTIONS)

    def make() -> Links:
        pairs = find_pairs(found, key_of(links), settings.relation)
        return on_cluster(cluster, lambda opened: draw_hard(found, pairs, settings, opened))

    return once_per_job(make)


def find_pairs(dataset: StoredDataset, key: str | None, relation: str | None = None) -> Links:
    """Find the links with this key; by default, the only links whose pairs have neither values nor negatives.

    Args:
        relation: name of the relation of the pairs, in a graph with types; None for any.

    Raises:
        NotFoundError: no links match.
        InputError: several links match, or the links are links of another relation.
    """
    if key is not None:
        chosen = dataset.links(key)
        own = None if chosen.relation is None else chosen.relation.name
        if relation not in {None, own}:
            of = "a graph without types" if own is None else f"relation {own}"
            raise InputError(f"relation {relation}: {chosen.artifact.path} are links of {of}; leave one option out")
        return chosen
    stored = [dataset.links(info.key) for info in dataset.artifacts("links") if info.state == "complete"]
    if relation is not None:
        names = sorted({each.relation.name for each in stored if each.relation is not None})
        if relation not in names:
            known = did_you_mean(relation, names, "there are links of") if names else "no links are of a relation"
            raise NotFoundError(f"{dataset.path}: no links of relation {relation!r}; {known}")
        stored = [each for each in stored if each.relation is not None and each.relation.name == relation]
    found = [
        each for each in stored if each.kind == PAIR and not any(each.num_negatives(split) for split in each.num_pairs)
    ]
    # If there are none or several, the catalog reports it.
    if len(found) > 1 and relation is not None:
        keys = ", ".join(each.artifact.key for each in found)
        raise InputError(f"{dataset.path}: several links of relation {relation}; choose with --links: {keys}")
    if not found and relation is not None:
        raise NotFoundError(
            f"{dataset.path}: all links of relation {relation} have values or negatives of their own; draw some with"
            f" `{shell_command('gnnloom', 'links', dataset.name, 'random', '--relation', relation)}`"
        )
    return found[0] if len(found) == 1 else dataset.links()


def find_linked(dataset: StoredDataset, graph: str | None) -> Graph:
    """Find the graph to hold out links from.

    Raises:
        NotFoundError: there is no such graph, or it is a graph without held-out edges.
        InputError: there are several graphs and none is chosen, or the graph has types.
    """
    found = dataset.graph(graph)
    if dataset.origin(found.artifact.key) != found.artifact.key:
        raise NotFoundError(
            f"{found.artifact.path}: a graph without held-out edges; draw links from the graph that it was made from,"
            f" {dataset.origin(found.artifact.key)}"
        )
    return found


def find_drawn(dataset: StoredDataset, graph: str | None, options: DrawOptions | FileOptions) -> Graph | Relation:
    """Find the graph, or the relation of a graph with types, whose edges become pairs.

    Raises:
        NotFoundError: there is no such graph or relation, or it is a graph without held-out edges.
        InputError: there are several graphs and none is chosen; or ``relation`` is missing for a graph with types, or
            given for a graph without.
    """
    if options.relation is None:
        typed = typed_graph(dataset, graph)
        if typed is None:
            return find_linked(dataset, graph)
        names = ", ".join(each.name for each in typed.relations)
        raise InputError(
            f"the graph has types; choose the relation whose edges are the pairs, with --relation: {names}"
        )
    chosen = [info for info in dataset.artifacts("graph") if info.key.startswith(graph or "")]
    if chosen and not any(info.is_typed for info in chosen):
        raise InputError(f"relation {options.relation}: the graph has no types; leave the option out")
    found = dataset.typed_graph(graph)
    if found.origin is not None:
        raise NotFoundError(
            f"{found.artifact.path}: a graph without held-out edges; draw links from the graph that it was made from,"
            f" {found.origin.artifact.key}"
        )
    return found.relation(options.relation)


def find_times(dataset: StoredDataset, options: DrawOptions) -> DrawOptions:
    """Complete the key of the graph with the times; the options may contain only its first digits.

    The graph may have been removed after links were drawn by its times.
    """
    if options.times is None:
        return options
    graphs = {info.key for info in dataset.artifacts("graph")}
    known = graphs | {info.inputs["times"] for info in dataset.artifacts("links") if "times" in info.inputs}
    found = [key for key in known if key.startswith(options.times)]
    # If there are none or several, the stage reports it.
    return replace(options, times=found[0]) if len(found) == 1 else options


def store_drawn(
    dataset: StoredDataset, linked: Graph | Relation, options: DrawOptions, cluster: ClusterOptions
) -> Links:
    """Draw links from a graph or a relation, on a cluster that is open only during the call."""
    if isinstance(linked, Relation):
        return on_cluster(cluster, lambda opened: draw_relation_links(dataset, linked, options, opened))
    return on_cluster(cluster, lambda opened: draw(dataset, linked, find_times(dataset, options), opened))


def store_given(dataset: StoredDataset, linked: Graph | Relation, given: GivenLinks, cluster: ClusterOptions) -> Links:
    """Store links of a graph or a relation from files, on a cluster that is open only during the call."""
    if isinstance(linked, Relation):
        return on_cluster(cluster, lambda opened: store_relation_links(dataset, linked, given, opened))
    return on_cluster(cluster, lambda opened: store_links(dataset, linked, given, opened))
