"""Reports and the manual in a real browser, in wide and narrow windows, light and dark (`make test-browser`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gnnloom.storage import Catalog
from gnnloom.workflows.report.build import write_comparison, write_report
from gnnloom.workflows.report.facts import RunFacts
from support.browser import CHROMIUM, Page, browser
from support.reported_runs import store_reported, store_run

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]

ROOT = Path(__file__).resolve().parents[3]
#: `make docs` builds them.
MANUAL: Final = ROOT / "build" / "docs"
WINDOWS: Final = [(width, dark) for width in (1280, 400) for dark in (False, True)]
LOW_CONTRAST: Final = (ROOT / "tests" / "support" / "browser_checks.js").read_text()
CLASSES: Final = {
    "class_epoch": 3,
    "confusion": [[8, 2], [1, 3]],
    "per_class": [
        {"class": number, "precision": 0.6, "recall": 0.75, "f1": 0.667, "support": 4} for number in range(2)
    ],
}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report and a comparison."""
    pytest.importorskip("matplotlib")
    root = tmp_path_factory.mktemp("reports")
    dataset = store_reported(Catalog(root / "catalog"))
    store_run(dataset, "rows", 3, result=CLASSES)
    store_run(dataset, "grid", 4, layout="grid")
    facts = [RunFacts.gather(dataset, name) for name in ("rows", "grid")]
    return {
        "report": write_report(facts[0], root / "report")[0],
        "comparison": write_comparison(facts, root / "comparison")[0],
    }


def check_page(tab: Page, file: Path, width: int, *, dark: bool) -> None:
    tab.open(file.as_uri(), width, dark=dark)
    assert tab.problems == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width, "the page is wider than the window"
    assert tab.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == dark
    assert tab.evaluate(LOW_CONTRAST) == []


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
@pytest.mark.parametrize("name", ["report", "comparison"])
def test_reports_fit_the_window_and_can_be_read(
    tab: Page, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    check_page(tab, pages[name], width, dark=dark)
    # In the sizes of the screen, in which letters of 9 points are legible.
    smallest = "Math.min(...[...document.querySelectorAll('.card svg')].map(s => s.getBoundingClientRect().width))"
    assert tab.evaluate(smallest) >= 400


@pytest.mark.parametrize("name", ["report", "comparison"])
def test_every_picture_has_a_table_and_a_text_with_numbers(tab: Page, pages: dict[str, Path], name: str) -> None:
    tab.open(pages[name].as_uri(), 1280)
    pictures: list[dict[str, Any]] = tab.evaluate(
        "[...document.querySelectorAll('.card:has(svg)')].map(card => ({title: card.querySelector('h3').textContent,"
        " text: card.querySelector('svg').getAttribute('aria-label'),"
        " rows: card.querySelectorAll('details.values tbody tr').length}))"
    )
    assert len(pictures) > 8
    for each in pictures:
        assert each["rows"] > 0, each
        assert any(letter.isdigit() for letter in each["text"]), each
        assert each["text"] != each["title"], each


def test_values_are_shown_under_the_pointer(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["report"].as_uri(), 1280)
    find = "document.querySelectorAll('.spot')[3]"
    shown = f"getComputedStyle({find}.querySelector('.tip')).display"
    assert tab.evaluate(shown) == "none"
    area = f"{find}.querySelector('rect').getBoundingClientRect()"
    x, y, width, height = tab.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({area})")
    tab.hover(x + width / 2, y + height / 2)
    assert tab.evaluate(shown) != "none"
    assert tab.evaluate(f"{find}.querySelector('.tip text').textContent").startswith("epoch 4")


def test_values_are_shown_by_the_keyboard(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["report"].as_uri(), 400)
    for _ in range(6):
        tab.press("Tab", 9)
        if tab.evaluate("document.activeElement.matches('details.values > summary')"):
            break
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    cell = "document.activeElement.parentElement.querySelector('tbody td:last-child')"
    assert not tab.evaluate(f"{cell}.checkVisibility()")
    tab.press("Enter", 13)
    assert tab.evaluate(f"{cell}.checkVisibility()")
    assert float(tab.evaluate(f"{cell}.textContent")) > 0


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
@pytest.mark.parametrize(
    "name",
    ["index", "tutorial", "how-to/troubleshooting", "explanation/comparison", "reference/cli", "reference/python"],
)
def test_the_manual_fits_the_window_and_can_be_read(tab: Page, name: str, width: int, dark: bool) -> None:
    if not MANUAL.is_dir():
        pytest.skip("`make docs` has not built the manual")
    check_page(tab, MANUAL / f"{name}.html", width, dark=dark)
