"""Many studies: one row each, one family of p-values, a leaderboard a track, a page offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jaxbench import cli, storage
from jaxbench.base import JaxbenchError
from jaxbench.judging import compare, holm
from jaxbench.reporting import studies
from jaxbench.reporting.html import index_page
from reporting.sample import BASELINE, IDEA, sample_report
from reporting.test_html_page import HOSTILE, Document

RESULTS = Path(__file__).parents[2] / "results"


def put(folder: Path, name: str, idea: list[Any], **changes: Any) -> Path:
    """Write a study whose idea has these scores."""
    report = sample_report()
    bench = report["bench_report"]
    judged = compare(BASELINE, idea, direction="lower").to_dict()
    bench["comparison"] = judged
    bench["comparisons"] = [
        {**judged, "idea_arm": "idea", "baseline_arm": "baseline", "role": "primary"}
    ]
    bench.update({"study": name, "run_id": name * 2, **changes})
    return storage.write_report(folder, report)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three studies, two of them on one track, and what is none."""
    put(tmp_path, "worse", IDEA)
    put(tmp_path, "better", [score * 0.5 for score in BASELINE])
    put(tmp_path, "other", [None, *IDEA[1:]], track="elsewhere", title=HOSTILE)
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "report.json").write_text("{}")
    return tmp_path


def test_primary_comparisons_are_corrected_as_one_family(folder: Path) -> None:
    found = studies.collect(folder)
    assert [each.study for each in found.studies] == ["better", "other", "worse"]
    assert [each.p_family for each in found.studies] == holm([each.p for each in found.studies])
    assert [each.significant for each in found.studies] == [
        each.p_family <= 0.05 for each in found.studies
    ]
    assert list(found.skipped) == ["strange/report.json"]
    assert found.to_dict()["family_size"] == 3


def test_ideas_are_ranked_by_what_they_improve(folder: Path) -> None:
    boards = {board.track: board for board in studies.collect(folder).leaderboards}
    assert [each.study for each in boards["dynamics"].studies] == ["better", "worse"]
    better, worse = boards["dynamics"].studies
    assert better.gain == pytest.approx(0.5)
    assert worse.gain is not None
    assert worse.gain < 0
    assert boards["elsewhere"].studies[0].gain is None


def test_tracks_with_other_options_are_not_compared(folder: Path) -> None:
    put(folder, "quick", IDEA, track_options={"preset": "other"})
    boards = [board for board in studies.collect(folder).leaderboards if board.track == "dynamics"]
    assert [len(board.studies) for board in boards] == [1, 2]


def test_a_page_lists_them_and_leads_to_their_pages(folder: Path) -> None:
    (folder / "better" / "betterbetter" / "report.html").write_text("")
    text = index_page.render(studies.collect(folder), folder)
    document = Document(text)
    links = [str(each["href"]) for each in document.all("a")]
    assert "better/betterbetter/report.html" in links
    assert "worse/worseworse/report.json" in links
    assert len(document.all("script")) == 1
    assert not document.all("img")
    assert "<script>alert('$x$')</script>" in document.words
    rows = [attributes for name, attributes in document.elements if "data-outcome" in attributes]
    assert [each["data-track"] for each in rows] == ["dynamics", "elsewhere", "dynamics"]
    assert index_page.link(studies.collect(folder).studies[0], folder, folder.parent) == (
        f"{folder.name}/better/betterbetter/report.html"
    )


def test_the_command_writes_the_page_and_prints_the_table(folder: Path) -> None:
    result = CliRunner().invoke(cli.cli, ["index", str(folder)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "3 studies in" in result.stdout
    assert "skipped strange/report.json" in result.stdout
    assert (folder / "index.html").read_text().startswith("<!doctype html>")
    result = CliRunner().invoke(
        cli.cli, ["index", str(folder), "--json", "--out", str(folder / "new" / "all.html")]
    )
    assert json.loads(result.stdout)["leaderboards"][0]["track"] == "dynamics"
    assert (folder / "new" / "all.html").is_file()


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_without_reports_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(JaxbenchError, match=r"is no folder|holds no report\.json"):
        studies.collect(tmp_path / name)


def test_the_committed_index_lists_every_committed_report() -> None:
    page = Document((RESULTS / "index.html").read_text())
    links = {str(each["href"]) for each in page.all("a") if "/" in str(each["href"])}
    expected = {path.relative_to(RESULTS).as_posix() for path in RESULTS.glob("*/*/report.json")}
    pages = {path.relative_to(RESULTS).as_posix() for path in RESULTS.glob("*/*/report.html")}
    assert links <= expected | pages
    assert {Path(link).parent for link in links} == {Path(link).parent for link in expected}
