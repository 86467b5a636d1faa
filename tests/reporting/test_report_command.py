"""`jaxbench report` makes pages and figures of what is there, without jax."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jaxbench import cli, storage
from reporting.sample import sample_report


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return storage.write_report(tmp_path, sample_report())


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.cli, ["report", *arguments], catch_exceptions=False)


def test_the_page_lies_beside_the_report(report: Path) -> None:
    result = run(str(report.parent), str(report))
    page = report.with_name("report.html")
    assert result.stdout.splitlines() == [f"page: {page}"] * 2
    assert page.read_text().startswith("<!doctype html>")


def test_figures_are_written_in_the_formats_asked_for(report: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "new" / "figures", tmp_path / "elsewhere.html"
    result = run(
        str(report), "--figures", str(folder), "--format", "SVG, pdf", "--out", str(out)
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    names = {path.name for path in folder.iterdir()}
    drawn = ("pairs", "difference", "comparisons", "tuning", "curves", "signature-errors")
    assert names == {f"{name}.{ending}" for name in drawn for ending in ("svg", "pdf")}
    assert out.is_file()
    assert not report.with_name("report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere.json"], "no report at nowhere.json"),
        (["{report}", "--format", "gif"], "'gif' is none of png, svg, pdf"),
        (["{report}", "{report}", "--figures", "x"], "go with one report"),
        (["{report}", "--figures", "{report}"], "is a file"),
        (["{broken}"], "broken.json: no jaxbench report: worked: Field required"),
    ],
)
def test_bad_input_is_refused(
    report: Path, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    names = {"report": str(report), "broken": str(broken)}
    result = run(*(argument.format(**names) for argument in arguments))
    assert result.exit_code == 2
    assert expected in result.output
    assert not report.with_name("report.html").exists()


def test_a_folder_that_cannot_be_written_is_a_failure(report: Path) -> None:
    result = run(str(report), "--figures", "/proc/figures")
    assert result.exit_code == 1
    assert "figures cannot be written to /proc/figures" in result.output


def test_it_loads_no_jax(report: Path) -> None:
    code = (
        "import sys; from jaxbench.cli import cli\n"
        "cli(sys.argv[1:], standalone_mode=False)\n"
        "print('jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, "report", str(report)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "False"
