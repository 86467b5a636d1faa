"""`jaxbench index`: a page and a table over many studies."""

from __future__ import annotations

from pathlib import Path

import click

from jaxbench.commands.output import json_option, show

HELP = """Write a page over all reports in FOLDER, and print its table.

Each study is a row with its primary comparison.  Whoever runs many studies finds one that is
"significant" by luck, so that all their p-values are corrected together by Holm's rule.  Ideas on
one track are ranked by what they improve on their own tuned baseline.  FOLDER/index.html opens
offline; its rows can be filtered and sorted, and lead to the studies' pages.

\b
Examples:
  jaxbench index results
  jaxbench index results --out index.html
  jaxbench index results --json > studies.json

\b
Exit codes: 0 written, 1 the page cannot be written, 2 there is no report in the folder.
"""


@click.command(help=HELP)
@click.argument("folder", metavar="FOLDER")
@click.option(
    "--out", type=click.Path(dir_okay=False), metavar="FILE",
    help="Where the page goes.  [default: FOLDER/index.html]",
)  # fmt: skip
@json_option
def index(folder: str, out: str | None, as_json: bool) -> None:
    """List many studies."""
    from jaxbench import storage
    from jaxbench.reporting import studies
    from jaxbench.reporting.html import index_page

    found = studies.collect(folder)
    path = Path(folder) / "index.html" if out is None else Path(out)
    storage.write_text(path, index_page.render(found, path.parent))
    show(found, studies.render, as_json)
    click.echo(f"\npage: {path}", err=as_json)
