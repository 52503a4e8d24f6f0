"""Learning rates follow their formulas, and metrics decide what they should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.optimization_config import ended_early
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.tasks.registry import TASKS
from gnnloom.trainer.tasks.task import Figure
from gnnloom.trainer.training.course import Course, KeptBest, Metric, Schedule, find_metric
from support.tolerance import tolerance


def named(*figures: Figure) -> dict[str, Figure]:
    """Figures by the names of their metrics."""
    return {name: figure for figure in figures for name in figure.names}


ACCURACY = named(*TASKS["class"].figures)


def config(**options: Any) -> TrainConfig:
    return TrainConfig.of(catalog="c", dataset="d", **{"lr": 0.4, "epochs": 10, **options})


def course_of(best: KeptBest | None, **options: Any) -> Course:
    given = config(**options)
    return Course(given.stopping, given.optimization, given.run, ACCURACY, best)


def rates(metric: str = "loss", losses: tuple[float, ...] = (), **options: Any) -> list[float]:
    schedule = Schedule(config(**options).optimization, Metric(metric, lower=True))
    found = []
    for epoch in range(10):
        found.append(schedule.rate(epoch))
        schedule.observe({"epoch": epoch, **({metric: losses[epoch]} if losses else {})})
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.4] * 10),
        ({"warmup_epochs": 4}, [0.1, 0.2, 0.3] + [0.4] * 7),
        ({"schedule": "step", "step_epochs": 4, "lr_factor": 0.5}, [0.4] * 4 + [0.2] * 4 + [0.1] * 2),
        ({"schedule": "step", "step_epochs": 4, "lr_factor": 0.5, "min_lr": 0.2}, [0.4] * 4 + [0.2] * 6),
        (
            {"schedule": "cosine", "schedule_epochs": 4, "min_lr": 0.2},
            [0.4, 0.2 + 0.1 * (1 + 0.5**0.5), 0.3, 0.2 + 0.1 * (1 - 0.5**0.5)] + [0.2] * 6,
        ),
    ],
)
def test_a_schedule_follows_its_formula(options: dict[str, Any], expected: list[float]) -> None:
    assert rates(**options) == pytest.approx(expected, rel=tolerance())


def test_a_plateau_reduces_the_rate_and_warm_up_does_not_count() -> None:
    losses = (5.0, 6.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.0, 3.0, 3.0)
    found = rates(losses=losses, schedule="plateau", plateau_epochs=2, lr_factor=0.5, warmup_epochs=2)
    # The best value comes in epoch 2, and epoch 5 is the third one without a better one: two are tolerated.
    assert found == pytest.approx([0.2, 0.4, 0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2], rel=tolerance())


@pytest.mark.parametrize("seed", range(8))
def test_a_plateau_reduces_the_rate_when_the_scheduler_of_torch_does(seed: int) -> None:
    random = np.random.default_rng(seed)
    lower, patience = bool(seed % 2), int(random.integers(0, 4))
    # Steps below and above the threshold of 1e-4, equal values, zero and, as of R2, negative values.
    step = random.choice([0.0, 5e-5, 2e-4, -5e-5, -2e-4, 0.1, -0.1], 400)
    values = np.round((1 if seed < 4 else -1) * np.cumprod(1 + step), 9 if seed % 3 else 2)
    given = config(schedule="plateau", plateau_epochs=patience, lr_factor=0.97)
    mine = Schedule(given.optimization, Metric("score", lower=lower))
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=given.optimization.lr)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, "min" if lower else "max", factor=given.optimization.lr_factor, patience=patience
    )
    for epoch, value in enumerate(values.tolist()):
        assert mine.rate(epoch) == pytest.approx(optimizer.param_groups[0]["lr"], rel=tolerance(400)), epoch
        mine.observe({"epoch": epoch, "score": value})
        theirs.step(value)
    assert mine.rate(400) < given.optimization.lr


def test_a_plateau_counts_epochs_however_often_the_run_evaluates() -> None:
    schedule = Schedule(config(schedule="plateau", plateau_epochs=4).optimization, Metric("score", lower=True))
    found = []
    for epoch in range(12):
        found.append(schedule.rate(epoch))
        schedule.observe({"epoch": epoch} | ({"score": 1.0} if epoch % 3 == 2 else {}))
    # Evaluations follow epochs 2, 5, 8 and 11: at the third one, six epochs have passed, which are more than four.
    assert found == pytest.approx([0.4] * 9 + [0.04] * 3, rel=tolerance())


def test_a_longer_run_keeps_the_cosine_that_it_began_with() -> None:
    first = config(schedule="cosine")
    assert first.optimization.schedule_epochs == 10
    longer = config(schedule="cosine", epochs=20)
    assert longer.changes_since(first) == ["schedule_epochs 10 (now 20)"]
    assert first.with_options(epochs=20).changes_since(first) == []


def test_what_decides_the_course_of_a_training_must_not_change() -> None:
    assert config(patience=3, keep_best="auto").run_name == config().run_name
    assert config(clip_norm=1.0).changes_since(config()) == ["clip_norm 0.0 (now 1.0)"]
    # A plateau of a metric that is measured in some epochs depends on which ones they are.
    plateau = {"schedule": "plateau"}
    assert config(**plateau, eval_every=1).changes_since(config(**plateau)) == ["eval_every 10 (now 1)"]
    assert config(**plateau, monitor="loss", eval_every=1).changes_since(config(**plateau, monitor="loss")) == []


def test_metrics_are_named_with_a_suggestion() -> None:
    assert find_metric("monitor", "auto", ACCURACY) == Metric("val_accuracy", lower=False)
    assert find_metric("monitor", "auto", named(*TASKS["multilabel"].figures)) == Metric("val_f1", lower=False)
    assert find_metric("monitor", "auto", named(*TASKS["number"].figures)) == Metric("val_rmse", lower=True)
    assert find_metric("monitor", "val_loss", ACCURACY).lower
    assert find_metric("monitor", "val_cost", ACCURACY | named(Figure("cost", lower=True))).lower
    with pytest.raises(InputError, match=r"keep_best 'val_acc': .* val_accuracy"):
        find_metric("keep_best", "val_acc", ACCURACY)


def follow(course: Course, values: list[float | None]) -> list[tuple[bool, bool]]:
    """For each epoch, whether its checkpoint is the best one, and whether the run ends."""
    found = []
    for epoch, value in enumerate(values):
        line = {"epoch": epoch, "loss": 1.0, **({} if value is None else {"val_accuracy": value})}
        course.observe(line)
        found.append((course.improves(line), course.ends))
    return found


def test_patience_counts_epochs_and_the_best_checkpoint_is_the_first_of_equal_ones() -> None:
    course = course_of(None, patience=3, keep_best="val_accuracy")
    found = follow(course, [0.5, None, 0.6, 0.6, None, 0.4])
    assert found == [(True, False), (False, False), (True, False), (False, False), (False, False), (False, True)]
    assert course.summary == {
        "best": {"metric": "val_accuracy", "value": 0.6, "epoch": 3},
        "stopped_early": {"metric": "val_accuracy", "patience": 3, "best_epoch": 3},
    }
    # A run that had less patience, or that had more than now, is finished; with more patience it goes on.
    assert [ended_early(course.summary, patience) for patience in (0, 2, 3, 4)] == [False, True, True, False]


def test_a_metric_that_is_measured_only_at_the_end_cannot_decide_before() -> None:
    with pytest.raises(InputError, match=r"monitor val_accuracy: .* eval_every"):
        course_of(None, patience=3, eval_every=0)
    course_of(None, patience=3, eval_every=0, monitor="loss")


def test_a_run_without_evaluations_keeps_no_best_checkpoint_by_a_metric() -> None:
    never = {"eval_every": 0, "final_eval": False}
    with pytest.raises(InputError, match=r"keep_best val_accuracy: .*--no-final"):
        course_of(None, keep_best="val_accuracy", **never)
    course_of(None, keep_best="loss", **never)
    course_of(None, keep_best="val_accuracy", eval_every=0)


def test_the_best_checkpoint_of_another_metric_is_replaced() -> None:
    kept = KeptBest(7, "val_accuracy", 0.7)
    same = course_of(kept, keep_best="val_accuracy")
    assert follow(same, [0.6, 0.8]) == [(False, False), (True, False)]
    other = course_of(kept, keep_best="loss")
    assert follow(other, [0.6, 0.8]) == [(True, False), (False, False)]


@pytest.mark.parametrize("given", ["one,two", "1,-1", "0,0", "nan,1", ""])
def test_class_weights_are_words_or_numbers(given: str) -> None:
    assert config(class_weights="1,2.5").task.given_class_weights == (1.0, 2.5)
    with pytest.raises(InputError, match=r"class_weights .*: .*none, balanced"):
        config(class_weights=given)
