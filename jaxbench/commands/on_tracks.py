"""`jaxbench run CONFIG --tracks`: one idea on every track that fits it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxbench.commands.output import show, stdout_on_stderr
from jaxbench.commands.report import write_page

if TYPE_CHECKING:
    from jaxbench.distributed import Place

FOLDER = "tracks"
"""In the folder of results: one joint table a study."""


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
        from jaxbench import config, devices, distributed, storage

        devices.configure(cache=cache)
        from jaxbench import track_runs
        from jaxbench.reporting import progress, strict_json, sweep_table, track_table

        name = str(config.read(study)["name"])
        reports: dict[str, tuple[Any, Path]] = {}
        errors: dict[str, str] = {}
        with distributed.joined(place) as processes:
            found = track_runs.find(study, wanted, changes, seeds=seeds, quick=quick)
            count = sum(each.kind == "fits" for each in found)
            if processes.first:
                storage.check_writable(out)
            with progress.make(quiet or not processes.first, max_seconds=max_seconds) as reporter:
                for each, outcome in track_runs.run(
                    found, out, force=force, progress=reporter, processes=processes
                ):
                    if outcome.report is not None and outcome.path is not None:
                        reports[each.label] = outcome.report, outcome.path.relative_to(out)
                        if outcome.seconds:
                            write_page(outcome.report, outcome.path)
                    if outcome.error is not None:
                        errors[each.label] = outcome.error
                    said = sweep_table.sentence(outcome, len(reports) + len(errors), count)
                    reporter.stage(said)
            first = processes.first
        if not first:
            return
        table = track_table.make(name, found, reports, errors)
        path = Path(out) / FOLDER / f"{name}.json"
        storage.write_text(path, strict_json.dumps(table.to_dict()))
    show(table, track_table.render, as_json)
    click.echo(f"\ntable: {path}", err=as_json)
    if errors:
        raise click.exceptions.Exit(1)
