"""Finds the shards that a prediction reads: of the run's own graph and vertex data, for the ranks that predict."""

from __future__ import annotations

from collections.abc import Mapping

from gnnloom.storage.catalog import ArtifactInfo, Dataset
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.runs.run import Run
from gnnloom.storage.wording import counted, shell_command
from gnnloom.trainer.config.train_config import TrainConfig

#: What the predictions of a run are about.
_DATA = ("graph", "vertices")


def shards_of_run(dataset: Dataset, run: Run, config: TrainConfig) -> str:
    """Key of the shards with which a run predicts. Communicates nothing.

    Shards of another graph of the dataset, or with other features, are never taken. Of several that fit, the first key
    is taken, since predictions differ only by rounding.

    Args:
        config: names the algorithm, the number of ranks, and perhaps the shards or the method of their partition.

    Raises:
        NotFoundError: there are none; the message has the commands that make them.
    """
    inputs, reads = run.inputs(), config.chosen_algorithm.reads
    wanted: dict[str, object] = {"layout": reads.name, "method": config.method, "permutation": config.permutation}
    if not reads.serves_any_ranks:
        wanted["parts"] = config.ranks
    fitting = [info.key for info in dataset.artifacts("shards") if _is_of(info, inputs) and _has(info, wanted)]
    if config.shards in fitting:
        return config.shards
    if config.shards is not None or not fitting:
        raise NotFoundError(_missing(dataset, inputs, config))
    return fitting[0]


def _is_of(info: ArtifactInfo, inputs: Mapping[str, str]) -> bool:
    """Whether complete shards, or a complete partition, are of the data of a run."""
    kinds = _DATA if info.kind == "shards" else ("graph",)
    return info.state == "complete" and all(info.inputs.get(kind) == inputs.get(kind) for kind in kinds)


def _has(info: ArtifactInfo, wanted: Mapping[str, object]) -> bool:
    return all(value is None or info.parameters.get(name) == value for name, value in wanted.items())


def _missing(dataset: Dataset, inputs: Mapping[str, str], config: TrainConfig) -> str:
    """The message about missing shards, with the commands that make them."""
    ranks, on_rows = str(config.ranks), not config.chosen_algorithm.reads.serves_any_ranks
    of_graph, of_vertices = _graph_option(dataset, inputs["graph"]), _vertices_option(dataset, inputs)
    method = ["--method", config.method] if config.method else []
    partition = ["gnnloom", "partition", dataset.name, "--parts", ranks, *method, *of_graph]
    shard = ["gnnloom", "shard", dataset.name, "--parts", ranks, *method, *of_graph, *of_vertices]
    permutation = config.permutation or "double"
    if not on_rows:
        parts = ["--parts", ranks] if permutation == "partition" else []
        grid = ["--grid", "16x16", "--permutation", permutation]
        shard = ["gnnloom", "shard", dataset.name, *grid, *parts, *of_graph, *of_vertices]
    parts_wanted = {"parts": config.ranks, "method": config.method}
    there = any(_is_of(info, inputs) and _has(info, parts_wanted) for info in dataset.artifacts("partition"))
    needs_partition = (on_rows or permutation == "partition") and not there
    first = f"`{shell_command(*partition)}` and " if needs_partition else ""
    what = f"row shards for {counted(config.ranks, 'rank')}" if on_rows else "grid shards"
    of = f" and vertex data {inputs['vertices']}" if "vertices" in inputs else ""
    return (
        f"dataset {dataset.name} has no {what} of graph {inputs['graph']}{of}, with which the run predicts; make them"
        f" with {first}`{shell_command(*shard)}`"
    )


def _graph_option(dataset: Dataset, graph: str) -> list[str]:
    """The option that chooses a graph; none for the only graph."""
    if [info.key for info in dataset.ingested_graphs() if info.state == "complete"] == [graph]:
        return []
    return ["--links"] if dataset.message_graphs() == [graph] else ["--graph", graph]


def _vertices_option(dataset: Dataset, inputs: Mapping[str, str]) -> list[str]:
    """The option that chooses the vertex data; none for the only ones of the graph."""
    graph = dataset.origin(inputs["graph"])
    there = [info.key for info in dataset.artifacts("vertices") if info.inputs.get("graph") == graph]
    return ["--vertices", inputs["vertices"]] if "vertices" in inputs and there != [inputs["vertices"]] else []
