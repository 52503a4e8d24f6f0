"""Assembles reports: a folder with a self-contained ``index.html``, and the pictures as PNG files."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gnnloom.storage.errors import ExistsError, InputError
from gnnloom.workflows.report.curves import accuracy_picture, loss_picture, seconds_picture
from gnnloom.workflows.report.facts import RunFacts
from gnnloom.workflows.report.heat import blocks_picture, bytes_picture, rows_picture
from gnnloom.workflows.report.origin import lineage_picture, stages_picture
from gnnloom.workflows.report.page import (
    MARK,
    card,
    folded,
    message_card,
    page,
    picture_card,
    section,
    table,
    tiles,
    warning,
)
from gnnloom.workflows.report.ranks import memory_picture, nonzeros_picture, reading_picture, time_picture
from gnnloom.workflows.report.style import Picture, share_scale
from gnnloom.workflows.report.tables import (
    comparison_rows,
    configuration_table,
    difference_rows,
    headline,
    quality_table,
    stages_table,
    traffic_table,
)

PAGE = "index.html"


def write_report(facts: RunFacts, folder: Path) -> list[Path]:
    """Write the report on one run.

    Returns:
        The page, then the pictures.

    Raises:
        ExistsError: the folder exists and is not a report.
        InputError: the folder cannot be created.
    """
    curves = [loss_picture([facts]), accuracy_picture([facts]), seconds_picture([facts]), time_picture(facts)]
    ranks = [
        bytes_picture(facts),
        rows_picture(facts),
        nonzeros_picture(facts) or blocks_picture(facts),
        memory_picture(facts),
        reading_picture(facts),
    ]
    origin = [stages_picture(facts), lineage_picture(facts)]
    text = page(
        f"Run {facts.run.name}",
        _subtitle(facts),
        _unfinished(facts),
        tiles(headline(facts)),
        section("Training", *map(picture_card, curves[:3]), _time_card(curves[3])),
        section("Ranks and shards", *map(picture_card, ranks), *_communication_tables(facts)),
        section("Origin", *_stages_cards(facts, origin[0]), picture_card(origin[1])),
        section("Configuration", folded("All settings of the training", configuration_table(facts))),
    )
    return _write(folder, text, [*curves, *ranks, *origin])


def _subtitle(facts: RunFacts) -> str:
    config = facts.config
    widths = ", ".join(map(str, config.get("hidden", ()))) or "none"
    return (
        f"Dataset {facts.dataset.name}: {config.get('model')} with hidden layers {widths}, algorithm"
        f" {config.get('algorithm')}, {config.get('dtype')}, seed {config.get('seed')}"
    )


def _unfinished(facts: RunFacts) -> str:
    if facts.result:
        return ""
    done, wanted = len(facts.metrics), facts.config.get("epochs")
    return warning(f"The run has not finished: {done} of {wanted} epochs. Train again to finish it.")


def _time_card(picture: Picture | None) -> str:
    text = "This run was not profiled. Train with --profile to record the time that ranks compute, send and wait."
    return picture_card(picture) or message_card("Time of each rank", text)


def _communication_tables(facts: RunFacts) -> list[str]:
    titled = {"Traffic of the last epoch": traffic_table(facts), "Partition quality": quality_table(facts)}
    return [card(title, content, kind="table") for title, content in titled.items() if content]


def _stages_cards(facts: RunFacts, picture: Picture | None) -> list[str | None]:
    content = stages_table(facts)
    if content is None:
        text = "The artifacts that this run read have been removed from the catalog."
        return [message_card("Stages before training", text, "wide")]
    return [card("Stages before training", content, kind="wide"), picture_card(picture, "Task time by phase")]


def write_comparison(runs: Sequence[RunFacts], folder: Path) -> list[Path]:
    """Write a report that compares several runs.

    Returns:
        The page, then the pictures.

    Raises:
        ExistsError: the folder exists and is not a report.
        InputError: the folder cannot be created.
    """
    names = [facts.name for facts in runs]
    curves = [loss_picture(runs), accuracy_picture(runs), seconds_picture(runs)]
    by_title = _pictures_by_title(runs)
    text = page(
        " and ".join(names) if len(names) == 2 else f"{len(names)} runs",
        "Comparison of runs; ratios are relative to the first run",
        section("Results", card("", table(("", *names), comparison_rows(runs)), kind="wide")),
        section("Settings that differ", _differences(runs)),
        section("Training", *map(picture_card, curves)),
        *(section(title, *(picture_card(each, each.title) for each in row)) for title, row in by_title.items()),
    )
    return _write(folder, text, [*curves, *(picture for row in by_title.values() for picture in row)])


def _differences(runs: Sequence[RunFacts]) -> str:
    rows = difference_rows(runs)
    if not rows:
        return message_card("None", "All runs have the same configuration and read the same shards.")
    return card("", table(("", *(facts.name for facts in runs)), rows), kind="wide")


#: Pictures that every run has of its own: title, whether they share a scale, how to draw one.
_PER_RUN: tuple[tuple[str, bool, Callable[[RunFacts], Picture | None]], ...] = (
    ("Time of each rank", True, time_picture),
    ("Communication", False, bytes_picture),
    ("Rows exchanged", False, rows_picture),
    ("Nonzeros", False, lambda facts: nonzeros_picture(facts) or blocks_picture(facts)),
    ("Peak memory", True, memory_picture),
    ("Bytes read", True, reading_picture),
)


def _pictures_by_title(runs: Sequence[RunFacts]) -> dict[str, list[Picture]]:
    """Draw the pictures that every run has of its own, by title."""
    by_title = {}
    for title, has_one_scale, draw in _PER_RUN:
        drawn = [(facts, draw(facts)) for facts in runs]
        pictures = [_named_for_run(picture, facts) for facts, picture in drawn if picture is not None]
        # Bars of different runs can only be compared on one axis.
        if has_one_scale:
            share_scale(pictures)
        by_title[title] = pictures
    return by_title


def _named_for_run(picture: Picture, facts: RunFacts) -> Picture:
    name = f"{picture.name}-{facts.dataset.name}-{facts.run.name}"
    return replace(picture, name=name, title=f"{facts.name}: {picture.title[0].lower()}{picture.title[1:]}")


def _write(folder: Path, text: str, pictures: Sequence[Picture | None]) -> list[Path]:
    """Write into a temporary folder, which then replaces an older report."""
    folder = folder.absolute()
    if folder.exists() and not _is_replaceable(folder):
        raise ExistsError(f"{folder}: this path exists and is not a report; choose another folder with --out")
    drawn = [picture for picture in pictures if picture is not None]
    with _folder_aside(folder) as aside:
        for picture in drawn:
            picture.write_png(aside / f"{picture.name}.png")
        (aside / PAGE).write_text(text, encoding="utf-8")
        # A rename cannot replace a folder with files in it, so the old report is removed first.
        # Readers see either the old report or the new one, except for a moment in between.
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    return [folder / PAGE, *(folder / f"{picture.name}.png" for picture in drawn)]


@contextmanager
def _folder_aside(folder: Path) -> Iterator[Path]:
    """Create an empty sibling folder that no other process uses; it is removed at the end unless it was renamed."""
    # A sibling, because a rename does not cross file systems.
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        aside.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot create it ({error.strerror}); choose another folder with --out") from error
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _is_replaceable(folder: Path) -> bool:
    """Return whether a folder is empty, or holds a report and nothing else."""
    if not folder.is_dir():
        return False
    files = list(folder.iterdir())
    # Everything in the folder would be removed with the report, so anything else in it protects it.
    if not files or any(file.name != PAGE and file.suffix != ".png" for file in files):
        return not files
    return (folder / PAGE).is_file() and MARK in (folder / PAGE).read_text(encoding="utf-8", errors="replace")
