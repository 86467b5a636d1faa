"""`jaxbench new`: the files of an idea, a track or a model of one's own."""

from __future__ import annotations

import click

HELP = """Write the files of an idea of your own: one Python file, one config and one test.

NAME is a Python name, such as my_idea.  The files are a small working example; all tests pass as
they are written.  Replace the pure functions by your own.

\b
Examples:
  jaxbench new my_idea
  jaxbench new my_task --kind track --into studies
  jaxbench new my_net --kind model

\b
Then:
  jaxbench run my_idea.toml --quick
  pip install pytest && python -m pytest test_my_idea.py
"""


@click.command(name="new", help=HELP)
@click.argument("name")
@click.option(
    "--kind", type=click.Choice(["idea", "track", "model"]), default="idea", show_default=True,
    help="What to write.",
)  # fmt: skip
@click.option(
    "--into", type=click.Path(file_okay=False), default=".", show_default="this folder",
    help="The folder to write to; it is made where missing.",
)  # fmt: skip
def new(name: str, kind: str, into: str) -> None:
    """Write starter files."""
    from jaxbench.starting import write_starter

    written = write_starter(name, kind, into)
    for path in written:
        click.echo(path)
    study = next(path for path in written if path.suffix == ".toml")
    click.echo(f"\nNow: jaxbench run {study} --quick")
