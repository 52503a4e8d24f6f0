"""A report is one self-contained page with pictures, and its figures are those of the run."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from gnnloom.storage import Catalog, Dataset, GnnloomError
from gnnloom.storage.errors import ExistsError, InputError, NotFoundError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.runs.provenance import begin_session, end_session
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.report.build import write_comparison, write_report
from gnnloom.workflows.report.facts import RunFacts, open_run, shard_nonzeros
from gnnloom.workflows.report.pictures.curves import accuracy_picture, loss_picture, progress_picture
from gnnloom.workflows.report.pictures.heat import rows_picture
from gnnloom.workflows.report.pictures.ranks import split_seconds
from gnnloom.workflows.report.tables import configuration_table, smoothing_card
from support.reported_runs import draw_few_pixels, store_reported, store_run

PNG = b"\x89PNG\r\n\x1a\n"
CURVES = {"loss", "accuracy", "seconds"}
OF_RANKS = {"time", "communication", "memory", "reading"}
ORIGIN = {"nonzeros", "stages", "lineage"}


SESSION = {
    "started": "2026-03-01T10:20:30Z",
    "host": "node7",
    "version": "1.2.3",
    "command": "gnnloom --catalog /data train web --ranks 3 --run rows",
}
CLASSES = {
    "class_epoch": 3,
    "confusion": [[8, 2], [1, 3]],
    "per_class": [
        {"class": 0, "precision": 8 / 9, "recall": 0.8, "f1": 0.842, "support": 10},
        {"class": 1, "precision": 0.6, "recall": 0.75, "f1": 0.667, "support": 4},
    ],
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    found = store_reported(Catalog(tmp_path_factory.mktemp("reported") / "catalog"))
    rows = store_run(found, "rows", 3, result=CLASSES)
    begin_session(rows.path, SESSION, 0)
    end_session(rows.path, {"seconds": 4000.0, "state": "finished"})
    store_run(found, "grid", 4, layout="grid")
    store_run(found, "plain", 3, profiled=False)
    store_run(found, "begun", 3, epochs=1, profiled=False, finished=False)
    return found


@pytest.fixture(scope="module")
def written(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the command writes about three of the runs."""
    folder = tmp_path_factory.mktemp("written")
    runs = [f"web/{name}" for name in ("rows", "grid", "begun")]
    with pytest.MonkeyPatch.context() as patch:
        draw_few_pixels(patch)
        # A table would break a long path anywhere.
        assert "index.html" in str(report(dataset, *runs, "--out", str(folder), "--json"))
    return folder


def report(dataset: Dataset, *arguments: str) -> GnnloomError | str:
    done = CliRunner().invoke(cli, ["--catalog", str(dataset.path.parent), "report", *arguments])
    return done.exception if isinstance(done.exception, GnnloomError) else done.output


def files_of(written: Path, run: str) -> list[Path]:
    """The page about a run, and its pictures."""
    folder = written / f"report-web-{run}"
    return [folder / "index.html", *folder.glob("*.png")]


class Links(HTMLParser):
    """Collects the links that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "link", "iframe", "object"}
        names = {"src", "href", "xlink:href", "data", "srcset"}
        self.found += [value or "" for name, value in attrs if name in names]


def pictures(files: list[Path]) -> set[str]:
    assert all(file.read_bytes().startswith(PNG) for file in files[1:])
    return {file.stem for file in files[1:]}


def check_page(page: Path) -> str:
    """Check that a page is self-contained and its pictures are valid; returns its text."""
    text = page.read_text(encoding="utf-8")
    links = Links()
    links.feed(text)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links.found)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(svg)
    identities = re.findall(r'\sid="([^"]+)"', text)
    shared = {name for name in identities if identities.count(name) > 1}
    assert not [name for name in shared if f"#{name}" in text]
    return text


@pytest.mark.slow
def test_a_report_is_one_self_contained_page_with_pictures(dataset: Dataset, written: Path) -> None:
    files = files_of(written, "rows")
    assert pictures(files) == CURVES | OF_RANKS | ORIGIN | {"halo", "confusion"}
    text = check_page(files[0])
    assert "71.00%" in text
    for fact in ("Started 2026-03-01 10:20:30 UTC on node7 with gnnloom 1.2.3", SESSION["command"], "1 h 7 min"):
        assert fact in text
    # Values under the pointer: of a curve, of a rank, of a pair of ranks, and of two classes.
    for tip in ("epoch 12<", "test  71.00%<", "rank 2<", "sender 0, receiver 1<", "2 labels, 20.0%<"):
        assert tip.replace("  ", " ") in text.replace("  ", " ")
    assert "88.89%" in text
    assert "<dt>km1</dt>" in text
    assert f"{2.0 * 0.9**11:.4f}" in text
    assert dataset.find("partition").key in text


@pytest.mark.parametrize(
    ("run", "missing", "message"),
    [
        ("grid", set(), "ranks, as a grid of 2x2"),
        ("begun", OF_RANKS | {"accuracy"}, "Repeat its command to finish it"),
    ],
)
def test_unknown_facts_are_left_out_with_an_explanation(
    written: Path, run: str, missing: set[str], message: str
) -> None:
    check_what_is_missing(files_of(written, run), run, missing, message)


def test_scores_of_smoothed_predictions_are_shown(tmp_path: Path) -> None:
    found = store_reported(Catalog(tmp_path / "catalog"))
    run = store_run(found, "smoothed", 3)
    assert smoothing_card(RunFacts.gather(found, "smoothed")) is None
    run.predictions_aside().mkdir()
    record = write_array(run.predictions_aside(), "label", np.zeros(3, np.int32), ("vertex",))
    figures = {f"{split}_accuracy": 0.25 for split in ("train", "val", "test")}
    figures |= {f"smoothed_{name}": 0.875 for name in figures}
    run.publish_predictions([record], {"epoch": 3, "smoothing": {"smooth": "correct", **figures}})
    shown = smoothing_card(RunFacts.gather(found, "smoothed"))
    assert shown is not None
    assert "Predictions smoothed over the edges (correct), epoch 3" in shown
    assert "<tr><td>validation</td><td>25.00%</td><td>87.50%</td></tr>" in shown


@pytest.mark.long
def test_a_run_without_profile_says_which_option_makes_one(dataset: Dataset, tmp_path: Path) -> None:
    files = write_report(RunFacts.gather(dataset, "plain"), tmp_path / "plain")
    check_what_is_missing(files, "plain", {"time"}, "--profile")


def check_what_is_missing(files: list[Path], run: str, missing: set[str], message: str) -> None:
    of_rows = set() if run == "grid" else {"halo"}
    assert pictures(files) == (CURVES | OF_RANKS | ORIGIN | of_rows) - missing
    text = check_page(files[0])
    assert message in text
    training = text[text.index("<h2>Training") : text.index("<h2>Ranks")]
    assert training.count("<div class='card '>") % 2 == 0, "a row is half empty"


def test_the_same_run_gives_the_same_picture(dataset: Dataset) -> None:
    first, second = (loss_picture([RunFacts.gather(dataset, "rows")]).svg() for _ in range(2))
    assert first == second


def copied(dataset: Dataset, folder: Path) -> Dataset:
    """Return a copy of the dataset, which a test may change."""
    shutil.copytree(dataset.path.parent, folder / "catalog")
    return Catalog(folder / "catalog")[dataset.name]


def test_accuracy_that_was_measured_once_is_within_the_picture(dataset: Dataset, tmp_path: Path) -> None:
    dataset = copied(dataset, tmp_path)
    store_run(dataset, "brief", 3, epochs=2, profiled=False)
    picture = accuracy_picture([RunFacts.gather(dataset, "brief")])
    assert picture is not None
    (axes,) = picture.figure.axes
    assert [np.asarray(line.get_xdata()).tolist() for line in axes.lines] == [[2]] * 3
    assert axes.get_xlim() == (1, 3)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a", marks=pytest.mark.long),
        pytest.param("gcn-p2p-2-128d9245", marks=pytest.mark.long),
        "a-name-that-is-quite-as-long-as-the-picture",
    ],
)
def test_a_legend_fits_into_its_picture(dataset: Dataset, tmp_path: Path, name: str) -> None:
    dataset = copied(dataset, tmp_path)
    for number in range(3):
        store_run(dataset, f"{name}-{number}", 3, profiled=False)
    picture = loss_picture([RunFacts.gather(dataset, f"{name}-{number}") for number in range(3)])
    picture.write_png(tmp_path / "loss.png")
    (axes,) = picture.figure.axes
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_window_extent().x1 <= picture.figure.bbox.x1
    assert axes.get_window_extent().width > 0.8 * picture.figure.bbox.width


@pytest.mark.slow
def test_a_report_leaves_out_a_damaged_artifact(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_few_pixels(monkeypatch)
    dataset = copied(dataset, tmp_path)
    (dataset.partition(3).artifact.path / "manifest.json").write_text("{")
    facts = RunFacts.gather(dataset, "begun")
    assert sorted(artifact.kind for artifact in facts.artifacts) == ["graph", "shards", "vertices"]
    check_page(write_report(facts, tmp_path / "report")[0])


def test_an_error_about_the_report_folder_names_it(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    facts = RunFacts.gather(dataset, "rows")
    with pytest.raises(InputError, match=r"file/report: .*--out"):
        write_report(facts, tmp_path / "file" / "report")


@pytest.mark.slow
def test_a_comparison_shows_what_differs_and_the_pictures_of_all(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_few_pixels(monkeypatch)
    runs = [RunFacts.gather(dataset, name) for name in ("rows", "grid", "begun")]
    files = write_comparison(runs, tmp_path / "all")
    text = check_page(files[0])
    table = re.sub(r"<[^>]+>", " ", text[text.index("Settings that differ") : text.index("<h2>Training")])
    assert "algorithm  p2p  summa  p2p" in table
    assert "seed" not in table
    assert {"loss", "accuracy", "validation", "progress", "time-web-rows", "time-web-grid"} <= pictures(files)
    assert "web/begun has not finished: 1 of 12 epochs." in text
    assert "web/begun (not finished)" in text
    assert "web/rows (not finished)" not in text


def test_progress_is_drawn_over_the_time_of_all_epochs_so_far(dataset: Dataset) -> None:
    runs = [RunFacts.gather(dataset, name) for name in ("rows", "grid")]
    picture = progress_picture(runs)
    assert picture is not None
    lines = picture.figure.axes[0].get_lines()
    for facts, line in zip(runs, lines, strict=True):
        seconds, expected = 0.0, []
        for epoch in facts.metrics:
            seconds += epoch["seconds"]
            if "test_accuracy" in epoch:
                expected.append((seconds, epoch["test_accuracy"]))
        assert np.asarray(line.get_xydata()) == pytest.approx(np.array(expected))


@pytest.mark.long
def test_a_report_of_many_ranks_and_epochs_stays_small(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_few_pixels(monkeypatch)
    dataset = copied(dataset, tmp_path)
    store_run(dataset, "large", 512, epochs=900, profiled=False)
    files = write_report(RunFacts.gather(dataset, "large"), tmp_path / "report")
    assert check_page(files[0])
    assert files[0].stat().st_size < 1_500_000
    assert files[0].read_text().count("epoch 900<") == 3


def test_figures_equal_those_of_the_shards_and_the_profile(dataset: Dataset) -> None:
    facts = RunFacts.gather(dataset, "rows")
    parts = split_seconds(facts.rank_seconds)
    assert {name: round(float(seconds[0]) * 1e3, 6) for name, seconds in parts.items()} == {
        "adjacency products": 4,
        "weight products": 2,
        "sampling": 0,
        "other computing": 1,
        "communication": 3,
        "waiting": 2,
    }
    adjacency = dataset.graph().to_scipy().toarray() != 0
    part = dataset.partition(3).part()
    assert facts.shards is not None
    own = [adjacency[np.ix_(part == rank, part == rank)].sum() for rank in range(3)]
    halo = [adjacency[np.ix_(part == rank, part != rank)].sum() for rank in range(3)]
    assert shard_nonzeros(facts.shards).T.tolist() == [own, halo]
    needed = [[(adjacency[np.ix_(part == q, part == p)].any(0)).sum() * (p != q) for q in range(3)] for p in range(3)]
    assert facts.rows_between is not None
    assert facts.rows_between.tolist() == needed
    grid = RunFacts.gather(dataset, "grid")
    assert grid.shards is not None
    assert (shard_nonzeros(grid.shards).shape, shard_nonzeros(grid.shards).sum()) == ((2, 3), adjacency.sum())
    assert rows_picture(grid) is None


@pytest.mark.parametrize(("is_exact", "said"), [(True, "layer by layer, exact"), (False, "layer by layer, not exact")])
def test_the_settings_say_how_a_module_of_torch_was_evaluated(dataset: Dataset, is_exact: bool, said: str) -> None:
    facts = RunFacts.gather(dataset, "rows")
    assert "layer by layer" not in configuration_table(facts)
    result = {**facts.result, "inference": "layer by layer", "inference_exact": is_exact}
    assert f">{said}<" in configuration_table(replace(facts, result=result))


def test_a_run_is_named_by_dataset_and_run_or_by_its_folder(dataset: Dataset) -> None:
    catalog = Catalog(dataset.path.parent)
    assert open_run(catalog, str(dataset.run_path("grid"))).name == "web/grid"
    with pytest.raises(InputError, match="web/begun, web/grid"):
        open_run(catalog, "web")
    with pytest.raises(NotFoundError, match="there are: begun, grid"):
        open_run(catalog, "web/none")


def test_the_command_writes_one_folder_per_run_and_overwrites_only_reports(
    dataset: Dataset, written: Path, tmp_path: Path
) -> None:
    assert {path.name for path in written.iterdir()} == {f"report-web-{run}" for run in ("rows", "grid", "begun")}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("<html>a page of my own</html>")
    assert isinstance(report(dataset, "web/begun", "--out", str(tmp_path / "mine")), ExistsError)
    assert (tmp_path / "mine" / "index.html").exists()
    assert "at least two runs" in str(report(dataset, "--compare", "web/plain"))
