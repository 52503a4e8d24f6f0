"""The stage: two passes of independent tasks, over the ranks and over the segments of their epochs."""

from __future__ import annotations

from collections.abc import Mapping

from gnnloom.pipeline.samples.inputs import SampleInputs, find_inputs
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.sizes import SampleSizes, sample_phases
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.phase import repairing, run
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.samples import Samples
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key


@repairing
def write_samples(
    dataset: Dataset, graph: Graph, partition: Partition | None, options: SampleOptions, cluster: Cluster
) -> Samples:
    """Draw the batches of some epochs and pack what they read, or find them; resumes what an earlier run left.

    Args:
        partition: for several ranks, the one whose parts are theirs.

    Raises:
        InputError: the features, the labels or the split are missing, no vertex is for training, or the partition does
            not fit.
        BudgetError: one batch may need more memory than a worker has.
    """
    inputs = checked_inputs(dataset, graph, partition, options)
    sizes = SampleSizes.of(inputs, options)
    sizes.check_memory(cluster.memory)
    with ArtifactWriter.begin(dataset.path, "samples", options.parameters, inputs.keys, cluster.scratch) as writer:
        if writer.is_complete:
            return Samples(Artifact(writer.path))
        # Here, before the tasks: the first use of the uncompressed copies makes them, and would keep workers waiting.
        copies = inputs.map_all()
        cluster = for_few(cluster, sizes.rows * options.epochs * max(1, inputs.vertices.num_features))
        # How many segments there are depends on the seeds that the first phase finds.
        first = sample_phases(writer, inputs, options, sizes, [0] * options.ranks)[0]
        recorded = writer.recorded_of(run([first], cluster, writer))
        facts = [recorded[task.name].facts for task in first.tasks]
        seeds = [int(each["num_seeds"]) for each in facts]
        if not any(seeds):
            raise InputError(f"{inputs.vertices.artifact.path}: no vertex has a label and is in the training split")
        names = run(sample_phases(writer, inputs, options, sizes, seeds), cluster, writer)
        del copies
        dims = {"vertex": inputs.graph.num_vertices} | inputs.vertices.widths
        found = {
            "weighted": inputs.graph.weighted,
            "num_classes": inputs.vertices.num_classes,
            "num_targets": inputs.vertices.num_targets,
            "num_batches": [-(-count // options.batch_size) for count in seeds],
            "segment_batches": sizes.segment_batches,
            "has_negative_feature": any(each["has_negative_feature"] for each in facts),
        }
        return Samples(writer.commit(names, dims, found))


def samples_key(inputs: Mapping[str, str], options: SampleOptions) -> str:
    """Compute the key of the artifact that :func:`write_samples` makes or finds.

    Args:
        inputs: kind to key of the graph, the vertices and, for several ranks, the partition.
    """
    return artifact_key("samples", options.parameters, inputs)


def checked_inputs(dataset: Dataset, graph: Graph, partition: Partition | None, options: SampleOptions) -> SampleInputs:
    """What these options sample from.

    Raises:
        InputError: the features, the labels or the split are missing, or the partition does not fit.
    """
    if partition is None and options.ranks > 1:
        raise InputError(f"samples for {options.ranks} ranks need a partition of as many parts")
    if partition is not None and partition.num_parts != options.ranks:
        raise InputError(f"{partition.artifact.path}: {partition.num_parts} parts, but {options.ranks} ranks")
    return find_inputs(dataset, graph, partition if options.ranks > 1 else None)
