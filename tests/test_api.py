"""The stable names of the package, and a study from Python."""

from __future__ import annotations

import copy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from reporting.sample import BASELINE, IDEA, sample_report

import jaxbench
from jaxbench import JaxbenchError, Report

STUDY: dict[str, Any] = {
    "track": {"name": "tabular", "train_size": 32, "validation_size": 8, "test_size": 8},
    "model": {"name": "mlp_tiny", "hidden": [4]},
    "training": {"epochs": 2, "batch_size": 8},
    "protocol": {"seeds": 3, "tuning_seeds": 1},
    "grid": {"learning_rate": [0.01]},
    "arms": {"baseline": {"intervention": "none"}, "idea": {"intervention": "none"}},
    "quick": {"training": {"epochs": 1}},
}


def test_every_stable_name_is_there_and_listed() -> None:
    assert len(set(jaxbench.__all__)) == len(jaxbench.__all__)
    for name in jaxbench.__all__:
        assert getattr(jaxbench, name) is not None
        assert name in dir(jaxbench)
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        _ = jaxbench.no_such
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        _ = jaxbench.interventions.no_such


def test_names_are_loaded_when_they_are_used() -> None:
    """Components are attributes of their packages, and importing jaxbench loads none of it."""
    code = """
import sys, jaxbench
assert not {"jax", "numpy", "pydantic", "click"} & set(sys.modules), "imported too early"
print(jaxbench.judging.compare([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], direction="lower").delta_mean)
assert "jax" not in sys.modules, "judging needs no jax"
print(jaxbench.interventions.stability_penalty.build().name, jaxbench.tracks.tabular.build().name)
print(jaxbench.models.mlp_tiny.build(outputs=1).name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1.0", "stability_penalty", "tabular", "mlp_tiny"]


def test_a_study_is_run_from_a_dict_and_saved(tmp_path: Path) -> None:
    study = copy.deepcopy(STUDY)
    report = jaxbench.run_study(study, changes={"training.epochs": 3, "name": "mine"})
    assert study == STUDY
    assert report.bench["config"]["training"]["epochs"] == 3
    assert not report.bench["comparison"]["acted"]
    assert (report.outcome, report.p_value, report.difference) == ("equivalent", 1.0, 0.0)
    assert report.practical_verdict == "inconclusive"
    assert report.scores["idea"] == report.scores["baseline"]
    path = report.save(tmp_path)
    assert path == tmp_path / "mine" / report.bench["run_id"] / "report.json"
    assert Report.load(path).document == report.document
    assert Report.load(path.parent) == dict(report)


def test_a_config_is_checked_and_changed() -> None:
    loaded = jaxbench.load_config(STUDY, quick=True, seeds=5)
    assert (loaded.training.epochs, loaded.protocol.seeds, loaded.name) == (1, 5, "study")
    assert jaxbench.load_config(loaded) is loaded
    again = jaxbench.load_config(loaded, changes={"grid.learning_rate": [0.1, 0.2]})
    assert again.grid == {"learning_rate": (0.1, 0.2)}
    with pytest.raises(JaxbenchError, match="did you mean epochs"):
        jaxbench.load_config(STUDY, changes={"training.epoch": 3})
    assert jaxbench.load_config("stability_penalty", quick=True).training.epochs == 3


def test_a_report_shows_itself() -> None:
    report = Report(sample_report())
    assert repr(report).startswith("<jaxbench report of stability_penalty: The idea is worse")
    assert "Does [bold]it[/bold] help?" in str(report)
    assert report.difference == pytest.approx(sum(IDEA) / 8 - sum(BASELINE) / 8)
    assert (report.worked, report.confidence, report.system_verdict) == (False, 9, "failed")
    assert report["how_to_run"] == sample_report()["how_to_run"]
    assert set(report) == set(sample_report())


def test_in_a_notebook_it_is_a_table_and_text_is_escaped() -> None:
    document = sample_report()
    document["bench_report"]["title"] = "<script>alert(1)</script> & more"
    text = Report(document)._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text

    class Balance(HTMLParser):
        """Open tags, closed in their order."""

        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []
            self.seen: list[str] = []

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.seen.append(tag)
            if tag != "br":
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    balance = Balance()
    balance.feed(text)
    assert not balance.open
    assert balance.seen.count("tr") >= 8
    assert "+0.002293" in text
    assert text.index("The idea is worse") < text.index("<table>")
    assert "caption" not in text
    detectable = document["bench_report"]["comparison"]["mde_80"]
    assert f"{detectable:.4g}" in text
    assert "idea learning_rate at the high edge" in text
