"""Pages in a real browser: no errors, readable on a phone and in the dark, by keyboard too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxbench import storage
from jaxbench.reporting import studies
from jaxbench.reporting.html import index_page, page
from reporting.test_html_page import full_report

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install 'jaxbench[browser]'"
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE = 120_000
RESULTS = Path(__file__).parents[2] / "results"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report's page, and the index of the committed reports."""
    folder = tmp_path_factory.mktemp("pages")
    paths = {"report": folder / "report.html", "index": folder / "index.html"}
    paths["report"].write_text(page.render(full_report()))
    paths["index"].write_text(index_page.render(studies.collect(RESULTS), folder))
    return paths


def opened(browser: Any, path: Path, **options: Any) -> Any:
    """Open a page; whatever it complains about fails the test, and so does any request."""
    tab = browser.new_page(**options)
    tab.set_default_timeout(PATIENCE)
    tab.complaints = []
    tab.on("console", lambda message: tab.complaints.append(message.text))
    tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.on(
        "request",
        lambda request: (
            request.url.startswith(("file:", "data:")) or tab.complaints.append(request.url)
        ),
    )
    tab.goto(path.as_uri())
    return tab


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("name", ["report", "index"])
def test_no_errors_and_no_sideways_scrolling(
    browser: Any, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    tab = opened(
        browser, pages[name], viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    assert tab.complaints == []
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    ink, paper = tab.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert contrast(ink, paper) >= 7
    for selector in ("svg text", "figcaption strong", ".quiet", "summary"):
        for colour in tab.evaluate(
            "s => [...document.querySelectorAll(s)].map(e => e.tagName == 'text'"
            " ? getComputedStyle(e).fill : getComputedStyle(e).color)",
            selector,
        ):
            assert contrast(colour, paper) >= 4.5, selector
    tab.close()


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours `rgb(r, g, b)` (WCAG 2.2)."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return float(sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_data_of_a_figure_opens_by_keyboard(browser: Any, pages: dict[str, Path]) -> None:
    tab = opened(browser, pages["report"])
    table = tab.locator("#figure-pairs table")
    assert not table.is_visible()
    tab.locator("#figure-pairs summary").focus()
    tab.keyboard.press("Enter")
    assert table.is_visible()
    assert tab.get_by_role("img", name="Scores of each seed").count() == 1
    tab.close()


def test_rows_of_the_index_are_filtered_and_sorted(browser: Any, pages: dict[str, Path]) -> None:
    tab = opened(browser, pages["index"])
    rows = tab.locator("#table tbody tr:visible")
    everything = rows.count()
    found = studies.collect(RESULTS).studies
    assert everything == len(found)
    tab.get_by_label("Track").select_option("tabular")
    tabular = [each for each in found if each.track == "tabular"]
    assert 0 < rows.count() == len(tabular) < everything
    assert tab.get_by_role("status").inner_text() == f"{len(tabular)} of {everything} shown"
    tab.get_by_label("Track").select_option("")
    tab.get_by_label("Search").fill("no such study")
    assert rows.count() == 0
    tab.get_by_label("Search").fill("")
    tab.get_by_role("button", name="gain").focus()
    tab.keyboard.press("Enter")
    gains = sorted(each.gain for each in found if each.gain is not None)
    shown = tab.evaluate(
        "[...document.querySelectorAll('#table tbody tr')].map(r => r.cells[2].dataset.value)"
    )
    assert [float(value) for value in shown if value] == pytest.approx(gains)
    assert tab.locator("th[aria-sort=ascending]").inner_text().startswith("gain")
    assert tab.complaints == []
    tab.close()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*/report.json")), ids=str)
def test_every_committed_report_opens(browser: Any, tmp_path: Path, path: Path) -> None:
    made = tmp_path / "report.html"
    made.write_text(page.render(storage.read_report(path)))
    tab = opened(browser, made, viewport={"width": 360, "height": 800})
    assert tab.complaints == []
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    boxes = tab.evaluate(
        "[...document.querySelectorAll('svg')].map(e => e.getBoundingClientRect().width)"
    )
    assert boxes
    assert min(boxes) > 200
    tab.close()
