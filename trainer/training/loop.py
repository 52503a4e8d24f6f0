"""The loop over the epochs of a training run on every rank, with metrics, checkpoints and result, for all modes."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.meters import ProgressMeter, bytes_from_device
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.figures import shown_epoch
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import CollectiveError, together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind, TrafficCounts
from gnnloom.trainer.config.continuation import OpenedRun, find_start
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.stored_predictions import drop_superseded
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.modes.epochs.mode import Mode
from gnnloom.trainer.place.global_generator import Draws
from gnnloom.trainer.tasks.objectives.vertex_objective import VertexObjective
from gnnloom.trainer.tasks.task import Figure
from gnnloom.trainer.training.alike import alike_data
from gnnloom.trainer.training.course import Course
from gnnloom.trainer.training.evaluation import Evaluation
from gnnloom.trainer.training.predict import find_predictions, write_predictions
from gnnloom.trainer.training.record import EXPOSED, RunLog, describe_result, gather_costs, gather_profile, recorded
from gnnloom.trainer.training.run_lock import writing
from gnnloom.trainer.training.start import Begun, ReadStart, begin_run, check_fits, class_weights
from gnnloom.trainer.training.state.buffers import average_buffers
from gnnloom.trainer.training.state.checkpoint import restore
from gnnloom.trainer.training.state.checkpoint_writer import CheckpointWriter, Destination
from gnnloom.trainer.training.state.model_checks import agree_on_model, check_epoch
from gnnloom.trainer.training.state.optimizer import build_optimizer, clip_gradients, sum_gradients, trained_parameters

logger = logging.getLogger(__name__)

#: Figures that a log line shows for a task on pairs, which has many figures.
_LOGGED = 2
#: Longest time between two checkpoints, in seconds of the slowest rank, unless the configuration counts epochs.
CHECKPOINT_SECONDS = 600.0


@dataclass(frozen=True)
class EpochReport:
    """Loss and cost of one epoch, the same on every rank.

    Attributes:
        seconds: time of the slowest rank.
        exposed: seconds in which a rank only waited for messages: of the rank that waited longest, and the mean over
            all ranks.
        bytes, messages: bytes and messages sent by all ranks, by kind.
        stopped: at least one rank was asked to stop.
        profile: time profile of every rank, if requested; see :func:`gnnloom.trainer.training.record.gather_profile`.
        figures: learning rate and gradient norm at the last step, if they vary.
    """

    loss: float
    seconds: float
    exposed: tuple[float, float]
    bytes: dict[str, int]
    messages: dict[str, int]
    stopped: bool
    profile: list[dict[str, Any]]
    figures: dict[str, float]


def train(
    comm: Communicator,
    config: TrainConfig,
    stop: Callable[[], bool] = lambda: False,
    *,
    restart: bool = False,
    begun: Callable[[Begun], None] | None = None,
) -> dict[str, Any]:
    """Train as configured, continuing from the run's last checkpoint if there is one. Collective.

    Args:
        stop: called once per epoch on every rank; if it returns True on any rank, all write a checkpoint and return.
        restart: start the run over; its existing files are dropped before the first epoch.
        begun: called on rank 0 when the run's folder exists, before the first epoch, with the memory that training will
            take; given on all ranks or on none. Without it, the memory is not checked.

    Returns:
        The run's result, the same on every rank; ``state`` is ``finished`` or ``stopped``. For a finished run, this is
        the stored result.

    Raises:
        CollectiveError: the configuration does not fit the dataset or the run, another process writes the run, or the
            loss is not finite.
    """

    def find() -> tuple[Dataset, Run]:
        dataset = Catalog(config.data.catalog).dataset(config.data.dataset)
        return dataset, Run(dataset.run_path(config.run_name))

    with writing(comm, find, config.run.wait_timeout) as (dataset, run):
        opened = together(comm, lambda: OpenedRun.open(config, dataset, run, comm.rank, comm.size, goes_on=not restart))
        # Checked before the shards are read, so that a finished run costs nothing.
        start = together(
            comm,
            lambda: find_start(run, config, opened.inputs, restart=restart),
            lambda start: alike_data(
                opened.inputs, {"epoch of the last checkpoint": start.first_epoch, "finished": start.is_finished}
            ),
        )
        if start.is_finished:
            return run.result()
        num_threads = config.algorithm.threads or comm.this_machine().threads
        memory = None if begun is None else check_fits(comm, opened)
        # Not bound to a name here, so that the checkpoint and the labels are freed once the training run drops them.
        training = Training(comm, together(comm, lambda: ReadStart.read(comm, opened, num_threads, start.first_epoch)))
        # The former state of the run is dropped only here, after all ranks have read and checked everything: an error
        # above leaves it unchanged. The barrier keeps the other ranks from writing before that.
        if comm.rank == 0:
            begin_run(opened, training.lines, num_threads, keeps_best=training.course.best is not None)
            if begun is not None:
                begun(Begun(opened, training.loss.num_examples, memory))
        comm.barrier()
        with closing(training), recorded(run, config, start.first_epoch, comm.rank) as training.log:
            try:
                stopped = training.run_epochs(stop)
            except CollectiveError:
                # All ranks leave together, so the checkpoint before this error can still be finished.
                training.writer.finish()
                raise
            return training.finish(stopped)


class Training:
    """The state of a training on one rank."""

    def __init__(self, comm: Communicator, start: ReadStart) -> None:
        """Build everything that the loop needs. Collective.

        Raises:
            CollectiveError: there is no training vertex, or the checkpoint does not fit or differs between ranks.
        """
        self.comm = comm
        self.session, self.run = start.session, start.session.opened.run
        self.config = self.session.config
        self.model = self.session.model
        comm.traffic.profiled = self.config.run.profile
        self.session.operator.agree()
        agree_on_model(comm, self.model, self.config.model.name)
        self.inputs = self.session.take_inputs()
        self.optimizer = together(
            comm, lambda: build_optimizer(self.model, self.config.model.name, self.config.optimization)
        )
        self.trained = trained_parameters(self.model)
        layout = self.session.operator.layout(self.model.num_layers)
        labels = self.session.objective.placed(start.labels, self.session.operator)
        if isinstance(objective := self.session.objective, VertexObjective):
            weights = class_weights(self.config.task, objective, layout, labels)
            objective = replace(objective, class_weights=weights, own_loss=start.own_loss)
            self.session = replace(self.session, objective=objective)
        self.loss = self.session.objective.loss(layout, labels)
        self.evaluation = Evaluation(self.session, labels, start.own_metric)
        if self.loss.num_examples == 0 or self.loss.num_terms == 0:
            message = (
                f"{self.session.opened.shards.shards.artifact.path}: no vertex has a label and is in the training split"
            )
            raise CollectiveError(message, reports=comm.rank == 0, code=InputError.exit_code)
        self.first_epoch = 0 if start.checkpoint is None else start.checkpoint.epoch
        checkpoint = start.checkpoint
        if checkpoint is not None:
            together(comm, lambda: restore(checkpoint, self.model, self.optimizer))
        self.lines = start.lines
        self.last_traffic = TrafficCounts()
        self.unsaved_seconds = 0.0
        self.log = RunLog()
        self.figures = self.evaluation.figures
        stopping, optimization, evaluating = self.config.stopping, self.config.optimization, self.config.run
        self.course = together(comm, lambda: Course(stopping, optimization, evaluating, self.figures, start.best))
        self.evaluation.decide(self.course.decisive)
        for line in self.lines:
            self._follow(line)
        context = self.session.mode_context(self.inputs, labels, self.loss, self.first_epoch, self.evaluation.measured)
        self.mode: Mode = self.config.mode.kind.load()(context)
        # Predictions of an earlier checkpoint are removed as soon as the checkpoint that replaces it is durable.
        self.writer = CheckpointWriter(comm, self.run.sync_metrics, lambda: drop_superseded(self.run))

    def close(self) -> None:
        """End the threads of the mode and of the checkpoint writer; also after an error."""
        self.mode.close()
        self.writer.close()

    def run_epochs(self, stop: Callable[[], bool]) -> bool:
        """Train to the last epoch, or until a rank is asked to stop (then True). Collective."""
        count = self.config.optimization.epochs - self.first_epoch
        # The log has a line for each epoch.
        meter = ProgressMeter("epochs", count, logs_end=False) if self.comm.rank == 0 and count > 0 else None
        for epoch in range(self.first_epoch, self.config.optimization.epochs):
            # A resumed run may already have ended early.
            if self.course.ends:
                break
            self.writer.check()
            report = self._train_epoch(epoch, stop)
            if not math.isfinite(report.loss):
                # A damaged file is a better explanation.
                self._check_files()
            # Before anything of this epoch is written: a resumed run would start from the diverged model.
            self._check_finite(epoch, report.loss)
            done = epoch + 1
            line: dict[str, Any] = {"epoch": epoch, "loss": report.loss, "seconds": report.seconds}
            line |= dict(zip(EXPOSED, report.exposed, strict=True)) | report.figures
            last = self._measure(line, is_last=done == self.config.optimization.epochs)
            self._check_files()
            line |= {
                "bytes": report.bytes,
                "messages": report.messages,
                "threads": self.session.place.threads.num_threads,
            }
            # The line precedes the checkpoint. After a kill in between, the resumed run drops the line and repeats the
            # epoch; in the other order the line would be lost.
            self._write_line({**line, "profile": report.profile} if self.config.run.profile else line)
            if meter is not None:
                meter.advance()
            is_best = self.course.improves(line)
            is_due = self._checkpoint_is_due(done, report.seconds)
            self._save(done, is_best=is_best, is_due=is_due or last or report.stopped)
            if report.stopped and not last:
                return True
        return False

    def _measure(self, line: dict[str, Any], *, is_last: bool) -> bool:
        """Evaluate the epoch of a line if one is due; returns whether the epoch is the last one. Collective."""
        if (is_last and self.config.run.final_eval) or _is_due(line["epoch"] + 1, self.config.run.eval_every):
            line |= self.evaluation.measure(self.mode, line["epoch"] + 1, is_last=is_last)
        self._follow(line)
        if self.course.ends and self.config.run.final_eval and not self.figures.keys() <= line.keys():
            line |= self.evaluation.measure(self.mode, line["epoch"] + 1, is_last=True)
        return is_last or self.course.ends

    def _check_files(self) -> None:
        """Compare the temporary files that an epoch has read with their checksums. Collective.

        Raises:
            CollectiveError: one has changed.
        """
        config = self.config
        if (
            config.mode.maps_inputs
            or config.mode.reads_batches
            or config.mode.kind.reads_rows
            or self.model.takes_edges
        ):
            together(self.comm, self.session.place.files.check)

    def _follow(self, line: dict[str, Any]) -> None:
        """Let the line of an epoch take part in decisions, in the same way for a run of any length."""
        # A run also evaluates its last epoch, which a longer run need not do: this evaluation must not affect a run
        # that continues.
        is_due = _is_due(line["epoch"] + 1, self.config.run.eval_every)
        self.course.observe(line if is_due else {"epoch": line["epoch"], "loss": line["loss"]})

    def _train_epoch(self, epoch: int, stop: Callable[[], bool]) -> EpochReport:
        started, operator = time.perf_counter(), self.session.operator
        figures: dict[str, float] = {}

        def update() -> None:
            self.comm.traffic.watch.step = "sum of the gradients"
            sum_gradients(self.trained, operator)
            figures.update(self._limit_step(epoch))
            self.optimizer.step()

        self.comm.traffic.watch.epoch = epoch + 1
        read_before = self._bytes_read()
        with self.comm.traffic.recording() as counts:
            self.model.train()
            with self.session.drawing(Draws.TRAINING, epoch) as generator:
                contribution = self.mode.train_epoch(epoch, update)
                check_epoch(self.model, self.config.model.name, self.trained, generator)
            average_buffers(self.model, self.comm)
            # The request to stop is summed along with the loss, so all ranks stop after the same epoch.
            # float64 for any dtype of the model, so that the reported loss does not lose digits when it is summed over
            # ranks.
            totals = self.session.place.tensor([contribution, float(stop())], torch.float64)
            self.comm.all_reduce(totals, Kind.LOSS)
        seconds = time.perf_counter() - started
        return self._report(totals, seconds, counts, figures, self._bytes_read() - read_before)

    def _bytes_read(self) -> NDArray[np.float64]:
        """(3,) bytes that this rank has read through the store and from devices, and bytes that its batches used."""
        return np.array([self.session.opened.counter.bytes, bytes_from_device(), self.mode.bytes_used], np.float64)

    def _limit_step(self, epoch: int) -> dict[str, float]:
        """Set the learning rate and clip the gradients. Collective.

        Returns:
            The learning rate if it varies, and the gradient norm if it is limited.
        """
        figures = {}
        self.optimizer.lr = self.course.schedule.rate(epoch)
        if not self.course.schedule.is_constant:
            figures["lr"] = self.optimizer.lr
        if self.config.optimization.clip_norm:
            length = clip_gradients(self.trained, self.config.optimization.clip_norm, self.session.operator.grid)
            self._check_finite(epoch, length, "length of the gradient")
            figures["gradient_norm"] = length
        return figures

    def _report(
        self,
        totals: torch.Tensor,
        seconds: float,
        counts: TrafficCounts,
        figures: dict[str, float],
        read: NDArray[np.float64],
    ) -> EpochReport:
        sent = [float(count[kind]) for count in (counts.bytes, counts.messages) for kind in Kind]
        # Outside the epoch's record and time, so that the report does not measure itself.
        everyones = self.comm.gather_numbers([seconds, counts.exposed, float(totals[0]), *read, *sent])
        from_store, from_device, used = everyones[:, 3:6].sum(0).astype(int).tolist()
        on_disk = self.config.data.adjacency == "disk"
        if on_disk:
            figures["bytes_read"] = from_store
        if on_disk or self.config.mode.maps_inputs:
            figures["bytes_from_device"] = from_device
        if used:
            figures["bytes_used"] = used
        # The first rank's figures: sums over ranks may differ in their last bits, and all ranks must decide alike.
        loss = float(everyones[0, 2])
        sums = everyones[:, 6:].sum(0).reshape(2, len(Kind)).astype(int)
        num_bytes, messages = ({kind.value: int(n) for kind, n in zip(Kind, row, strict=True) if n} for row in sums)
        slowest = float(everyones[:, 0].max())
        exposed = float(everyones[:, 1].max()), float(everyones[:, 1].mean())
        self.last_traffic = counts
        profile = gather_profile(self.comm, counts, seconds) if self.config.run.profile else []
        return EpochReport(loss, slowest, exposed, num_bytes, messages, bool(totals[1] > 0), profile, figures)

    def _check_finite(self, epoch: int, value: float, what: str = "loss") -> None:
        if not math.isfinite(value):
            message = f"{self.run.path}: the {what} of epoch {epoch + 1} is {value}; lower the learning rate"
            raise CollectiveError(message, reports=self.comm.rank == 0, code=1)

    def _write_line(self, line: dict[str, Any]) -> None:
        """Keep the line of an epoch, and on rank 0 write it."""
        self.lines.append(line)
        if self.comm.rank == 0:
            self.run.append_metrics(line)
            self.log.write(line)
            if self.figures.keys() <= line.keys():
                figures = "  ".join(f"{name} {_shown(each, line[name])}" for name, each in self._logged(line).items())
                logger.info(
                    "epoch %d  loss %.5f  %s  %.3f s", shown_epoch(line), line["loss"], figures, line["seconds"]
                )

    def _logged(self, line: Mapping[str, Any]) -> Mapping[str, Figure]:
        """The metrics of a line that the log shows; few if they are many."""
        task = self.session.objective.task
        if not task.on_pairs:
            return self.figures
        measured = [figure for figure in task.figures if any(line[each] is not None for each in figure.names)]
        chosen = sorted(measured, key=lambda each: each is not task.judge)[:_LOGGED]
        return {name: each for each in chosen for name in each.names}

    def _checkpoint_is_due(self, done: int, seconds: float) -> bool:
        """Whether to write a checkpoint after an epoch that took ``seconds`` on the slowest rank."""
        if self.config.run.checkpoint_every:
            return _is_due(done, self.config.run.checkpoint_every)
        # The time of the slowest rank is the same number on all ranks, so they agree without another message.
        self.unsaved_seconds += seconds
        return self.unsaved_seconds >= CHECKPOINT_SECONDS

    def _save(self, epoch: int, *, is_best: bool, is_due: bool) -> None:
        """Begin to write the checkpoints of an epoch, from one copy of the state. Collective."""
        destinations = []
        if is_best:
            facts = self.course.best.facts if self.course.best else {}
            destinations.append(Destination(self.run.best_checkpoint, 1, facts))
        if is_due:
            self.unsaved_seconds = 0.0
            destinations.append(Destination(self.run.checkpoints, self.config.run.keep, {}))
        if destinations:
            self.comm.traffic.watch.step = "checkpoint"
            self.writer.save(epoch, self.model, self.optimizer, destinations)

    def _restore_best(self) -> None:
        """Take the parameters of the best checkpoint. Collective."""
        folder, share = self.run.best_checkpoint, (self.comm.rank, self.comm.size)
        best = together(self.comm, lambda: read_checkpoint(folder, share=share, counter=self.session.opened.counter))
        together(self.comm, lambda: restore(best, self.model))
        self.evaluation.details = None

    def finish(self, stopped: bool) -> dict[str, Any]:
        """Predict if requested, gather the result and write it. Collective.

        Everything in the result about the model is about one checkpoint: the best one, or else the last one.
        """
        self.writer.finish()
        self.comm.barrier()  # rank 0 has published all checkpoints
        kept = len(self.lines) if self.course.best is None else self.course.best.epochs
        if kept < len(self.lines) and not stopped:
            self._restore_best()
        # The metrics after that epoch belong to the same parameters.
        measured: Mapping[str, Any] = self.lines[kept - 1]
        if self.evaluation.details is None and self.config.run.final_eval and not stopped:
            measured = {**self.evaluation.measure(self.mode, kept, is_last=True), **measured}
            self._check_files()
        if self.config.run.save_embeddings and not stopped:
            # Arrays that another prediction made with the same checkpoint are kept.
            asked = PredictConfig.of_training(self.config, shards=None, embeddings=True)
            write_predictions(self.session, self.inputs, kept, find_predictions(self.comm, self.run, asked))
        details = self.evaluation.details
        found = {"checkpoint_epoch": kept, **{name: measured.get(name) for name in self.figures}}
        # `class_epoch` says the same, under the name that readers of earlier results know.
        found |= {**self.course.summary, **(details or {}), **({"class_epoch": kept} if details else {})}
        result = describe_result(self.session, self.run, self.lines, found, stopped=stopped)
        result |= gather_costs(self.session, self.last_traffic)
        if self.mode.evaluation is not None:
            result["evaluation"] = dict(self.mode.evaluation)
        if self.comm.rank == 0:
            for what, facts in self.course.summary.items():
                logger.info("%s: %s", what.replace("_", " "), "  ".join(f"{name} {facts[name]}" for name in facts))
        # The result marks a run as complete, so it is written last. The barrier lets no rank return before it is
        # written.
        if self.comm.rank == 0 and not stopped:
            self.run.finish(result)
        self.comm.barrier()
        return result


def _is_due(done: int, every: int) -> bool:
    return every > 0 and done % every == 0


def _shown(figure: Figure, value: float | None) -> str:
    """A metric for the log; shares as percentages."""
    if value is None:
        return "-"
    return f"{value:.2%}" if figure.is_share else f"{value:.5g}"
