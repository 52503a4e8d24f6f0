"""Takes the categories, means and classes of chosen columns from stored vertex data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from gnnloom.pipeline.sources.vertex_data.chosen.chosen_columns import ChosenColumns
from gnnloom.pipeline.sources.vertex_data.chosen.surveys import KnownColumns, Survey
from gnnloom.pipeline.sources.vertex_data.table_columns import Column
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import shell_command


def like_known(chosen: ChosenColumns, known: KnownColumns) -> ChosenColumns:
    """The same columns, whose categories, means and classes come from stored vertex data.

    Raises:
        InputError: the stored vertex data have other columns.
    """
    if chosen.array == "label":
        return _like_labels(chosen, known)
    return _like_features(chosen, known) if chosen.array == "feature" and known.columns else chosen


def _like_labels(chosen: ChosenColumns, known: KnownColumns) -> ChosenColumns:
    is_named, where = chosen.columns[0].kind == "words", chosen.file.location
    if is_named != bool(known.class_names):
        now, before = ("names", "numbers") if is_named else ("numbers", "names")
        raise InputError(f"{where}: labels are {now} of classes, but the labels of {known.where} are {before}")
    if not is_named:
        return chosen
    stated = {**chosen.stated, "like": _digest_of([*known.class_names])}
    return replace(chosen, surveyed=(Survey(known.class_names),), stated=stated, known=known)


def _like_features(chosen: ChosenColumns, known: KnownColumns) -> ChosenColumns:
    where, marked = chosen.file.location, {each["name"] for each in known.columns if each.get("missing")}
    before = [each for each in known.columns if not each.get("missing")]
    names, wanted = [column.name for column in chosen.columns], [each["name"] for each in before]
    if names != wanted:
        given = f"{where}:{','.join(wanted)}"
        raise InputError(
            f"{where}: the features are columns {', '.join(names)}, but the features of {known.where} are"
            f" {', '.join(wanted)}; name these, in this order: `{shell_command('--feature', given)}`"
        )
    surveyed = []
    for column, each in zip(chosen.columns, before, strict=True):
        has_words = column.kind == "words"
        if has_words != ("words" in each) or not (has_words or column.width == each["width"]):
            raise InputError(f"{where}, column {column.name}: {_kind(column)}, unlike the column of {known.where}")
        lacks = "filled" in each or each["name"] in marked
        surveyed.append(Survey(tuple(each.get("words", ())), tuple(each.get("filled", ())), lacks))
    stated = {**chosen.stated, "like": _digest_of([dict(each) for each in known.columns])}
    return replace(chosen, surveyed=tuple(surveyed), stated=stated, known=known)


def _kind(column: Column) -> str:
    return "words" if column.kind == "words" else f"{column.width:,} numbers" if column.width > 1 else "a number"


def _digest_of(content: Any) -> str:
    """16 hexadecimal digits of the digest of JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
