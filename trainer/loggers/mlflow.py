"""MLflow: a run on the tracking server that ``MLFLOW_TRACKING_URI`` names, by default files in the current folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gnnloom.storage.runs.run import MLFLOW_ID
from gnnloom.trainer.loggers.logger import LogContext, Logger

#: States of a run, and MLflow's names for them.
_STATES = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class _MlflowLog:
    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self._run_id = client, run_id

    def write(self, epoch: int, figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric  # noqa: PLC0415 - optional

        now = int(time.time() * 1000)
        # One request for all figures, because the server may be far away.
        self._client.log_batch(self._run_id, metrics=[Metric(name, each, now, epoch) for name, each in figures.items()])

    def close(self, state: str) -> None:
        self._client.set_terminated(self._run_id, _STATES[state])


def _open(context: LogContext) -> _MlflowLog:
    from mlflow import MlflowClient  # noqa: PLC0415 - optional
    from mlflow.entities import Param  # noqa: PLC0415 - optional

    # The file lets a resumed run continue its log.
    client, identifier = MlflowClient(), context.folder / MLFLOW_ID
    if context.first_epoch and identifier.exists():
        run_id = identifier.read_text(encoding="utf-8").strip()
        client.update_run(run_id, status="RUNNING")
        return _MlflowLog(client, run_id)
    # The experiment is the dataset, so that its runs are compared with each other.
    known = client.get_experiment_by_name(context.dataset)
    experiment = known.experiment_id if known is not None else client.create_experiment(context.dataset)
    run_id = client.create_run(experiment, run_name=context.run).info.run_id
    client.log_batch(run_id, params=[Param(name, str(value)) for name, value in context.config.items()])
    identifier.write_text(f"{run_id}\n", encoding="utf-8")
    return _MlflowLog(client, run_id)


LOGGER = Logger(
    name="mlflow",
    order=2,
    help="a run of the tracking server that MLFLOW_TRACKING_URI names",
    open=_open,
    package="mlflow",
    install="gnnloom[mlflow]",
)
