"""A run keeps the planner's forecast, and its report shows it next to what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.checks.run_invariants import check_run
from gnnloom.storage.disk.files import write_json
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.runs.provenance import begin_session
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.forecast import record_forecast
from gnnloom.trainer.planner.profile import open_profile, store_profile
from gnnloom.trainer.training.rehearsal.projection import process_memory
from gnnloom.trainer.training.start import Begun
from gnnloom.workflows.report.facts import RunFacts
from gnnloom.workflows.report.forecast import forecast_card
from support.reported_runs import store_reported

#: Of the busiest rank, beyond its process.
MEMORY = 10**6


@pytest.fixture
def planned(tmp_path: Path) -> Begun:
    """A run of three ranks that has begun, and has no forecast yet."""
    dataset = store_reported(Catalog(tmp_path))
    config = TrainConfig.of(catalog=str(tmp_path), dataset="web", ranks=3, hidden=(8,), run="planned")
    opened = OpenedRun.open(config, dataset, Run(dataset.run_path("planned")), 0, 3)
    opened.run.start(config.to_json(), 0, opened.inputs)
    return Begun(opened, 20, MEMORY)


def with_config(begun: Begun, config: TrainConfig) -> Begun:
    return replace(begun, opened=replace(begun.opened, config=config))


def test_the_forecast_is_shown_next_to_the_measured_figures(tmp_path: Path, planned: Begun) -> None:
    run = planned.opened.run
    dataset = Catalog(tmp_path)["web"]
    # The first layer forms A X once; the second one sends H W of width 3, forward and backward.
    halo = dataset.partition(3).quality["km1"] * 3 * 4
    parameters = 4 * 8 + 8 * 3 + 8 + 3
    gradient, loss = 2 * 2 * parameters * 4, 2 * 2 * 2 * 8
    sent = {"halo forward": halo, "halo backward": halo, "gradient": gradient, "loss": loss}
    profile = [{"seconds": {"spmm": 0.025, "waiting": 0.05, "other": 0.045, "halo forward": 0.005}}] * 3
    line = {"epoch": 0, "loss": 1.0, "seconds": 0.125, "bytes": sent, "messages": dict.fromkeys(sent, 1)}
    run.append_metrics({**line, "profile": profile})
    assert forecast_card(RunFacts.gather(dataset, "planned")) is None
    store_profile(tmp_path, replace(open_profile(tmp_path, "summit"), name="local"))
    record_forecast(planned)
    assert run.forecast()["profile"] == "local"
    assert run.forecast()["bytes_sent"] == sum(sent.values())
    assert check_run(run) == 1
    card = forecast_card(RunFacts.gather(dataset, "planned"))
    assert card is not None
    same = f"{sum(sent.values())} B" if sum(sent.values()) < 1024 else f"{sum(sent.values()) / 1024:.1f} KiB"
    assert card.count(f"<td>{same}</td>") == 2
    for shown in ("125 ms", "products with the adjacency", "<td>25 ms</td>", "everything else", "<td>45 ms</td>"):
        assert shown in card
    assert "processor seconds" not in card
    assert "all sessions" not in card
    store_profile(tmp_path, replace(open_profile(tmp_path, "summit"), name="local", clock="processor"))
    record_forecast(planned)
    for first_epoch in (0, 1):
        begin_session(run.path, {"started": "2026-03-01T10:20:30Z"}, first_epoch)
    assert "from the epochs of all sessions" in (forecast_card(RunFacts.gather(dataset, "planned")) or "")
    assert "Predicted times are processor seconds" in (forecast_card(RunFacts.gather(dataset, "planned")) or "")


def test_without_a_profile_the_times_are_those_of_another_machine_and_say_so(tmp_path: Path, planned: Begun) -> None:
    run = planned.opened.run
    run.append_metrics({"epoch": 0, "loss": 1.0, "seconds": 0.125, "bytes": {}, "messages": {}})
    record_forecast(planned)
    assert run.forecast()["profile"] == "generic"
    card = forecast_card(RunFacts.gather(Catalog(tmp_path)["web"], "planned"))
    assert card is not None
    assert "`local`" in card
    assert "`gnnloom calibrate`" in card
    # The published profile was measured in processor seconds.
    assert "processor seconds" in card


def test_a_training_that_the_planner_does_not_know_has_no_forecast_and_the_log_says_why(
    planned: Begun, caplog: pytest.LogCaptureFixture
) -> None:
    run = planned.opened.run
    with caplog.at_level("INFO"):
        unknown = planned.opened.config.with_options(model="gnnloom.workflows.examples.gcnii:GCNII")
        record_forecast(with_config(planned, unknown))
    assert run.forecast() == {}
    assert "run planned: no forecast: model gnnloom.workflows.examples.gcnii:GCNII" in caplog.text


def test_sampled_modes_have_a_forecast_of_their_memory_with_the_options_that_they_draw_with(
    tmp_path: Path, planned: Begun
) -> None:
    run = planned.opened.run
    run.append_metrics({"epoch": 0, "loss": 1.0, "seconds": 0.125, "bytes": {}, "messages": {}})
    # The number of clusters follows from the partition; without one the projection would not know the batches.
    found = {}
    for parts in (3, 0):
        sampled = planned.opened.config.with_options(mode="subgraph", sampler="cluster", cluster_parts=parts)
        record_forecast(with_config(planned, sampled))
        found[parts] = run.forecast()
    assert found[0] == found[3]
    dataset = Catalog(tmp_path)["web"]
    assert found[0]["peak_memory"] == process_memory(sampled) + MEMORY
    assert found[0]["mode"] == "subgraph"
    assert check_run(run) == 1
    card = forecast_card(RunFacts.gather(dataset, "planned"))
    assert card is not None
    assert "only the memory is predicted" in card
    assert "epoch seconds" not in card


def test_a_forecast_says_whether_the_memory_of_the_shards_fits(tmp_path: Path, planned: Begun) -> None:
    run = planned.opened.run
    summit = replace(open_profile(tmp_path, "summit"), name="local")
    for memory, fits in ((1, False), (1 << 50, True), (0, True)):
        store_profile(tmp_path, replace(summit, memory_per_rank=memory))
        record_forecast(planned)
        assert run.forecast()["fits"] is fits


def test_a_run_that_begins_again_drops_its_forecast_and_a_damaged_one_is_found(planned: Begun) -> None:
    run = planned.opened.run
    record_forecast(planned)
    first = run.forecast()
    # Whether it continues or starts over: another configuration has another forecast, or none.
    for first_epoch in (1, 0):
        run.start(run.config(), first_epoch)
        assert run.forecast() == {}
        record_forecast(planned)
        assert run.forecast() == first
    write_json(run.path / "forecast.json", {"epoch_seconds": "soon"})
    with pytest.raises(CorruptError, match=r"forecast\.json: .*epoch_seconds"):
        check_run(run)
