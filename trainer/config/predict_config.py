"""The configuration of a prediction with a trained run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import part
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.fields import Config, option
from gnnloom.trainer.config.smoothing_config import SmoothingConfig
from gnnloom.trainer.config.train_config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class PredictConfig(Config):
    """The run that predicts, its ranks (any number for which there are shards), and how predictions are smoothed."""

    smoothing: SmoothingConfig = part(SmoothingConfig)
    catalog: str = option(text="Directory of the catalog")
    dataset: str = option(text="Name of the dataset")
    run: str = option(text="Run whose checkpoint predicts")
    model: str | None = option(
        None,
        "Model of the run as package.module:Class; required if it is your own class or a class of PyG, because gnnloom"
        " imports code that a stored run names only if the command names it too",
        importable=True,
        metavar="MODEL",
    )
    decoder: str | None = option(
        None, "Decoder of the run; required if it is your own class", importable=True, metavar="DECODER"
    )
    ranks: int = option(1, "Number of MPI ranks (and of row shards)", least=1)
    shards: str | None = option(None, "Key of the shards, if the dataset has several")
    method: str | None = option(None, "Partitioner whose shards to use, if the dataset has several")
    grid: tuple[int, ...] | None = option(
        None, "Process grid; the most even one by default", kind=tuple[int, ...], separator="x"
    )
    embeddings: bool = option(False, "Keep the last hidden layer too")
    epoch: int | None = option(None, "Epoch of the checkpoint; the last one by default", kind=int)
    checkpoint: str = option(
        "auto",
        "Checkpoint: the best one, the last one, or the best one if there is one",
        choices=("auto", "best", "last"),
    )
    wait_timeout: float = option(
        600.0, "Seconds that a rank waits for other ranks before it reports them and ends; 0: forever", least=0
    )
    evaluation_memory: int = option(
        0,
        "Memory of each rank, such as 2G, above which a prediction runs from disk; 0: more than half of the free"
        " memory of the machine",
        least=0,
        is_size=True,
    )
    threads: int = option(0, "Threads per rank; 0: an equal share of the machine's cores", least=0)
    top: int = option(0, "Targets to find for each vertex, of a run on pairs; 0 for none", least=0)
    targets: str | None = option(
        None, "Folder that the first rank reads vertices from and writes their targets to, needed by top"
    )

    def trained(self, run: Run) -> TrainConfig:
        """The configuration with which the run was made; its code is imported only if this configuration also names it.

        Raises:
            InputError: as :meth:`TrainConfig.of_run`.
        """
        return TrainConfig.of_run(run, model=self.model, decoder=self.decoder)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.top) != (self.targets is not None):
            raise InputError("top and targets: give both or none")

    @classmethod
    def of_run(
        cls, dataset: Dataset, run: Run, *, model: str | None = None, decoder: str | None = None, **options: Any
    ) -> PredictConfig:
        """Predict with a run of a dataset, which may have been moved or renamed after training.

        Args:
            model, decoder: as in training; given to confirm the import of code that is not gnnloom's.
            options: as for :meth:`of_training`.
        """
        trained = TrainConfig.of_run(run, model=model, decoder=decoder)
        here = trained.with_options(catalog=str(dataset.path.parent), dataset=dataset.name, run=run.name)
        return cls.of_training(here, shards=run.inputs().get("shards"), **options)

    @classmethod
    def of_training(
        cls, trained: TrainConfig, *, shards: str | None, ranks: int | None = None, **options: Any
    ) -> PredictConfig:
        """Predict with the run that a configuration names.

        Args:
            shards: key of the shards that the run was trained on, if known.
            ranks: number of ranks; by default as in training.
            options: other options by name. If one is missing or None, ``wait_timeout`` and ``evaluation_memory`` are as
                in training, and others have their default.
        """
        # Row shards and a given process grid fit one number of ranks, so they are kept only if that number is the same.
        algorithm, data = trained.algorithm, trained.data
        ranks = algorithm.ranks if ranks is None else ranks
        same, code = ranks == algorithm.ranks, trained.own_code()
        kept = {"wait_timeout": trained.run.wait_timeout, "evaluation_memory": trained.run.evaluation_memory}
        return cls.of(
            catalog=data.catalog,
            dataset=data.dataset,
            run=trained.run_name,
            model=code.get("model"),
            decoder=code.get("decoder"),
            ranks=ranks,
            shards=shards if same or trained.reads.serves_any_ranks else None,
            method=data.method,
            grid=algorithm.grid if same else None,
            **kept | {name: value for name, value in options.items() if value is not None},
        )
