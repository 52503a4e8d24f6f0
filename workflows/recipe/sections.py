"""The sections of a recipe as dataclasses, except those of `sources.py` and those that stages define as options."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.shards.grid.grid_options import GridOptions
from gnnloom.pipeline.shards.rows.row_options import REORDERS
from gnnloom.pipeline.tasks.cluster import ClusterOptions
from gnnloom.storage.catalog import check_name
from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.interop.tables import check_file
from gnnloom.workflows.parsing import parse_bytes

#: Least bytes per core in a batch script. Less would be written as 0M, which asks Slurm for all memory of a node.
_LEAST_MEMORY = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CatalogSection:
    """``[catalog]``: where the datasets are.

    Attributes:
        path: folder of the datasets; the command's ``--catalog`` by default.
    """

    path: str | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetSection:
    """``[dataset]``: name of the dataset, and how edges become its graph (see :class:`IngestOptions`).

    Attributes:
        name: name of the dataset: lower-case letters, digits, dots, dashes and underscores.
    """

    name: str
    undirected: bool = False
    self_loops: str = IngestOptions.self_loops
    ids: str = IngestOptions.ids
    merge: str = IngestOptions.merge
    codec: str = IngestOptions.codec

    def __post_init__(self) -> None:
        check_name(self.name)
        # Building the options checks them.
        self.options()

    def options(self) -> IngestOptions:
        return IngestOptions(self.undirected, self.self_loops, self.ids, self.merge, self.codec)


@dataclass(frozen=True, kw_only=True)
class ShardsSection:
    """``[shards]``: what each rank reads.

    Attributes:
        layout: ``row`` shards of the partition, or ``grid`` shards; by default what the algorithm reads.
        reorder: order of the rows of row shards: by vertex id, or by degree, largest first.
    """

    layout: str | None = None
    grid: tuple[int, int] = GridOptions.grid
    permutation: str = GridOptions.permutation
    seed: int = GridOptions.seed
    reorder: str = "none"

    def __post_init__(self) -> None:
        if self.layout not in {None, "row", "grid"}:
            raise InputError(f"layout {self.layout!r}: expected 'row' or 'grid'")
        if self.reorder not in REORDERS:
            raise InputError(f"reorder {self.reorder!r}: expected one of {', '.join(REORDERS)}")
        # Building the options checks them.
        self.options()

    def options(self) -> GridOptions:
        return GridOptions(self.grid, self.permutation, self.seed)


@dataclass(frozen=True, kw_only=True)
class SamplesSection:
    """``[samples]``: batches of mode ``neighbor``, drawn ahead of training. ``[train]`` defines the batches.

    Attributes:
        epochs: epochs to draw, which a longer training reads again; 0 draws batches during training instead.
        cache_memory: memory of each training rank for the features of frequent vertices, such as ``256M``.
    """

    epochs: int = 0
    cache_memory: str = "256M"

    def __post_init__(self) -> None:
        if self.epochs < 0:
            raise InputError(f"epochs {self.epochs}: expected 0 or more")
        if not self.epochs and self.cache_memory != SamplesSection.cache_memory:
            raise InputError("cache_memory: has no effect without epochs; remove the key, or set [samples] epochs")
        _parse_memory(self.cache_memory)

    def options(self, train: TrainConfig) -> SampleOptions:
        """Return the options of the stage for a training.

        Raises:
            InputError: the training draws no neighbors, names other samples, or leaves its fan-outs open.
        """
        if train.mode != SampleOptions.mode:
            raise InputError(
                f'epochs: mode {train.mode} reads no samples; remove the key, or set [train] mode = "neighbor"'
            )
        if train.samples is not None:
            raise InputError("epochs: [train] samples names samples already; remove one of the two keys")
        if len(train.fanout) != len(train.hidden) + 1:
            raise InputError(f"epochs: samples need one [train] fanout for each of the {len(train.hidden) + 1} layers")
        return SampleOptions(
            fanout=train.fanout,
            batch_size=train.batch_size,
            epochs=self.epochs,
            ranks=train.ranks,
            seed=train.seed,
            replace=train.replace,
            cache_memory=_parse_memory(self.cache_memory),
        )


@dataclass(frozen=True, kw_only=True)
class PredictSection:
    """``[predict]``: predict the class of every vertex after training.

    Attributes:
        out: file to export the classes to, if any.
        embeddings: also store the output of the last hidden layer.
    """

    out: str | None = None
    embeddings: bool = False

    def __post_init__(self) -> None:
        try:
            check_file(Path(self.out) if self.out else None)
        except InputError as error:
            # The document finds the line of a key by the name at the beginning of the message.
            raise InputError(f"out: {error}") from error


@dataclass(frozen=True, kw_only=True)
class ClusterSection:
    """``[cluster]``: where the stages before training run, unless options of the command override it.

    Attributes:
        workers: local worker processes; one per core by default, 0 for none.
        memory: memory for the tasks of one worker, such as ``1G``.
        interface: network interface between the machines of an MPI job, such as ``ib0``; by default the fastest one
            that reaches the first rank from all others.
        dashboard: serve Dask's dashboard.
        scratch: folder for temporary files, which all workers must share; by default the dataset's own. Environment
            variables, such as ``$TMPDIR``, are replaced where the command runs.
    """

    workers: int | None = None
    memory: str = "1G"
    interface: str | None = None
    dashboard: bool = False
    scratch: str | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 0:
            raise InputError(f"workers {self.workers}: expected 0 or more")
        self.options("local")

    @property
    def task_memory(self) -> int:
        """Memory for the tasks of one worker, in bytes."""
        return _parse_memory(self.memory)

    def scratch_folder(self) -> Path | None:
        """Return the folder for temporary files on this machine; None if they go into the dataset.

        Raises:
            InputError: an environment variable in its name is not set here.
        """
        if self.scratch is None:
            return None
        path = os.path.expandvars(self.scratch)
        if "$" in path:
            raise InputError(f"[cluster] scratch = {self.scratch}: this environment variable is not set here")
        return Path(path).expanduser()

    def options(self, where: str) -> ClusterOptions:
        """Return the cluster to open for ``where``: ``local``, ``mpi``, a scheduler's address, or a scheduler file.

        Raises:
            InputError: ``memory`` is not a size, or ``where`` is none of these.
        """
        memory = self.task_memory
        if where in {"local", "mpi"}:
            return ClusterOptions(where, self.workers, memory)
        if "://" in where:
            return ClusterOptions("address", None, memory, where)
        if not Path(where).is_file():
            raise InputError(f"--cluster {where}: expected local, mpi, an address such as tcp://host:8786, or a file")
        return ClusterOptions("scheduler-file", None, memory, where)


@dataclass(frozen=True, kw_only=True)
class SlurmSection:
    """``[slurm]``: sizes of the batch jobs that ``--emit slurm`` writes, and what they need at this site.

    Attributes:
        ranks_per_node: ranks (Slurm's tasks) on each node.
        prepare_ranks: ranks of the job that only prepares; as many as train by default.
        cpus_per_rank: cores of each rank.
        memory: memory of one rank.
        time: time limit of a job that trains.
        prepare_time: time limit of the job that only prepares.
        partition: Slurm partition of the jobs; the cluster's default if not given.
        account: account that the jobs are charged to.
        qos: quality of service.
        constraint: features that the nodes must have.
        exclusive: do not share nodes with other jobs.
        mail: address for Slurm's messages.
        mail_events: events that Slurm sends a message about.
        extra: further options of ``sbatch``, such as ``["--gres=tmpdisk:200G"]``.
        setup: lines of shell that each job runs first, such as ``["module load mpich", "source ~/venv/bin/activate"]``.
        requeues: how many times a job goes back to the queue after it was stopped.
        seeds: tasks of the job array, which differ in their seed.
        mpi: value of ``srun --mpi=``.
    """

    ranks_per_node: int = 16
    prepare_ranks: int | None = None
    cpus_per_rank: int = 2
    memory: str = "8G"
    time: str = "04:00:00"
    prepare_time: str = "04:00:00"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclusive: bool = False
    mail: str | None = None
    mail_events: str = "END,FAIL,REQUEUE"
    extra: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    requeues: int = 100
    seeds: int = 5
    mpi: str = "pmi2"

    def __post_init__(self) -> None:
        for name in ("ranks_per_node", "prepare_ranks", "cpus_per_rank", "seeds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} {value}: expected at least 1")
        if self.requeues < 0:
            raise InputError(f"requeues {self.requeues}: expected at least 0")
        for option in self.extra:
            if not option.startswith("-") or "\n" in option:
                raise InputError(f"extra {option!r}: expected an option of sbatch, such as '--gres=tmpdisk:200G'")
        if self.memory_per_cpu < _LEAST_MEMORY:
            raise InputError(f"memory {self.memory}: expected at least 1M for each of {self.cpus_per_rank} cores")

    @property
    def rank_memory(self) -> int:
        """Memory of each rank, in bytes."""
        return _parse_memory(self.memory)

    @property
    def memory_per_cpu(self) -> int:
        """Memory of each core, in bytes."""
        return self.rank_memory // self.cpus_per_rank


def _parse_memory(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise InputError(f"memory: {error}") from error
