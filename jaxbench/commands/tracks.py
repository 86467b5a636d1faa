"""`jaxbench tracks`: which tracks a study's idea fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from jaxbench.commands.output import json_option, show, stdout_on_stderr

if TYPE_CHECKING:
    from rich.console import Console

    from jaxbench.track_fit import Fits

HELP = """Say which tracks a study's idea fits by its structure, and why, or why not.

CONFIG is the name of a study (see `jaxbench list`) or the path of a TOML file.  Nothing is trained:
`jaxbench run CONFIG --set track.name=TRACK` does that, with the track's own defaults.

\b
Examples:
  jaxbench tracks stability_penalty
  jaxbench tracks my_study.toml --json
"""


@click.command(help=HELP)
@click.argument("study", metavar="CONFIG")
@json_option
def tracks(study: str, as_json: bool) -> None:
    """List the tracks that fit."""
    from jaxbench import config, devices
    from jaxbench.track_fit import fits_of

    with stdout_on_stderr():
        devices.configure()
        found = fits_of(config.load(study))
    show(found, render, as_json)


def render(found: Fits, console: Console) -> None:
    """Print one line a track."""
    from rich.table import Table

    table = Table(title=f"Tracks for {found.study}", title_justify="left", box=None)
    for heading in ("track", "fits", "because"):
        table.add_column(heading, overflow="fold")
    for each in found.tracks:
        table.add_row(each.track, "yes" if each.fits else "no", each.reason)
    console.print(table)
