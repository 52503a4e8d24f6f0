"""The figures of a report are those of the run, and agree with each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.checks.run_invariants import check_run
from gnnloom.storage.disk.files import write_json
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.runs.provenance import begin_session, end_session
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.report.comparison import comparison_rows, data_warning
from gnnloom.workflows.report.facts import RunFacts
from gnnloom.workflows.report.figures import best_epoch, random_rows, total_seconds
from gnnloom.workflows.report.pictures.curves import accuracy_picture, loss_picture, progress_picture, seconds_picture
from gnnloom.workflows.report.pictures.hover import MOST_SPOTS
from gnnloom.workflows.report.pictures.origin import lineage_picture
from gnnloom.workflows.report.tables import headline
from support.reported_runs import store_reported


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return store_reported(Catalog(tmp_path_factory.mktemp("figures") / "catalog"))


def store(dataset: Dataset, name: str, seconds: list[float], validation: list[float], graph: str = "one") -> RunFacts:
    """Store a run with a validation score in every epoch; its test score is 0.01 higher."""
    run = Run(dataset.run_path(name))
    shards = dataset.find("shards", layout="row").key
    run.start({"ranks": 3, "epochs": len(seconds)}, 0, {"shards": shards, "graph": graph, "vertices": "same"})
    for epoch, (taken, share) in enumerate(zip(seconds, validation, strict=True)):
        scores = {"train_accuracy": share, "val_accuracy": share, "test_accuracy": share + 0.01}
        run.append_metrics({"epoch": epoch, "loss": 1.0 + epoch, "seconds": taken, **scores})
    return RunFacts.gather(dataset, name)


def test_the_median_of_an_even_number_of_epochs_is_the_same_everywhere(dataset: Dataset) -> None:
    facts = store(dataset, "even", [0.1, 0.2, 0.4, 0.5], [0.5] * 4)
    assert facts.epoch_seconds == pytest.approx(0.3)
    assert dict(headline(facts))["median time per epoch"] == "300 ms"
    (axes,) = seconds_picture([facts]).figure.axes
    assert axes.lines[0].get_label() == "slowest rank  300 ms"


def test_the_best_validation_epoch_is_the_first_with_the_highest_score(dataset: Dataset) -> None:
    facts = store(dataset, "best", [0.1] * 4, [0.5, 0.8, 0.8, 0.7])
    best = best_epoch(facts)
    assert best is not None
    assert (best.epoch, best.validation) == (2, 0.8)
    assert best.test == pytest.approx(0.81)
    figures = dict(headline(facts))
    assert figures["best validation accuracy, epoch 2"] == "80.00%"
    assert (figures["validation accuracy"], figures["test accuracy"]) == ("70.00%", "71.00%")
    picture = accuracy_picture([facts])
    assert picture is not None
    assert "80.00% in epoch 2; test accuracy then: 81.00%" in picture.note


def test_a_report_shows_the_figures_of_the_checkpoint_that_the_result_names(dataset: Dataset) -> None:
    values = [0.5, 0.8, 0.6, 0.7]
    kept, last = (store(dataset, name, [0.1] * 4, values) for name in ("kept", "not-kept"))
    scores = {"train_accuracy": 0.8, "val_accuracy": 0.8, "test_accuracy": 0.81}
    kept.run.finish({"epochs": 4, "loss": [1.0, 2.0, 3.0, 4.0], "checkpoint_epoch": 2, **scores})
    check_run(kept.run)
    kept = RunFacts.gather(dataset, "kept")
    figures = dict(headline(kept))
    assert len(figures) == len(headline(last)) == 10
    assert (figures["validation accuracy, epoch 2"], figures["test accuracy, epoch 2"]) == ("80.00%", "81.00%")
    assert figures["training loss, epoch 2"] == "2.0000"
    rows = {name: cells for name, *cells in comparison_rows([last, kept])}
    assert rows["test accuracy"] == ["71.00%", "81.00%  (+10.00 points)"]
    assert rows["epoch of these scores"] == ["4", "2  (-2)"]
    # The figures of another epoch, and an epoch that the run does not have.
    for wrong in ({"checkpoint_epoch": 3}, {"checkpoint_epoch": 5}, {"checkpoint_epoch": "2"}):
        kept.run.finish({**kept.result, **wrong})
        with pytest.raises(CorruptError, match=r"val_accuracy|train_accuracy|checkpoint_epoch"):
            check_run(kept.run)


def test_a_result_without_figures_is_shown_without_any(dataset: Dataset) -> None:
    facts = store(dataset, "unmeasured", [0.1] * 3, [0.5, 0.6, 0.7])
    # The last epoch was not evaluated.
    lines = [line if line["epoch"] < 2 else {**line, "val_accuracy": None} for line in facts.metrics]
    unfinished = replace(facts, metrics=lines)
    assert dict(headline(unfinished))["validation accuracy, epoch 2"] == "60.00%"
    result = {"epochs": 3, "checkpoint_epoch": 3, "val_accuracy": None, "test_accuracy": None}
    assert dict(headline(replace(unfinished, result=result)))["validation accuracy"] == "-"


def test_a_regression_is_judged_by_its_error(dataset: Dataset) -> None:
    run = Run(dataset.run_path("regression"))
    run.start({"ranks": 3, "epochs": 3}, 0, {"shards": dataset.find("shards", layout="row").key})
    for epoch, error in enumerate((3.0, 1.5, 2.0)):
        errors = {f"{split}_rmse": error for split in ("train", "val", "test")}
        run.append_metrics({"epoch": epoch, "loss": 1.0, "seconds": 0.1, **errors})
    facts = RunFacts.gather(dataset, "regression")
    figures = dict(headline(facts))
    assert (figures["test RMSE"], figures["best validation RMSE, epoch 2"]) == ("2", "1.5")
    rows = {name: cells for name, *cells in comparison_rows([facts, facts])}
    assert rows["best validation score"] == ["1.5", "1.5  (x 1.00)"]
    picture = accuracy_picture([facts])
    assert picture is not None
    assert (picture.title, picture.figure.axes[0].get_ylim()[0]) == ("RMSE", 0)


def test_curves_that_coincide_are_all_visible(dataset: Dataset) -> None:
    facts = store(dataset, "same", [0.1] * 4, [0.5, 0.6, 0.7, 0.8])
    for picture in (accuracy_picture([facts]), loss_picture([facts, store(dataset, "again", [0.1] * 4, [0.5] * 4)])):
        assert picture is not None
        lines = picture.figure.axes[0].lines
        widths = [line.get_linewidth() for line in lines]
        assert widths == sorted(set(widths), reverse=True)
        assert lines[-1].get_linestyle() != "-"


def test_ticks_are_round_and_few(dataset: Dataset) -> None:
    facts = store(dataset, "long", [0.1] * 300, np.linspace(0.91, 0.93, 300).tolist())
    picture = accuracy_picture([facts])
    assert picture is not None
    (axes,) = picture.figure.axes
    assert set(np.diff(axes.get_xticks())) == {50}
    low, high = axes.get_ylim()
    labels = [axes.yaxis.get_major_formatter()(tick) for tick in axes.get_yticks() if low <= tick <= high]
    assert len(set(labels)) == len(labels) >= 3
    assert len(picture.spots) == MOST_SPOTS


def test_a_partition_is_compared_with_random_parts(dataset: Dataset) -> None:
    facts = store(dataset, "parts", [0.1], [0.5])
    needed = dataset.graph().to_scipy().toarray() != 0
    random = np.random.default_rng(0)

    def rows_sent() -> int:
        part = random.integers(0, 3, len(needed))
        receivers = np.array([needed[part == p].any(0) for p in range(3)])
        return int((receivers & (part != np.arange(3)[:, None])).sum())

    expected = random_rows(facts)
    assert expected == pytest.approx(np.mean([rows_sent() for _ in range(400)]), rel=0.01)


def test_a_comparison_shows_points_and_warns_of_other_data(dataset: Dataset) -> None:
    first, second = store(dataset, "one", [0.1] * 2, [0.5, 0.6]), store(dataset, "two", [0.2] * 2, [0.5, 0.575])
    rows = {name: cells for name, *cells in comparison_rows([first, second])}
    assert rows["test accuracy"] == ["61.00%", "58.50%  (-2.50 points)"]
    assert rows["median time per epoch"] == ["100 ms", "200 ms  (x 2.00)"]
    assert data_warning([first, second]) is None
    other = store(dataset, "other", [0.1] * 2, [0.5, 0.6], graph="two")
    assert data_warning([first, other]) == (
        "These runs were trained on different graphs: their scores and losses cannot be compared."
    )


def test_the_total_time_is_that_of_all_sessions(dataset: Dataset) -> None:
    store(dataset, "resumed", [0.1] * 2, [0.5, 0.6])
    path = dataset.run_path("resumed")
    for first_epoch, seconds in ((0, 20.0), (1, 30.0)):
        begin_session(path, {"started": "2026-03-01T10:20:30Z"}, first_epoch)
        end_session(path, {"seconds": seconds, "state": "stopped"})
    assert total_seconds(RunFacts.gather(dataset, "resumed")) == 50.0
    begin_session(path, {"started": "2026-03-01T10:20:30Z"}, 1)
    assert total_seconds(RunFacts.gather(dataset, "resumed")) is None
    begin_session(path, {"started": "2026-03-01T10:20:30Z"}, 0)
    assert len(RunFacts.gather(dataset, "resumed").sessions) == 1


def test_the_profile_is_that_of_the_last_number_of_ranks(dataset: Dataset) -> None:
    """A run may continue on more ranks or on fewer."""
    for counts in ((3, 3, 3, 2, 2, 2), (2, 2, 3, 3, 3)):
        run = Run(dataset.run_path("continued"))
        run.start({"ranks": counts[-1], "epochs": len(counts)}, 0)
        for epoch, ranks in enumerate(counts):
            profile = [{"seconds": {"spmm": float(10 * ranks + rank)}} for rank in range(ranks)]
            run.append_metrics({"epoch": epoch, "loss": 1.0, "seconds": 0.1, "profile": profile})
        found = RunFacts.gather(dataset, "continued").rank_seconds
        assert found == [{"spmm": 10.0 * counts[-1] + rank} for rank in range(counts[-1])]


def test_a_single_score_over_time_is_drawn_from_0_seconds_on(dataset: Dataset) -> None:
    picture = progress_picture([store(dataset, name, [0.25], [0.5]) for name in ("single", "another")])
    assert picture is not None
    assert picture.figure.axes[0].get_xlim() == pytest.approx((0.0, 1.25))


def test_a_damaged_record_of_sessions_is_found(dataset: Dataset, tmp_path: Path) -> None:
    store(dataset, "damaged", [0.1] * 2, [0.5, 0.6])
    write_json(dataset.run_path("damaged") / "provenance.json", {"sessions": [5]})
    with pytest.raises(CorruptError, match=r"provenance\.json: "):
        check_run(Run.open(dataset, "damaged"))


def test_a_run_without_held_out_links_is_compared_with_random_parts_of_its_own_graph(tmp_path: Path) -> None:
    dataset = store_reported(Catalog(tmp_path / "catalog"), links=True)
    facts = store(dataset, "linked", [0.1], [0.5])
    links = dataset.links()
    kinds = [artifact.kind for artifact in facts.artifacts]
    assert kinds.index("links") < kinds.index("shards")
    assert [kind for kind in kinds if kind == "graph"] == ["graph", "graph"]
    pins = dataset.graph(links.message_graph).degree()
    expected = (3 * (1 - (1 - 1 / 3) ** pins) - 1).sum()
    assert random_rows(facts) == pytest.approx(expected)
    # The picture of the lineage has a box for the links.
    shown = lineage_picture(facts)
    assert shown is not None
    texts = {text.get_text() for axes in shown.figure.axes for text in axes.texts}
    assert "links" in texts
    assert f"{links.num_pairs['valid']:,} valid, {links.num_pairs['test']:,} test" in texts
