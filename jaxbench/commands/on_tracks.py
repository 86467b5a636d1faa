"""`jaxbench run CONFIG --tracks`: one idea on every track that fits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from jaxbench.commands.output import show, stdout_on_stderr

if TYPE_CHECKING:
    from jaxbench.distributed import Place


def run_on_tracks(
    study: str,
    wanted: str,
    changes: list[tuple[str, str]],
    *,
    seeds: int | None,
    quick: bool,
    out: str,
    force: bool,
    cache: str | None,
    place: Place | None,
    max_seconds: float | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a study on the tracks that fit, write the joint table, and print it."""
    with stdout_on_stderr():
        from jaxbench import config, devices, distributed, interrupted

        devices.configure(cache=cache)
        from jaxbench import track_runs
        from jaxbench.reporting import progress, track_table

        name = str(config.read(study)["name"])
        with distributed.joined(place) as processes:
            found = track_runs.find(study, wanted, changes, seeds=seeds, quick=quick)
            configs = [each.config for each in found if each.config is not None]
            interrupted.agree(processes, configs, max_seconds=max_seconds)
            with progress.make(quiet or not processes.first, max_seconds=max_seconds) as reporter:
                table, path = track_runs.run(
                    name, found, out, force=force, progress=reporter, processes=processes
                )
            first = processes.first
    if not first:
        return
    show(table, track_table.render, as_json)
    if path is not None:
        click.echo(f"\ntable: {path}", err=as_json)
    if any(row.error for row in table.rows):
        raise click.exceptions.Exit(1)
