"""Assembles reports: a folder with a self-contained ``index.html``, and the pictures as PNG files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gnnloom.workflows.report.comparison import comparison_rows, data_warning, difference_rows
from gnnloom.workflows.report.facts import RunFacts
from gnnloom.workflows.report.folder import write_folder
from gnnloom.workflows.report.forecast import forecast_card
from gnnloom.workflows.report.page import (
    card,
    code,
    folded,
    glossary,
    message_card,
    page,
    picture_card,
    remark,
    section,
    table,
    tiles,
    warning,
)
from gnnloom.workflows.report.pictures.curves import accuracy_picture, loss_picture, progress_picture, seconds_picture
from gnnloom.workflows.report.pictures.heat import blocks_picture, bytes_picture, confusion_picture, rows_picture
from gnnloom.workflows.report.pictures.origin import lineage_picture, stages_picture
from gnnloom.workflows.report.pictures.ranks import memory_picture, nonzeros_picture, reading_picture, time_picture
from gnnloom.workflows.report.pictures.scores import distribution_picture
from gnnloom.workflows.report.pictures.style import Picture, share_scale
from gnnloom.workflows.report.tables import (
    baselines_card,
    classes_card,
    configuration_table,
    figures_card,
    headline,
    quality_table,
    rank_table,
    sessions_table,
    smoothing_card,
    stages_table,
    traffic_table,
)

_ADVICE = remark("Train with --profile to see how long each rank computes, sends and waits.")


def write_report(facts: RunFacts, folder: Path) -> list[Path]:
    """Write the report on one run.

    Returns:
        The page, then the pictures.

    Raises:
        ExistsError: the folder exists and is not a report.
        InputError: the folder cannot be created.
    """
    return write_folder(folder, lambda: _draw_report(facts))


def _draw_report(facts: RunFacts) -> tuple[str, list[Picture]]:
    """The page on one run, and its pictures."""
    scores, pairs = _there(confusion_picture(facts)), _there(distribution_picture(facts))
    time = time_picture(facts)
    curves = _full_rows(_there(loss_picture([facts]), accuracy_picture([facts]), seconds_picture([facts]), time))
    titled = {
        "Traffic of the last epoch": traffic_table(facts),
        "Partition quality": quality_table(facts),
        "The only rank": rank_table(facts),
    }
    tables = [card(title, content, kind="table") for title, content in titled.items() if content]
    ranks = _there(
        bytes_picture(facts),
        rows_picture(facts),
        nonzeros_picture(facts) or blocks_picture(facts),
        memory_picture(facts),
        reading_picture(facts),
    )
    origin = _there(stages_picture(facts), lineage_picture(facts))
    text = page(
        f"Run {facts.run.name}",
        _subtitle(facts),
        _unfinished(facts),
        tiles(headline(facts)),
        section("Training", *map(picture_card, curves), _ADVICE if time is None else None),
        section("Pairs", *map(picture_card, pairs), figures_card(facts)),
        section("Classes", *map(picture_card, scores), classes_card(facts), smoothing_card(facts)),
        section("Baselines", baselines_card(facts)),
        section("Ranks and shards", *map(picture_card, ranks if tables else _full_rows(ranks)), *tables),
        section("Forecast", forecast_card(facts)),
        section("Origin", _session_card(facts), _stages_card(facts), *map(picture_card, origin)),
        section(
            "Details",
            folded("All settings of the run", configuration_table(facts)),
            folded("Terms on this page", glossary()),
        ),
    )
    return text, [*curves, *pairs, *scores, *ranks, *origin]


def _there(*pictures: Picture | None) -> list[Picture]:
    return [picture for picture in pictures if picture is not None]


def _full_rows(pictures: list[Picture]) -> list[Picture]:
    """Widen the last picture if it would be alone in its row; matrices would not become wider."""
    halves = [picture for picture in pictures if not picture.is_wide]
    low = [picture for picture in halves if not picture.is_matrix]
    if len(halves) % 2 == 0 or not low:
        return pictures
    low[-1].widen()
    return [*(picture for picture in pictures if picture is not low[-1]), low[-1]]


def _subtitle(facts: RunFacts) -> str:
    config = facts.config
    widths = ", ".join(map(str, config.get("hidden", ()))) or "none"
    what = (
        f"Dataset {facts.dataset.name}: {config.get('model')} with hidden layers {widths}, algorithm"
        f" {config.get('algorithm')}, {config.get('precision')}, seed {config.get('seed')}"
    )
    if not facts.sessions:
        return what
    first = facts.sessions[0]
    started = str(first.get("started")).replace("T", " ").replace("Z", " UTC")
    return f"{what}\nStarted {started} on {first.get('host')} with gnnloom {first.get('version')}"


def _unfinished(facts: RunFacts) -> str:
    if facts.result:
        return ""
    done, wanted = len(facts.metrics), facts.config.get("epochs")
    return warning(f"{facts.name} has not finished: {done} of {wanted} epochs. Repeat its command to finish it.")


def _session_card(facts: RunFacts) -> str | None:
    content = sessions_table(facts)
    if content is None:
        return None
    command = str(facts.sessions[-1].get("command", ""))
    note = "The command of this run. To repeat it and keep this run, give it another --run." if command else ""
    return card("Training session", content + code(command), note=note, kind="wide")


def _stages_card(facts: RunFacts) -> str:
    content = stages_table(facts)
    if content is None:
        text = "The artifacts that this run read have been removed from the catalog."
        return message_card("Stages before training", text, "wide")
    return card("Stages before training", content, kind="wide")


def write_comparison(runs: Sequence[RunFacts], folder: Path) -> list[Path]:
    """Write a report that compares several runs.

    Returns:
        The page, then the pictures.

    Raises:
        ExistsError: the folder exists and is not a report.
        InputError: the folder cannot be created.
    """
    return write_folder(folder, lambda: _draw_comparison(runs))


def _draw_comparison(runs: Sequence[RunFacts]) -> tuple[str, list[Picture]]:
    """The page that compares runs, and its pictures."""
    names = [facts.name for facts in runs]
    heads = [facts.name if facts.result else f"{facts.name} (not finished)" for facts in runs]
    scores = accuracy_picture(runs, "val"), accuracy_picture(runs), progress_picture(runs)
    curves = _full_rows(_there(loss_picture(runs), *scores, seconds_picture(runs)))
    by_title = _pictures_by_title(runs)
    differing = message_card("None", "All runs have the same configuration and read the same shards.")
    if rows := difference_rows(runs):
        differing = card("", table(("", *names), rows), kind="wide")
    text = page(
        " and ".join(names) if len(names) == 2 else f"{len(names)} runs",
        "Comparison of runs; differences and ratios are relative to the first run",
        warning(found) if (found := data_warning(runs)) else "",
        *map(_unfinished, runs),
        section("Results", card("", table(("", *heads), comparison_rows(runs)), kind="wide")),
        section("Settings that differ", differing),
        section("Training", *map(picture_card, curves)),
        *(section(title, *(picture_card(each, each.title) for each in row)) for title, row in by_title.items()),
        section("Details", folded("Terms on this page", glossary())),
    )
    return text, [*curves, *(picture for row in by_title.values() for picture in row)]


#: Pictures that are drawn for each run: title, whether they share a scale, and the function that draws one.
_PER_RUN: tuple[tuple[str, bool, Callable[[RunFacts], Picture | None]], ...] = (
    ("Time of each rank", True, time_picture),
    ("Communication", False, bytes_picture),
    ("Rows exchanged", False, rows_picture),
    ("Nonzeros", False, lambda facts: nonzeros_picture(facts) or blocks_picture(facts)),
    ("Peak memory", True, memory_picture),
    ("Bytes read", True, reading_picture),
)


def _pictures_by_title(runs: Sequence[RunFacts]) -> dict[str, list[Picture]]:
    """Draw the pictures of each run, by title."""
    by_title = {}
    for title, has_one_scale, draw in _PER_RUN:
        pictures = []
        for facts in runs:
            if (picture := draw(facts)) is not None:
                name = f"{picture.name}-{facts.dataset.name}-{facts.run.name}"
                heading = f"{facts.name}: {picture.title[0].lower()}{picture.title[1:]}"
                pictures.append(replace(picture, name=name, title=heading))
        # Bars of different runs can only be compared on one axis.
        if has_one_scale:
            share_scale(pictures)
        by_title[title] = _full_rows(pictures)
    return by_title
