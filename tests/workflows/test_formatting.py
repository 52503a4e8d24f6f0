"""Sizes are read from text and figures are written as text, with the units that people use."""

from __future__ import annotations

import pytest

from gnnloom.storage.machine_memory import memory_text
from gnnloom.storage.option import parse_bytes
from gnnloom.workflows.formatting import readable, readable_bytes, readable_seconds


@pytest.mark.parametrize(
    ("text", "size"), [("7", 7), ("512M", 512 << 20), ("1.5GiB", 3 << 29), ("2 kb", 2048), ("1t", 1 << 40)]
)
def test_a_size_may_have_any_usual_unit(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1G", "1P", "1 G B", "G", "9" * 400, "1e400", "x" * 10**6])
def test_text_that_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size such as 512M or 1G"):
        parse_bytes(text)


def test_figures_have_the_unit_that_their_name_implies() -> None:
    assert readable("peak_memory", 3 << 29) == readable("bytes_read", 3 << 29) == "1.5 GiB"
    assert readable("spill_bytes", 10) == "10 B"
    assert readable("epoch_seconds", 0.25) == "250 ms"
    assert readable("vertices", 1_234_567) == "1,234,567"
    assert (readable("loss", 0.123456), readable("grid", None), readable("directed", False)) == ("0.1235", "-", "False")


def test_units_grow_with_the_figure() -> None:
    assert [readable_bytes(1 << shift) for shift in (0, 10, 20, 30, 40)] == [
        "1 B",
        "1.0 KiB",
        "1.0 MiB",
        "1.0 GiB",
        "1.00 TiB",
    ]
    assert (readable_seconds(0.0123), readable_seconds(61.04)) == ("12 ms", "61.0 s")
    assert (readable_seconds(754), readable_seconds(7540)) == ("13 min", "2 h 6 min")


def test_a_figure_that_is_rounded_up_takes_the_next_unit() -> None:
    assert [readable_bytes((1 << shift) - 1) for shift in (10, 20, 30)] == ["1023 B", "1.0 MiB", "1.0 GiB"]
    assert (readable_bytes(1023.7), readable_bytes(1000 << 10)) == ("1.0 KiB", "1000.0 KiB")
    assert (readable_seconds(0.9996), readable_seconds(0.9994)) == ("1.0 s", "999 ms")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (12, "12 bytes"), (4096, "4 KiB"), (300 << 20, "300 MiB"), (3 << 29, "1.5 GiB")],
)
def test_small_sizes_have_small_units(count: int, text: str) -> None:
    assert memory_text(count) == text
