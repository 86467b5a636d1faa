"""`jaxbench report`: a report's page and figures, made again without training."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from jaxbench.base import JaxbenchError

HELP = """Make the page of a report again, and its figures for papers, without training anything.

REPORT is a report of jaxbench or the folder of a run with its report.json; several may be given.
report.html is written beside each: one file that opens offline, with figures, the data behind each
of them, and every number of the verdict.

\b
Examples:
  jaxbench report results/my_study/0123456789ab
  jaxbench report results/*/*/report.json
  jaxbench report results/my_study/0123456789ab --figures figures --format png,pdf

\b
Exit codes: 0 written, 1 a file cannot be written, 2 a file is no report of jaxbench.
"""


def formats(_: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    """Split a list of formats."""
    from jaxbench.reporting.html.drawing import FORMATS

    wanted = list(dict.fromkeys(part.strip().lower() for part in value.split(",")))
    for each in wanted:
        if each not in FORMATS:
            raise click.BadParameter(
                f"{each!r} is none of {', '.join(FORMATS)}; several are joined by commas",
                param=parameter,
            )
    return wanted


@click.command(name="report", help=HELP)
@click.argument("reports", metavar="REPORT...", nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(dir_okay=False), metavar="FILE",
    help="Where the page of one report goes.  [default: report.html beside it]",
)  # fmt: skip
@click.option(
    "--figures", type=click.Path(file_okay=False), metavar="FOLDER",
    help="Write each figure of one report into files of this folder, for papers.",
)  # fmt: skip
@click.option(
    "--format", "wanted", default="png,svg,pdf", show_default=True, callback=formats,
    help="Formats of these files, joined by commas.",
)  # fmt: skip
def report(
    reports: Sequence[str], out: str | None, figures: str | None, wanted: Sequence[str]
) -> None:
    """Make pages and figures of reports."""
    from jaxbench import storage
    from jaxbench.reporting.html import page
    from jaxbench.reporting.schema import check_report
    from jaxbench.reporting.written import report_file

    if len(reports) > 1 and (out or figures):
        raise click.UsageError("--out and --figures go with one report")
    for path in reports:
        file = report_file(path)
        document = storage.read_report(file)
        try:
            check_report(document)
        except JaxbenchError as error:
            raise JaxbenchError(f"{file}: {error}") from error
        click.echo(f"page: {page.write(document, file, out)}")
        if figures:
            for written in write_figures(document, Path(figures), wanted):
                click.echo(f"figure: {written}")


def load_drawing() -> None:
    """Import in the background what pages need: most of a second, while something else runs."""
    modules = ("matplotlib.figure", "matplotlib.backends.backend_svg", "jinja2")
    threading.Thread(target=lambda: [*map(importlib.import_module, modules)]).start()


def write_figures(report: Mapping[str, Any], folder: Path, wanted: Sequence[str]) -> list[Path]:
    """Write every figure of a report in these formats.

    Raises:
        StorageError: a file cannot be written.
    """
    from jaxbench.reporting.html import drawing, page
    from jaxbench.storage import StorageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            path
            for some in page.figures(report).values()
            for each in some
            for path in drawing.save(each, folder, wanted)
        ]
    except OSError as error:
        raise StorageError(f"figures cannot be written to {folder}: {error.strerror}") from error
