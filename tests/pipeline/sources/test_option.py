"""Options are merged, checked and refused as their descriptors say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnloom.pipeline.sources.format import checked_options, formats, merge_options, open_edges
from gnnloom.pipeline.sources.generators.generator import generators
from gnnloom.pipeline.sources.vertex_data.kind import vertex_kinds
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option


def test_options_of_all_owners_are_merged_with_common_ones_last() -> None:
    seed, dim, header = Option("seed", int, "Seed."), Option("dim", int, "Width."), Option("header", bool, "Header.")
    merged = merge_options({"first": (seed, dim), "second": (header, seed)})
    assert list(merged) == ["dim", "header", "seed"]
    assert merged["seed"].owners == ("first", "second")
    with pytest.raises(InputError, match=r"second and first:.*'dim'"):
        merge_options({"first": (dim,), "second": (Option("dim", str, "Name."),)})


def test_names_of_files_and_texts_are_one_type() -> None:
    file, name = Option("split", Path, "File."), Option("split", str, "Name.")
    assert merge_options({"files": (file,), "ogb": (name,)})["split"].option == file


@pytest.mark.parametrize(
    ("option", "wrong", "reason"),
    [
        (Option("scale", int, "Scale.", least=1, most=40), 41, "scale 41: expected at most 40"),
        (Option("skew", float, "Skew.", least=0, below=1), 1.0, r"skew 1\.0: expected a number from 0 to below 1"),
    ],
)
def test_a_number_out_of_range_is_named(option: Option, wrong: float, reason: str) -> None:
    option.check(option.least)
    with pytest.raises(InputError, match=reason):
        option.check(wrong)


def test_only_given_options_are_passed_on() -> None:
    known = (Option("weights", bool, "Weights."), Option("header", bool, "Header.", deniable=True))
    assert checked_options("format", known, {"weights": False, "header": False, "packed": False}) == {"header": False}
    assert checked_options("format", known, {"weights": True, "header": None}) == {"weights": True}
    with pytest.raises(InputError, match="format has no option packed; it has weights, header"):
        checked_options("format", known, {"packed": True})


def test_every_descriptor_has_its_own_name_and_one_line_of_help() -> None:
    for found in (formats(), generators(), vertex_kinds()):
        for name, descriptor in found.items():
            assert descriptor.name == name
            assert descriptor.help
            assert "\n" not in descriptor.help
            assert all(option.help[0].isupper() or not option.help[0].isalpha() for option in descriptor.options)


def test_a_format_refuses_options_of_another(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("0 1\n")
    with pytest.raises(InputError, match=r"format 'snap'.* packed.*extra_columns"):
        open_edges("snap", [str(path)], {"packed": True})
