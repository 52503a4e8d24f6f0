"""A report shows the planner's forecast next to what was measured, if the machine has a profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.continuation import inputs_of
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.profile import open_profile, store_profile
from gnnloom.workflows.report.facts import RunFacts
from gnnloom.workflows.report.forecast import forecast_card
from support.reported_runs import store_reported


def test_the_forecast_is_shown_next_to_the_measured_figures(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    dataset = store_reported(catalog)
    config = TrainConfig(catalog=str(tmp_path), dataset="web", ranks=3, hidden=(8,), run="planned")
    shards = dataset.row_shards(3)
    run = Run(dataset.run_path("planned"))
    run.start(config.to_json(), 0, inputs_of(shards.artifact))
    partition = dataset.partition(3)
    # The first layer forms A X once; the second one sends H W of width 3, forward and backward.
    halo = partition.quality["km1"] * 3 * 4
    parameters = 4 * 8 + 8 * 3 + 8 + 3
    gradient, loss = 2 * 2 * parameters * 4, 2 * 2 * 2 * 8
    sent = {"halo forward": halo, "halo backward": halo, "gradient": gradient, "loss": loss}
    run.append_metrics({"epoch": 0, "loss": 1.0, "seconds": 0.125, "bytes": sent, "messages": dict.fromkeys(sent, 1)})
    assert forecast_card(RunFacts.gather(dataset, "planned")) is None
    store_profile(tmp_path, replace(open_profile(tmp_path, "summit"), name="local"))
    card = forecast_card(RunFacts.gather(dataset, "planned"))
    assert card is not None
    same = f"{sum(sent.values())} B" if sum(sent.values()) < 1024 else f"{sum(sent.values()) / 1024:.1f} KiB"
    assert card.count(f"<td>{same}</td>") == 2
    assert "125 ms" in card
    # Wall times are not compared with a forecast in processor seconds.
    store_profile(tmp_path, replace(open_profile(tmp_path, "summit"), name="local", clock="processor"))
    assert "125 ms" not in (forecast_card(RunFacts.gather(dataset, "planned")) or "")
