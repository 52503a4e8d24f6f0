"""The sections of a recipe as dataclasses, except the sections of `sources.py` and options that stages define."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.samples.options import OF_TYPES, SampleOptions
from gnnloom.pipeline.shards.shard_options import REORDER, GridOptions
from gnnloom.storage.catalog import check_name
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import check_options, option, option_field, options_of, parse_memory, part
from gnnloom.storage.sampling.layers.options import NEIGHBOR_OPTIONS
from gnnloom.trainer.config.fields import Config
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.config.propagation_plan import propagation_of
from gnnloom.trainer.config.smoothing_config import SmoothingConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import FEATURES
from gnnloom.trainer.modes.registry import MODES
from gnnloom.workflows.interop.scored_pairs import PairRequest
from gnnloom.workflows.interop.tables import check_file
from gnnloom.workflows.interop.transfer import Elsewhere

#: Minimum bytes per core in a batch script. Less would be written as 0M, which asks Slurm for all memory of a node.
_LEAST_MEMORY = 1 << 20
_INGEST, _GRID, _PROPAGATE = options_of(IngestOptions), options_of(GridOptions), options_of(PropagateConfig)
_PAIRS = options_of(PairRequest)


@dataclass(frozen=True, kw_only=True)
class CatalogSection:
    """``[catalog]``: place of the datasets."""

    path: str | None = option(None, "Folder of the datasets; the command's `--catalog` by default.")


@dataclass(frozen=True, kw_only=True)
class DatasetSection:
    """``[dataset]``: name of the dataset, and how edges become its graph (see :class:`IngestOptions`)."""

    name: str = option(text="Name of the dataset: lower-case letters, digits, dots, dashes and underscores.")
    undirected: bool = option_field(_INGEST["undirected"])
    self_loops: str = option_field(_INGEST["self_loops"])
    ids: str = option_field(_INGEST["ids"])
    merge: str | None = option_field(_INGEST["merge"])
    codec: str = option_field(_INGEST["codec"])
    unknown: str = option_field(options_of(TypedOptions)["unknown"])

    def __post_init__(self) -> None:
        check_name(self.name)
        check_options(self)

    def options(self) -> IngestOptions:
        return IngestOptions(self.undirected, self.self_loops, self.ids, self.merge, self.codec)

    def typed_options(self) -> TypedOptions:
        """The options that only graphs with types have."""
        return TypedOptions(self.unknown)


@dataclass(frozen=True, kw_only=True)
class ShardsSection:
    """``[shards]``: the files that training ranks read."""

    layout: str | None = option(
        None,
        "`row` shards of the partition, or `grid` shards; by default the kind that the algorithm reads.",
        choices=("row", "grid"),
    )
    grid: tuple[int, int] = option_field(_GRID["grid"])
    permutation: str = option_field(_GRID["permutation"])
    seed: int = option_field(_GRID["seed"])
    reorder: str = option_field(REORDER)

    def __post_init__(self) -> None:
        check_options(self)
        # Building the options checks the grid.
        self.options()

    def options(self) -> GridOptions:
        return GridOptions(self.grid, self.permutation, self.seed)


@dataclass(frozen=True, kw_only=True)
class SamplesSection:
    """``[samples]``: batches of mode ``neighbor``, drawn ahead of training. ``[train]`` defines the batches."""

    epochs: int = option(
        0, "Number of epochs to draw; longer runs reuse them. 0 draws batches during training instead.", least=0
    )
    cache_memory: str = option(
        "256M", "Memory of each training rank for the features of frequent vertices, such as `256M`."
    )

    def __post_init__(self) -> None:
        check_options(self)
        if not self.epochs and self.cache_memory != SamplesSection.cache_memory:
            raise InputError("cache_memory: has no effect without epochs; remove the key, or set [samples] epochs")
        parse_memory(self.cache_memory)

    def options(self, train: TrainConfig) -> SampleOptions:
        """Return the options of the stage for a training run.

        Raises:
            InputError: the training run draws no neighbors, trains on pairs, names other samples, or lacks fan-outs.
        """
        if train.mode.name != SampleOptions.mode:
            raise InputError(
                f'epochs: mode {train.mode.name} reads no samples; remove the key, or set [train] mode = "neighbor"'
            )
        if train.mode.samples is not None:
            raise InputError("epochs: [train] samples names samples already; remove one of the two keys")
        if train.task.on_pairs:
            raise InputError(
                f"epochs: samples have vertices, and task {train.task.name} trains on pairs; remove the key"
            )
        num_layers, num_hops = len(train.model.hidden) + 1, len(train.mode.fanout)
        # The layers of a model that takes edges read one graph, which may have more hops.
        if num_hops != num_layers and not (train.mode.on_types and num_hops > num_layers):
            raise InputError(f"epochs: samples need one [train] fanout for each of the {num_layers} layers")
        given = {name: train.value(name) for name in NEIGHBOR_OPTIONS if name != "cache_memory"}
        if train.mode.on_types:
            given |= {name: train.value(name) for name in OF_TYPES} | {"draw_once": False}
        return SampleOptions(
            **given,
            epochs=self.epochs,
            ranks=train.algorithm.ranks,
            seed=train.run.seed,
            cache_memory=parse_memory(self.cache_memory),
        )


@dataclass(frozen=True, kw_only=True)
class PropagateSection:
    """``[propagate]``: products of the adjacency with the features, before training (see :class:`PropagateConfig`)."""

    steps: int = option(
        0, "Number of products: A X to A^K X; 0 propagates nothing.", least=0, most=_PROPAGATE["steps"].most
    )
    of: str = option_field(_PROPAGATE["of"])
    normalization: str = option_field(_PROPAGATE["normalization"])
    ppr: float | None = option_field(_PROPAGATE["ppr"])
    memory: str | None = option(
        None,
        "Memory limit per rank, such as `3G`; a rank with more memory multiplies more columns at once; by default most"
        " of the free memory.",
    )
    adjacency: str = option_field(_PROPAGATE["adjacency"])
    threads: int = option_field(_PROPAGATE["threads"])
    wait_timeout: float = option_field(_PROPAGATE["wait_timeout"])

    def __post_init__(self) -> None:
        check_options(self)
        if self.steps:
            # Building the options checks them.
            self.options("", "", 1)
            return
        for name, given in options_of(type(self)).items():
            if getattr(self, name) != given.default:
                raise InputError(f"{name}: has no effect without steps; remove the key, or set [propagate] steps")

    def options(self, catalog: str, dataset: str, ranks: int, **given: str | None) -> PropagateConfig:
        """Return the options of the stage.

        Args:
            catalog: folder of the dataset.
            ranks: number of row shards.
            given: further fields.

        Raises:
            InputError: a value is not allowed.
        """
        own = {name: getattr(self, name) for name in _PROPAGATE if name in type(self).__dataclass_fields__}
        settled = {"catalog": catalog, "dataset": dataset, "ranks": ranks, **given}
        return PropagateConfig.of(**{**own, "memory": self.memory and parse_memory(self.memory), **settled})

    def check_training(self, train: TrainConfig) -> None:
        """Check that a training run reads the propagated values.

        Raises:
            InputError: the training run does not read them.
        """
        if not train.mode.kind.reads_rows:
            raise InputError(
                f"steps: mode {train.mode.name} reads no propagated values; remove the key, or set [train] mode ="
                f" {' or '.join(repr(name) for name, kind in MODES.items() if kind.reads_rows)}"
            )
        if train.mode.propagated is not None:
            raise InputError("steps: [train] propagated names values already; remove one of the two keys")
        if self.of != "feature":
            raise InputError(f"of: training reads propagated features, not of = {self.of!r}")
        stored = propagation_of(self.options("", "", 1)).stored
        missing = sorted(set(train.mode.steps) - {FEATURES, *stored})
        if missing or (train.mode.steps and not any(train.mode.steps)):
            shown = ", ".join(map(str, stored))
            raise InputError(
                f"steps: [train] steps = {list(train.mode.steps)}, but the section stores {shown}; {FEATURES} are the"
                " features alone"
            )


@dataclass(frozen=True, kw_only=True)
class PredictSection(Config):
    """``[predict]``: predict the class of every vertex after training, and smooth the classes if requested.

    After training on pairs, score some pairs, or find the best targets of vertices.
    """

    smoothing: SmoothingConfig = part(SmoothingConfig)
    out: str | None = option(None, "File to export the classes to, or the scores of pairs, if any.")
    pairs: str | None = option_field(_PAIRS["pairs"])
    header: bool | None = option_field(_PAIRS["header"])
    top: int | None = option_field(_PAIRS["top"])
    top_of: str | None = option_field(replace(_PAIRS["of"], name="top_of"))
    embeddings: bool = option(False, "Also store the output of the last hidden layer.")
    elsewhere: Elsewhere = part(Elsewhere)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            check_file(Path(self.out) if self.out else None)
        except InputError as error:
            # The document finds the line of a key by the name at the beginning of the message.
            raise InputError(f"out: {error}") from error
        for name in ("pairs", "top"):
            if getattr(self, name) is not None and self.out is None:
                raise InputError(f"{name}: the scores need a file; name it with out")
        if self.pairs is not None and self.top is not None:
            raise InputError("top: choose either pairs or top")
        if self.header is not None and self.pairs is None:
            raise InputError("header: applies only to a file of pairs; give pairs as well")
        if self.top_of is not None and self.top is None:
            raise InputError("top_of: also give top, the number of targets per vertex")

    @property
    def wanted(self) -> PairRequest:
        """The pairs to score, or the targets to find; falsy if there are none."""
        pairs, of = (None if each is None else Path(each) for each in (self.pairs, self.top_of))
        return PairRequest(pairs, self.top, of, self.header)


@dataclass(frozen=True, kw_only=True)
class ClusterSection:
    """``[cluster]``: where the stages before training run, unless options of the command override it."""

    workers: int | None = option(
        None, "Local worker processes; one per core by default, 0 for none.", kind=int, least=0
    )
    memory: str = option("1G", "Memory for the tasks of one worker, such as `1G`.")
    interface: str | None = option(
        None,
        "Network interface between the machines of an MPI job, such as `ib0`; by default the fastest one that reaches"
        " the first rank from all others.",
    )
    dashboard: bool = option(False, "Serve Dask's dashboard.")
    scratch: str | None = option(
        None,
        "Folder for temporary files, which all workers must share; by default the dataset's own. Environment variables,"
        " such as `$TMPDIR`, are replaced where the command runs.",
    )

    def __post_init__(self) -> None:
        check_options(self)
        parse_memory(self.memory)

    @property
    def task_memory(self) -> int:
        """Memory for the tasks of one worker, in bytes."""
        return parse_memory(self.memory)

    def options(self, where: str, performance_report: Path | None = None) -> ClusterOptions:
        """Return the cluster to open on this machine.

        Args:
            where: ``local``, ``mpi``, a scheduler's address, or a scheduler file.
            performance_report: HTML file for Dask's report, if one is wanted.

        Raises:
            InputError: ``where`` is not a cluster, or an environment variable in ``scratch`` is not set here.
        """
        scratch = None if self.scratch is None else os.path.expandvars(self.scratch)
        if scratch is not None and "$" in scratch:
            raise InputError(f"[cluster] scratch = {self.scratch}: this environment variable is not set here")
        kind = where if where in {"local", "mpi"} else "address" if "://" in where else "scheduler-file"
        if kind == "scheduler-file" and not Path(where).is_file():
            raise InputError(f"--cluster {where}: expected local, mpi, an address such as tcp://host:8786, or a file")
        starts = kind == where
        return ClusterOptions(
            kind,
            self.workers if starts else None,
            self.task_memory,
            None if starts else where,
            performance_report,
            None if scratch is None else user_path(scratch),
        )


@dataclass(frozen=True, kw_only=True)
class SlurmSection:
    """``[slurm]``: sizes of the batch jobs that ``--emit slurm`` writes, and what they need at this site."""

    ranks_per_node: int = option(16, "Ranks (Slurm's tasks) on each node.", least=1)
    prepare_ranks: int | None = option(
        None, "Ranks of the job that only prepares; by default the number of ranks that train.", kind=int, least=1
    )
    cpus_per_rank: int = option(2, "Cores of each rank.", least=1)
    memory: str = option("8G", "Memory of one rank.")
    time: str = option("04:00:00", "Time limit of a job that trains.")
    prepare_time: str = option("04:00:00", "Time limit of the job that only prepares.")
    partition: str | None = option(None, "Slurm partition of the jobs; the cluster's default if not given.")
    account: str | None = option(None, "Account that the jobs are charged to.")
    qos: str | None = option(None, "Quality of service.")
    constraint: str | None = option(None, "Features that the nodes must have.")
    exclusive: bool = option(False, "Do not share nodes with other jobs.")
    mail: str | None = option(None, "Address for Slurm's messages.")
    mail_events: str = option("END,FAIL,REQUEUE", "Events that Slurm sends a message about.")
    extra: tuple[str, ...] = option(
        (), 'Further options of `sbatch`, such as `["--gres=tmpdisk:200G"]`.', kind=tuple[str, ...]
    )
    setup: tuple[str, ...] = option(
        (),
        'Lines of shell that each job runs first, such as `["module load mpich", "source ~/venv/bin/activate"]`.',
        kind=tuple[str, ...],
    )
    requeues: int = option(100, "How many times a job goes back to the queue after it was stopped.", least=0)
    seeds: int = option(5, "Tasks of the job array, which differ in their seed.", least=1)
    mpi: str = option("pmi2", "Value of `srun --mpi=`.")

    def __post_init__(self) -> None:
        check_options(self)
        for given in self.extra:
            if not given.startswith("-") or "\n" in given:
                raise InputError(f"extra {given!r}: expected an option of sbatch, such as '--gres=tmpdisk:200G'")
        if self.memory_per_cpu < _LEAST_MEMORY:
            raise InputError(f"memory {self.memory}: expected at least 1M for each of {self.cpus_per_rank} cores")

    @property
    def rank_memory(self) -> int:
        """Memory of each rank, in bytes."""
        return parse_memory(self.memory)

    @property
    def memory_per_cpu(self) -> int:
        """Memory of each core, in bytes."""
        return self.rank_memory // self.cpus_per_rank
