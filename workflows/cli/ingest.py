"""`gnnloom ingest`, `generate` and `features`: from files or a generator to a stored graph with vertex data."""

from __future__ import annotations

from typing import Any

import click

from gnnloom.pipeline.cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.ingest import IngestOptions, ingest_graph
from gnnloom.pipeline.sources.base import EdgeSource, VertexSource
from gnnloom.pipeline.sources.registry import guess_format, open_edges, open_vertices
from gnnloom.pipeline.sources.sbm import StochasticBlockModel
from gnnloom.pipeline.vertices import ingest_vertices
from gnnloom.storage import Dataset, Graph, Vertices
from gnnloom.workflows.cli.options import cluster_options, current_catalog, json_option
from gnnloom.workflows.cli.output import show

_FORMATS = ("snap", "ogb", "npy", "npz")


@click.command("ingest")
@click.argument("name")
@click.argument("source", nargs=-1, required=True)
@click.option("--format", "format_name", type=click.Choice(_FORMATS), default=None, help="[default: by the file name]")
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
    help="Keep the ids, or renumber those that occur 0, 1, ... in ascending order.",
)
@click.option("--weights", is_flag=True, help="Read edge weights (text: the third column).")
@click.option(
    "--merge",
    type=click.Choice(("sum", "min", "max", "first")),
    default="sum",
    show_default=True,
    help="What becomes of the weights of equal edges.",
)
@click.option("--header", is_flag=True, help="Text: the first line names the columns.")
@click.option("--extra-columns", is_flag=True, help="Text: ignore columns after those that are needed.")
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
    header: bool,
    extra_columns: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Store the edges of SOURCE as the graph of dataset NAME.

    SOURCE is one or more files, URLs or globs: SNAP-style text (.txt, .csv, .tsv, plain or .gz), NumPy (.npy, .npz),
    SciPy (.npz); or one folder in OGB's raw layout, whose features, labels and split are stored too.
    An edge "u v" goes from u to v.

    \b
    Example:
      gnnloom ingest web edges.txt.gz --undirected --ids compact
      gnnloom ingest arxiv dataset/ogbn_arxiv --format ogb --undirected
    """
    edges = open_edges(format_name, source, {"weights": weights, "header": header, "extra_columns": extra_columns})
    vertices = open_vertices("ogb", source) if (format_name or guess_format(source)) == "ogb" else None
    options = IngestOptions(undirected, self_loops, ids, merge)
    _ingest(name, edges, vertices, options, cluster, as_json)


def _ingest(
    name: str,
    edges: EdgeSource,
    vertices: VertexSource | None,
    options: IngestOptions,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    dataset = current_catalog().create(name)
    with open_cluster(cluster) as opened:
        graph = ingest_graph(dataset, edges, options, opened)
        stored = ingest_vertices(dataset, vertices, opened) if vertices is not None else None
    result = graph_result(dataset, graph) | (vertices_result(stored) if stored is not None else {})
    show(result, as_json=as_json, title=f"graph of {name}")


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
        **{name: artifact.facts[name] for name in counted},
        **{name: artifact.measured[name] for name in measured},
    }


def vertices_result(vertices: Vertices) -> dict[str, Any]:
    """What `features --json` prints."""
    facts = vertices.artifact.facts
    return {
        "features": vertices.num_features,
        "classes": vertices.num_classes,
        **{name: facts[name] for name in ("train", "valid", "test", "unlabelled") if name in facts},
        "vertices_key": vertices.artifact.key,
        "vertices_digest": vertices.artifact.digest,
    }


@click.command("generate")
@click.argument("name")
@click.argument("model", type=click.Choice(("sbm",)))
@click.option("--vertices", type=click.IntRange(min=1), default=10_000, show_default=True, help="Vertices.")
@click.option("--edges", type=click.IntRange(min=1), default=200_000, show_default=True, help="Edges to draw.")
@click.option("--classes", type=click.IntRange(min=1), default=16, show_default=True, help="Communities.")
@click.option(
    "--homophily", type=click.FloatRange(0, 1), default=0.8, show_default=True, help="Edges that stay in a community."
)
@click.option("--skew", type=click.FloatRange(0, 1, max_open=True), default=0.3, show_default=True, help="Of degrees.")
@click.option("--dim", type=click.IntRange(min=1), default=64, show_default=True, help="Features.")
@click.option("--noise", type=click.FloatRange(min=0), default=6.0, show_default=True, help="Of the features.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed, the same graph.")
@cluster_options
@json_option
def generate_command(
    name: str,
    model: str,
    vertices: int,
    edges: int,
    classes: int,
    homophily: float,
    skew: float,
    dim: int,
    noise: float,
    seed: int,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Generate an undirected graph with features, labels and a split as dataset NAME, without a file between.

    sbm: a stochastic block model; the classes are the communities, the features the community plus noise.

    \b
    Example:
      gnnloom generate demo sbm --vertices 50000 --edges 1000000 --classes 16
    """
    del model  # the only one so far; click has checked it
    block_model = StochasticBlockModel(
        num_vertices=vertices,
        num_edges=edges,
        num_blocks=classes,
        homophily=homophily,
        skew=skew,
        num_features=dim,
        noise=noise,
        seed=seed,
    )
    _ingest(name, block_model.edges(), block_model.vertices(), IngestOptions(undirected=True), cluster, as_json)


@click.command("features")
@click.argument("name")
@click.argument("synthetic", type=click.Choice(("random", "degree-labels")), required=False)
@click.option("--feature", metavar="FILE", help="(n, F) numbers: .npy, or .npz with one array.")
@click.option("--label", metavar="FILE", help="(n,) classes from 0, -1 for none.")
@click.option("--split", metavar="FILE", help="(n,) codes 0 none, 1 train, 2 valid, 3 test; or .npz of index arrays.")
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
    dim: int | None,
    classes: int | None,
    seed: int | None,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Store features, labels and a split for the vertices of dataset NAME, from files or synthetic.

    random: random features and labels. degree-labels: random features, classes by the degree of the vertex.

    \b
    Example:
      gnnloom features web --feature x.npy --label y.npy --split split.npz
      gnnloom features web degree-labels --dim 128 --classes 32 --seed 1
    """
    dataset = current_catalog()[name]
    files = {"feature": feature, "label": label, "split": split}
    numbers = {"dim": dim, "classes": classes, "seed": seed}
    given = [f"--{key}" for key, value in (files if synthetic else numbers).items() if value is not None]
    if given:
        raise click.UsageError(
            f"{', '.join(given)} cannot be given {'with' if synthetic else 'without'} random or degree-labels"
        )
    if not synthetic and not any(files.values()):
        raise click.UsageError("give --feature, --label or --split files, or one of random and degree-labels")
    source = open_vertices(synthetic or "numpy", (), numbers if synthetic else files, dataset.graph())
    with open_cluster(cluster) as opened:
        vertices = ingest_vertices(dataset, source, opened)
    result = {"dataset": name, "vertices": vertices.num_vertices} | vertices_result(vertices)
    show(result, as_json=as_json, title=f"vertex data of {name}")
