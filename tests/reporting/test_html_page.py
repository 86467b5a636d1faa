"""A report's page is whole, escapes everything, fetches nothing, and needs the report alone."""

# ruff: noqa: D102
from __future__ import annotations

import html.parser
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin
from xml.etree import ElementTree

import pytest
from pydantic import BaseModel

from jaxbench import storage
from jaxbench.judging import compare
from jaxbench.reporting import schema
from jaxbench.reporting.html import curves, drawing, page, tuning
from reporting.sample import BASELINE, IDEA, sample_report

COMMITTED = sorted((Path(__file__).parents[2] / "results").glob("*/*/report.json"))
HOSTILE = "<script>alert('$x$')</script><img src=x onerror=alert(1)>\"&amp;\x00{{ 7*7 }}"
VOID = {"meta", "link", "br", "img", "input"}


class Document(html.parser.HTMLParser):
    """The elements of a page, in order, with a check that they are nested properly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def full_report() -> dict[str, Any]:
    """Add to the sample what it lacks: curves of all seeds, more numbers, points, a ledger."""
    report = sample_report()
    bench = report["bench_report"]
    for number, side in enumerate(("baseline", "idea")):
        runs = [[0.5 + seed / 10, 0.1 + number, 0.01 * (seed + 1)] for seed in range(8)]
        arm = bench["arms"][side]
        arm["curves"] = {"train_loss": runs, "interval": [[1, 2, None] for _ in range(8)]}
        arm["measured"] = {"rho_hat": [1.0, None, 1.5]}
        bench[side] = arm
    points = {"predicted": [0.1, 0.2], "measured": [0.11, 0.19], "of": 2}
    bench["mechanism_signature"]["signatures"][0]["points"] = {
        "predicted": "log_predicted",
        "measured": "log_measured",
        "equal": True,
        "panels": {"idea": points, "null": points, "untrained": points},
    }
    look = {"idea_arm": "idea", "baseline_arm": "baseline", "role": "primary", "looks": 3}
    look |= {"baseline_digest": "ab", "looks_of_this_study": 1, "p": 0.01, "p_corrected": 0.03}
    bench["ledger"] = {"file": "ledger.jsonl", "date": "2026-01-01", "comparisons": [look]}
    bench["provenance"] = {"versions": {"jax": "0.10"}, "devices": "2 x cpu", "xla_flags": ""}
    return report


@pytest.fixture(scope="module")
def text() -> str:
    """The page of the full report."""
    return page.render(full_report())


@pytest.fixture(scope="module")
def document(text: str) -> Document:
    return Document(text)


def test_the_verdict_comes_first_then_every_section(text: str, document: Document) -> None:
    headings = re.findall(r"<h([1-6])", text)
    assert headings[0] == "1"
    assert headings.count("1") == 1
    assert all(int(b) - int(a) <= 1 for a, b in itertools.pairwise(headings))
    parts = [
        "The idea is worse than the tuned baseline: over 8 seeds its MSE differs by +59.8",
        "The idea is worse: the mean MSE rises by 0.002293 [sic].",
        "Paired scores and their difference",
        "Differences relative to the baseline",
        "Tuning of both arms",
        "Learning curves",
        "What else was logged",
        "Mechanism: what the explanation predicted",
        "growth: prediction against measurement",
        "Cost",
        "Limitations",
        "How to run it again",
        "Provenance",
    ]
    place = 0
    for part in parts:
        place = document.words.index(part, place)
    ids = [attributes["id"] for _, attributes in document.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {str(a["href"])[1:] for a in document.all("a") if str(a["href"]).startswith("#")}
    assert links <= set(ids)


@pytest.mark.parametrize(
    "expected",
    [
        r"\+59\.8.%",
        r"\+0\.000886\d to \+0\.003\d+",
        r"idea 0\.01 1 0\.006128 0\.1 0 chosen high learning rate",
        r"0 0\.004058 0\.005886 \+0\.001828",
        r"linear 0\.001 ",
        r"null: no growth no 0\.5 slope is 1\.01",
        r"control: untrained untestable",
        r"1 0\.85 \(0\.675 to 1\.02\)",
        r"rho hat 1\.25",
        r"flops 1\.25.\u00d7.10\u00b9\u00b2",
        r"jaxbench run stability_penalty --set 'title=a b'",
        r"idea baseline 3 0\.01 0\.03",
    ],
)
def test_the_numbers_are_there(document: Document, expected: str) -> None:
    assert re.search(expected, document.words), expected


def test_a_reader_without_eyes_has_names_for_everything(document: Document) -> None:
    assert document.all("html")[0]["lang"] == "en"
    ids = {attributes.get("id") for _, attributes in document.elements}
    pictures = document.all("svg")
    assert len(pictures) == 8
    assert all(each["role"] == "img" and each["aria-labelledby"] in ids for each in pictures)
    assert len(document.all("table")) == len(document.all("caption"))
    assert all(each.get("scope") in ("col", "row") for each in document.all("th"))
    for _, attributes in document.elements:
        if attributes.get("role") == "region":
            assert attributes["aria-label"]
            assert attributes["tabindex"] == "0"
    figures = document.all("figure")
    assert len(document.all("details")) >= len(figures) == len(pictures)


def test_a_page_fetches_nothing_and_runs_nothing(text: str, document: Document) -> None:
    assert not document.all("script")
    policy = document.all("meta")[3]
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert "script-src" not in str(policy["content"])
    assert str(policy["content"]).startswith("default-src 'none'")
    for name, attributes in document.elements:
        for key in ("src", "href", "xlink:href"):
            assert str(attributes.get(key, "#")).startswith(("#", "data:")), (name, attributes)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def everywhere_hostile(value: Any) -> Any:
    """Put markup before every string."""
    if isinstance(value, dict):
        return {key: everywhere_hostile(each) for key, each in value.items()}
    if isinstance(value, list):
        return [everywhere_hostile(each) for each in value]
    return HOSTILE + value if isinstance(value, str) else value


def test_whatever_a_report_says_is_text() -> None:
    report = full_report()
    hostile_report = everywhere_hostile(json.loads(json.dumps(report)))
    literals = [  # what the schema holds to a list of words, without which it is no report
        ("practical_verdict",), ("system_verdict",), ("bench_report", "metric_direction"),
        ("bench_report", "metric", "direction"), ("bench_report", "protocol", "rules"),
        ("bench_report", "protocol", "parity", "mode"),
        ("bench_report", "protocol", "selected_on"), ("bench_report", "comparison", "outcome"),
        ("bench_report", "comparison", "verdict"), ("bench_report", "comparison", "direction"),
        ("bench_report", "mechanism_signature", "state"),
    ]  # fmt: skip
    for place in literals:
        _copy(report, hostile_report, place)
    for arm in ("baseline", "idea"):
        for of in (hostile_report["bench_report"], hostile_report["bench_report"]["arms"]):
            of[arm]["edge_of_grid"] = {f"learning_rate{HOSTILE}": "high"}
            of[arm]["best_cfg"] = {f"learning_rate{HOSTILE}": 0.01}
            for trial in of[arm]["sweep"]:
                trial["cfg"] = {f"{key}{HOSTILE}": value for key, value in trial["cfg"].items()}
            of[arm]["curves"] = {
                (key if key == "train_loss" else key + HOSTILE): value
                for key, value in of[arm]["curves"].items()
            }
    bench = hostile_report["bench_report"]
    bench["arms"] = {f"{key}{HOSTILE}": value for key, value in bench["arms"].items()}
    for place, entry in enumerate(report["bench_report"]["mechanism_signature"]["signatures"]):
        bench["mechanism_signature"]["signatures"][place]["state"] = entry["state"]
    for place, entry in enumerate(report["bench_report"]["comparisons"]):
        for key in ("outcome", "verdict", "role", "direction"):
            bench["comparisons"][place][key] = entry[key]
    bench["ledger"]["comparisons"][0]["role"] = "primary"
    schema.check_report(hostile_report)

    document = Document(page.render(hostile_report))
    assert not document.all("script")
    assert not document.all("img")
    assert not any(
        key.startswith("on") for _, attributes in document.elements for key in attributes
    )
    assert document.words.count("<script>alert('$x$')</script>") > 60
    assert "{{ 7*7 }}" in document.words
    for some in page.figures(hostile_report).values():
        for each in some:
            ElementTree.fromstring(drawing.embedded(each))


def _copy(source: Any, target: Any, place: tuple[str, ...]) -> None:
    for part in place[:-1]:
        source, target = source[part], target[part]
    target[place[-1]] = source[place[-1]]


def only_required(value: Any, model: Any) -> Any:
    """Leave out of a report all that its schema does not ask for."""
    if isinstance(value, dict) and isinstance(model, type) and issubclass(model, BaseModel):
        return {
            name: only_required(value[name], field.annotation)
            for name, field in model.model_fields.items()
            if field.is_required()
        }
    if isinstance(value, dict) and get_origin(model) is dict:
        return {key: only_required(each, get_args(model)[1]) for key, each in value.items()}
    if isinstance(value, list) and get_args(model):
        return [only_required(each, get_args(model)[0]) for each in value]
    return value


def test_a_report_with_the_required_fields_alone_has_a_page() -> None:
    report = only_required(sample_report(), schema.Report)
    schema.check_report(report)
    assert "tost" not in report["bench_report"]["comparison"]
    words = Document(page.render(report)).words
    assert "Paired scores and their difference" in words
    assert "Learning curves" not in words


@pytest.mark.parametrize("lost", [{0}, set(range(8))], ids=["one", "all"])
def test_diverged_runs_are_in_the_tables_and_not_in_the_figures(lost: set[int]) -> None:
    report = sample_report()
    bench = report["bench_report"]
    scores = [None if seed in lost else score for seed, score in enumerate(IDEA)]
    diverged = [{"seed": seed, "step": 17} for seed in lost]
    bench["idea"]["full"].update(per_seed=scores, mean=None, std=None, diverged=diverged)
    bench["idea"]["sweep"][0].update(mean=None, std=None, diverged=2)
    bench["idea"]["curves"] = {"train_loss": [[0.5, None]] * 8}
    bench["comparison"] = compare(BASELINE, scores, direction="lower").to_dict()
    bench["comparisons"] = []
    bench["arms"]["idea"] = bench["idea"]
    words = Document(page.render(report)).words
    assert "runs diverged, so ranks decide" in words
    assert "0 0.004058 diverged \u2013" in words
    assert ("1 seed on which a run diverged is left out" in words) == (len(lost) == 1)
    assert ("these are the scores that there are" in words) == (len(lost) == 8)


def test_the_same_report_gives_the_same_page(text: str) -> None:
    assert page.render(full_report()) == text


@pytest.mark.parametrize("path", COMMITTED[:1] + COMMITTED[3:4], ids=str)
def test_committed_reports_have_pages(path: Path) -> None:
    report = storage.read_report(path)
    document = Document(page.render(report))
    assert len(document.all("svg")) >= 4
    assert report["verdict"] in document.words


def test_figures_for_papers_are_the_formats_they_say(tmp_path: Path) -> None:
    drawn = page.figures(full_report())["scores"][0]
    paths = drawing.save(drawn, tmp_path, drawing.FORMATS)
    magic = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF"}
    for path in paths:
        assert path.read_bytes().startswith(magic[path.suffix[1:]]), path
    first = {path: path.read_bytes() for path in paths}
    drawing.save(page.figures(full_report())["scores"][0], tmp_path, drawing.FORMATS)
    assert {path: path.read_bytes() for path in paths} == first


def test_colours_of_a_page_are_its_variables() -> None:
    """Both schemes of the style sheet define every colour of a figure."""
    svg = drawing.embedded(page.figures(full_report())["scores"][1])
    assert "#" + "1f5fa8" not in svg
    used = set(re.findall(r"var\(--(\w+)\)", svg))
    assert used >= {"ink", "idea", "shade"}
    sheet = (Path(page.__file__).parent / "templates" / "style.css").read_text()
    light, dark = sheet.split("prefers-color-scheme: dark", 1)
    for name in drawing.COLOURS:
        assert f"--{name}:" in light
        assert f"--{name}:" in dark.split("\n}\n", 1)[0]


def test_quartiles_are_of_the_runs_that_are_left() -> None:
    found = curves.quartiles([[1.0, 1.0, None], [2.0, None, None], [3.0, 3.0, None]])
    assert found[:, 0].tolist() == [1.5, 2.0, 2.5]
    assert found[:, 1].tolist() == [1.5, 2.0, 2.5]
    assert bool((found[:, 2] != found[:, 2]).all())


def test_a_tuning_curve_is_the_best_over_the_other_hyperparameters() -> None:
    sweep = [
        {"cfg": {"rate": rate, "weight": weight}, "mean": mean, "std": 0.0}
        for rate, weight, mean in [(0.1, 0, 3.0), (0.1, 1, 2.0), (0.2, 0, None), (0.2, 1, 5.0)]
    ]
    assert tuning.best_at(sweep, "rate", "lower") == [(0.1, 2.0, 0.0), (0.2, 5.0, 0.0)]
    assert tuning.best_at(sweep, "weight", "higher") == [(0, 3.0, 0.0), (1, 5.0, 0.0)]


RENDER = """
import sys
from jaxbench import storage
from jaxbench.reporting.html import page
page.render(storage.read_report(sys.argv[1]))
print([name for name in ("jax", "flax", "scipy.stats", "matplotlib.pyplot") if name in sys.modules])
"""


def test_a_page_is_made_without_jax() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RENDER, str(COMMITTED[0])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


Edit = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda judged: judged.update(acted=False), "The idea did not act"),
        (lambda judged: judged.update(negligible=True), "by a difference too small to matter"),
        (lambda judged: judged.update(delta_mean=None), "ranks decide (p = 0.007812)"),
    ],
)
def test_the_headline_says_what_the_numbers_say(edit: Edit, expected: str) -> None:
    judged = sample_report()["bench_report"]["comparison"]
    edit(judged)
    metric = {"name": "MSE", "unit": "", "direction": "lower"}
    assert expected in page.headline(judged, metric)
