"""`gnnloom links`: pairs of vertices to predict, and the graph without held-out edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.links.given.given_ids import GivenLists
from gnnloom.pipeline.links.given.given_projection import project_given
from gnnloom.pipeline.links.given.given_stage import GivenLinks
from gnnloom.pipeline.links.hard_stage import draw_hard_negatives
from gnnloom.pipeline.links.options import DrawOptions, FileOptions, HardOptions
from gnnloom.pipeline.links.projection import LinkProjection, project_hard, project_links
from gnnloom.pipeline.links.relation.given import ends_of
from gnnloom.pipeline.links.relation.projection import project_given_relation, project_relation_links
from gnnloom.pipeline.sources.format import SPLIT_NAME
from gnnloom.pipeline.sources.understood import Understood
from gnnloom.storage import Dataset, Graph
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.typed.typed_graph import Relation
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.workflows.api.cluster import on_cluster
from gnnloom.workflows.api.links import (
    find_drawn,
    find_linked,
    find_pairs,
    find_times,
    store_drawn,
    store_given,
)
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import click_option, current_catalog, key_option, object_option
from gnnloom.workflows.cli.terminal.output import say_understood
from gnnloom.workflows.cli.terminal.stage import show_stage, stage_options, stored_result


@click.group("links")
@click.argument("name")
def links_command(name: str) -> None:
    """Make pairs of vertices of dataset NAME for training, validation and testing.

    Edges that are validation or test pairs are held out: the graph without them, called the message graph, is stored as
    another graph of the dataset. Partition, shard and train on the message graph.

    \b
    Example:
      gnnloom links web random --valid 0.05 --test 0.1
      gnnloom links web file --valid valid.txt --test test.txt
      gnnloom links collab ogb dataset/ogbl_collab
    """


@links_command.command("random", cls=GroupedCommand)
@object_option("options", DrawOptions)
@key_option("graph")
@stage_options()
def random_command(options: DrawOptions, graph: str | None, plan: bool, cluster: ClusterOptions) -> None:
    """Hold random edges out of the graph.

    Test and validation edges are chosen at random; the choice depends only on --seed and on the graph. The two
    directions of an edge count as one edge if the graph is undirected, or if every edge of a directed graph has its
    reverse; see --reciprocal for other graphs. Self loops are never held out. Negatives are drawn uniformly from all
    pairs of vertices that are not edges.

    With --by time, the latest edges become the test edges, and the edges just before them the validation edges. Times
    come from `gnnloom ingest --times`. They are stored with the graph or, if its edges have weights, as another graph
    with the same edges.

    In a graph with types, --relation names the relation whose edges are held out. Negatives are pairs of its source
    and target type. The message graph stores only this relation and refers to the original graph for all others. In a
    relation within one type, an edge and its reverse are held out together, except with --reciprocal apart or --by
    time. With --values, pairs have the label or the weight of their edges, which `gnnloom train --task edge-class` and
    `--task edge-number` predict.

    \b
    Example:
      gnnloom links web random --valid 0.05 --test 0.1 --seed 0
      gnnloom links web random --disjoint 0.3 --negatives 100
      gnnloom links web random --plan
      gnnloom ingest calls calls.csv --times --merge max
      gnnloom links calls random --by time --test 0.2
      gnnloom links shop random --relation buys
      gnnloom links payments random --relation pays --values class
    """
    dataset = _dataset()
    stored, options = find_drawn(dataset, graph, options), find_times(dataset, options)
    tasks = cluster.tasks_at_once

    def project() -> LinkProjection:
        if isinstance(stored, Relation):
            return project_relation_links(dataset, stored, options, tasks)
        return project_links(dataset, stored, options, tasks, cluster.memory)

    _show_links(dataset, plan, project, lambda: store_drawn(dataset, stored, options, cluster))


@links_command.command("file", cls=GroupedCommand)
@object_option("options", FileOptions)
@key_option("graph")
@stage_options(quiet=True)
def file_command(options: FileOptions, graph: str | None, plan: bool, quiet: bool, cluster: ClusterOptions) -> None:
    """Read pairs from files in any edge format.

    A pair "u v" is the edge from u to v; it uses the same ids as the files that the graph was ingested from. Validation
    and test pairs that are edges are held out of the graph. The command reports how many negatives are edges or pairs.
    A split without negatives gets random pairs that are not edges.

    In a graph with types, --relation names the relation of the pairs. The first column has ids of its source type, the
    second column ids of its target type.

    \b
    Example:
      gnnloom links web file --valid valid.txt --test test.txt
      gnnloom links web file --train train.csv --valid valid.csv --test test.csv --values class
      gnnloom links web file --valid v.npy --test t.npy --test-targets negatives.npy
      gnnloom links web file --valid valid.txt --test test.txt --plan
      gnnloom links shop file --relation buys --valid valid.csv --test test.csv --columns user_id,item_id
      gnnloom links shop file --relation rates --train t.csv --valid v.csv --test w.csv --values number
    """
    dataset = _dataset()
    stored, given = find_drawn(dataset, graph, options), GivenLinks.of(options)
    ends = ends_of(stored) if isinstance(stored, Relation) else (stored,)
    names = GivenLists.of(ends, given.lists).names
    understood = [found for each in given.lists for found in each.understood(names=names)]
    if not quiet:
        say_understood(understood)
    _plan_or_store(dataset, stored, given, cluster, plan, understood)


@links_command.command("ogb", cls=GroupedCommand)
@click.argument("folder")
@click_option(SPLIT_NAME)
@key_option("graph")
@stage_options()
def ogb_command(folder: str, split: str | None, graph: str | None, plan: bool, cluster: ClusterOptions) -> None:
    """Read the pairs and negatives of FOLDER, an OGB dataset for link prediction.

    First store its graph with `gnnloom ingest NAME FOLDER --format ogb`. The graph has only the training edges, so no
    edge is held out, even if a later split contains a training edge again.

    \b
    Example:
      gnnloom ingest collab dataset/ogbl_collab --format ogb --undirected
      gnnloom links collab ogb dataset/ogbl_collab
      gnnloom links collab ogb dataset/ogbl_collab --plan
    """
    dataset = _dataset()
    _plan_or_store(dataset, find_linked(dataset, graph), GivenLinks.of_ogb(folder, split), cluster, plan)


@links_command.command("hard", cls=GroupedCommand)
@object_option("options", HardOptions)
@key_option("links")
@stage_options()
def hard_command(options: HardOptions, links: str | None, plan: bool, cluster: ClusterOptions) -> None:
    """Draw hard negatives, which resemble edges, for each pair of existing links.

    Stores new links with the same pairs. Each validation and test pair gets its own negatives: half replace its target,
    half replace its source. The replacements rank high by resource allocation, personalized PageRank and cosine
    similarity of features with the other end. No negative is an edge of the graph. This is the HeaRT protocol of Li et
    al. (2023).

    Links of a relation of a graph with types get negatives of the same types: a target is replaced by vertices of the
    target type, a source by vertices of the source type.

    \b
    Example:
      gnnloom links web random
      gnnloom links web hard --negatives 500
      gnnloom links shop hard --relation buys
      gnnloom links web hard --plan
    """
    dataset = _dataset()
    pairs = find_pairs(dataset, links, options.relation)

    def make() -> Links:
        return on_cluster(cluster, lambda opened: draw_hard_negatives(dataset, pairs, options, opened))

    _show_links(dataset, plan, lambda: project_hard(dataset, pairs, options, cluster.tasks_at_once), make)


def _plan_or_store(
    dataset: Dataset,
    graph: Graph | Relation,
    given: GivenLinks,
    cluster: ClusterOptions,
    plan: bool,
    understood: Sequence[Understood] = (),
) -> None:
    """Show the projected needs of links from files, or store and show the links."""

    def project() -> LinkProjection:
        if isinstance(graph, Relation):
            return project_given_relation(dataset, graph, given, cluster.tasks_at_once, cluster.memory)
        return project_given(dataset, graph, given, cluster.tasks_at_once, cluster.memory)

    _show_links(dataset, plan, project, lambda: store_given(dataset, graph, given, cluster), understood)


def _show_links(
    dataset: Dataset,
    plan: bool,
    project: Callable[[], LinkProjection],
    make: Callable[[], Links],
    understood: Sequence[Understood] = (),
) -> None:
    """Show the projected needs of links, or make and show the links."""
    what, figures = f"links of {dataset.name}", "upper bounds"

    def result() -> dict[str, Any]:
        return links_result(dataset, make())

    show_stage(what, figures, plan=plan, project=project, make=result, understood=understood)


def _dataset() -> Dataset:
    """The dataset that the command before the method names."""
    context = click.get_current_context().parent
    name = "" if context is None else context.params["name"]
    return current_catalog()[name]


def links_result(dataset: Dataset, links: Links) -> dict[str, Any]:
    """Return the object that `links --json` prints."""
    facts, key, relation = links.artifact.facts, links.message_graph, links.relation
    message = dataset.graph(key) if relation is None else dataset.typed_graph(key).relation(relation.name)
    # For both ends.
    of_each = links.num_negatives("test") + links.num_replaced("test")
    figures: dict[str, Any] = {
        "graph": links.graph,
        "message_graph": links.message_graph,
        **({} if relation is None else {"relation": list(relation.edge_type)}),
        **links.num_pairs,
        **{f"{split}_pool": links.num_pooled(split) for split in LINK_SPLITS if links.num_pooled(split)},
        **({"negatives_of_each": of_each} if of_each else {}),
        "held_out_entries": facts["held_out_entries"],
        "message_nnz": message.nnz,
        **{name: facts[name] for name in ("edges_of_graph", "edges_with_reverse") if name in facts},
        **_given(links),
    }
    return stored_result(dataset.name, links.artifact, figures)


def _given(links: Links) -> dict[str, Any]:
    """Facts about links from files."""
    edges = links.artifact.facts.get("edges")
    if edges is None:
        return {}
    negative = {path: count for path, count in edges.items() if not path.endswith("/pair")}
    return {
        "shared": links.artifact.facts["shared"],
        "classes": links.num_classes,
        "negatives": sum(
            links.num_pooled(split) + links.num_pairs[split] * links.num_negatives(split) for split in links.num_pairs
        ),
        "negatives_that_are_edges": sum(negative.values()),
    }
