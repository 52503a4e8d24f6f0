"""`gnnloom ingest` and `features`: from files to a stored graph with vertex data."""

from __future__ import annotations

from typing import Any

import click

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.formats import EDGE_FORMATS, open_edges, open_vertices, vertices_beside
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.pipeline.tasks.cluster import ClusterOptions, open_cluster
from gnnloom.storage import Dataset, Graph, Vertices
from gnnloom.workflows.cli.options import cluster_options, current_catalog, json_option
from gnnloom.workflows.cli.output import show
from gnnloom.workflows.cli.plan import plan_options, show_outcome, show_plan
from gnnloom.workflows.cli.progress import shown_progress


@click.command("ingest")
@click.argument("name")
@click.argument("source", nargs=-1, required=True)
@click.option(
    "--format", "format_name", type=click.Choice(tuple(EDGE_FORMATS)), default=None, help="[default: by the file name]"
)
@click.option("--undirected", is_flag=True, help="Store every edge in both directions.")
@click.option(
    "--self-loops",
    type=click.Choice(("add", "keep", "remove")),
    default="add",
    show_default=True,
    help="Add a loop to every vertex, keep those of the source, or remove them.",
)
@click.option(
    "--ids",
    type=click.Choice(("keep", "compact")),
    default="keep",
    show_default=True,
    help="Keep the ids, or number those that occur (numbers or names) 0, 1, ... in ascending order.",
)
@click.option("--weights", is_flag=True, help="Read edge weights (text and Parquet: the third column).")
@click.option(
    "--merge",
    type=click.Choice(("sum", "min", "max", "first")),
    default="sum",
    show_default=True,
    help="What becomes of the weights of equal edges.",
)
@click.option("--header/--no-header", default=None, help="Text: whether the first line names the columns.")
@click.option("--extra-columns", is_flag=True, help="Text: ignore columns after those that are needed.")
@click.option("--columns", metavar="SRC,DST[,WEIGHT]", help="Parquet: names of the columns.  [default: the first]")
@click.option("--packed", is_flag=True, help="Graph500: 48 bits per id instead of 64.")
@plan_options
@cluster_options
@json_option
def ingest_command(
    name: str,
    source: tuple[str, ...],
    format_name: str | None,
    undirected: bool,
    self_loops: str,
    ids: str,
    weights: bool,
    merge: str,
    header: bool | None,
    extra_columns: bool,
    columns: str | None,
    packed: bool,
    codec: str,
    plan: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Store the edges of SOURCE as the graph of dataset NAME.

    SOURCE is one or more files, URLs or globs, whose names tell the format unless --format does:

    \b
      snap        text of two or three columns: SNAP, CSV, TSV; plain, .gz or .zst
      parquet     .parquet, .pq: two or three columns
      npy, npz    NumPy pairs; edge_index, row and col, or a SciPy matrix
      mtx         MatrixMarket coordinate files: entry "i j" is the edge j -> i
      metis       .graph, .metis: a line of neighbors per vertex
      graph500    binary pairs (give --format)
      pyg         .pt: a torch_geometric Data
    or one folder:
    \b
      ogb         OGB's raw CSV layout
      ogb-binary  OGB's binary layout of papers100M
      planetoid   ind.NAME.x, .graph and so on
    An edge "u v" goes from u to v. Features, labels and split that lie beside the edges are stored too.
    Ids in text and Parquet may be names: --ids compact numbers them, and keeps them for what is exported.

    \b
    Example:
      gnnloom ingest web edges.txt.gz --undirected --ids compact
      gnnloom ingest arxiv dataset/ogbn_arxiv --format ogb --undirected
      gnnloom ingest calls calls-*.parquet --columns caller,callee,minutes --ids compact
      gnnloom ingest web edges-*.txt --undirected --plan
    """
    given = {
        "weights": weights,
        "header": header,
        "extra_columns": extra_columns,
        "columns": columns,
        "packed": packed,
    }
    edges = open_edges(format_name, source, given, undirected=undirected)
    options = IngestOptions(undirected, self_loops, ids, merge, codec)
    if plan:
        show_plan(current_catalog(), edges, options, cluster, as_json=as_json)
        return
    vertices = vertices_beside(format_name, source)
    store_graph(name, edges, vertices, options, cluster, as_json)


def store_graph(
    name: str,
    edges: EdgeSource,
    vertices: VertexSource | None,
    options: IngestOptions,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Store a source's graph and vertex data as a dataset, and show what came of it."""
    dataset = current_catalog().create(name)
    with open_cluster(cluster) as opened, shown_progress():
        graph = ingest_graph(dataset, edges, options, opened)
        stored = ingest_vertices(dataset, vertices, opened) if vertices is not None else None
    result = graph_result(dataset, graph) | (vertices_result(stored) if stored is not None else {})
    show(result, as_json=as_json, title=f"graph of {name}")
    if not as_json and result["plan"]:
        show_outcome(result["plan"])


def graph_result(dataset: Dataset, graph: Graph) -> dict[str, Any]:
    """What `ingest --json` prints of the graph."""
    artifact = graph.artifact
    counted = ("edges_in", "nnz", "self_loops", "duplicates")
    measured = ("seconds", "peak_memory", "spill_bytes", "bytes_written")
    return {
        "dataset": dataset.name,
        "key": artifact.key,
        "digest": artifact.digest,
        "vertices": graph.num_vertices,
        "symmetric": graph.symmetric,
        "weighted": graph.weighted,
        "names": graph.has_names,
        **{name: artifact.facts[name] for name in counted},
        **{name: artifact.measured[name] for name in measured},
        "plan": artifact.measured.get("plan", {}),
    }


def vertices_result(vertices: Vertices) -> dict[str, Any]:
    """What `features --json` prints."""
    facts = vertices.artifact.facts
    return {
        "features": vertices.num_features,
        "classes": vertices.num_classes,
        **{name: facts[name] for name in ("train", "valid", "test", "unlabeled") if name in facts},
        "vertices_key": vertices.artifact.key,
        "vertices_digest": vertices.artifact.digest,
    }


@click.command("features")
@click.argument("name")
@click.argument("synthetic", type=click.Choice(("random", "degree-labels")), required=False)
@click.option("--feature", metavar="FILE", help="(n, F) numbers: .npy, .npz, .parquet, or text.")
@click.option(
    "--label", metavar="FILE", help="(n,) classes from 0, -1 for none; or (n, C) zeros and ones; as --feature."
)
@click.option("--split", metavar="FILE", help="(n,) codes 0 none, 1 train, 2 valid, 3 test; or .npz of index arrays.")
@click.option("--by-id", is_flag=True, help="Text and Parquet: the first column is the id of the vertex.")
@click.option("--dim", type=click.IntRange(min=1), default=None, help="Synthetic features.  [default: 128]")
@click.option("--classes", type=click.IntRange(min=1), default=None, help="Synthetic classes.  [default: 32]")
@click.option("--seed", type=click.IntRange(min=0), default=None, help="Of the synthetic ones.  [default: 0]")
@cluster_options
@json_option
def features_command(
    name: str,
    synthetic: str | None,
    feature: str | None,
    label: str | None,
    split: str | None,
    by_id: bool,
    dim: int | None,
    classes: int | None,
    seed: int | None,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Store features, labels and a split for the vertices of dataset NAME, from files or synthetic.

    Row k belongs to vertex k; with --ids compact, to the vertex whose id was k, or to the k-th name; with --by-id, to
    the vertex whose id (number or name, as the edges call it) stands in the first column.
    random: random features and labels. degree-labels: random features, classes by the degree of the vertex.

    \b
    Example:
      gnnloom features web --feature x.npy --label y.npy --split split.npz
      gnnloom features web --feature x.parquet --label y.csv
      gnnloom features people --label labels.csv --split split.csv --by-id
      gnnloom features web degree-labels --dim 128 --classes 32 --seed 1
    """
    dataset = current_catalog()[name]
    files = {"feature": feature, "label": label, "split": split, "by_id": by_id or None}
    numbers = {"dim": dim, "classes": classes, "seed": seed}
    given = [
        f"--{key.replace('_', '-')}" for key, value in (files if synthetic else numbers).items() if value is not None
    ]
    if given:
        raise click.UsageError(
            f"{', '.join(given)} cannot be given {'with' if synthetic else 'without'} random or degree-labels"
        )
    del files["by_id"]
    if not synthetic and not any(files.values()):
        raise click.UsageError("give --feature, --label or --split files, or one of random and degree-labels")
    kind = synthetic or ("keyed" if by_id else "files")
    source = open_vertices(kind, (), numbers if synthetic else files, dataset.graph())
    with open_cluster(cluster) as opened:
        vertices = ingest_vertices(dataset, source, opened)
    result = {"dataset": name, "vertices": vertices.num_vertices} | vertices_result(vertices)
    show(result, as_json=as_json, title=f"vertex data of {name}")
