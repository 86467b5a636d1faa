"""`jaxbench run`: one study, from its config to its report."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxbench import distributed
from jaxbench.commands import processes as several
from jaxbench.commands.assignment import assignment
from jaxbench.commands.completion import complete_studies
from jaxbench.commands.log_to import log_to_option
from jaxbench.commands.on_tracks import run_on_tracks
from jaxbench.commands.output import INTERRUPTED, cache_option, stdout_on_stderr
from jaxbench.commands.report import load_drawing

if TYPE_CHECKING:
    from jaxbench.config import Config
    from jaxbench.loggers.destinations import StudyLogger
    from jaxbench.studies import Kept
    from jaxbench.training.checkpoints import Checkpoints
    from jaxbench.training.processes import Processes

MAX_SEEDS = 64
GC_THRESHOLD = 100_000
"""New objects between two searches for cycles: tracing makes many that stay."""
HELP = """Train, judge and report a study.

CONFIG is the name of a study (see `jaxbench list`) or the path of a TOML file.

\b
Examples:
  jaxbench run stability_penalty
  jaxbench run stability_penalty --set 'grid.learning_rate=[0.003, 0.01]'
  jaxbench run ./my_study.toml --quick --json > report.json
  jaxbench run stability_penalty --until-decided --max-seeds 64
  jaxbench run stability_penalty --tracks all
  jaxbench run stability_penalty --log-to mlflow:sqlite:///mlflow.db --log-to tensorboard

\b
With --tracks the idea is tried on every track that fits it by its structure, as the tables
[tracks.TRACK] of the config say or else with the study's own model and the track's defaults.  Each
is a study with its own report; their primary p-values are corrected together by Holm's rule, and
OUT/tracks/<study>/<id>.json says also why other tracks do not fit.

\b
With --until-decided the study begins with its seeds (8 by default) and adds as many again, up to
--max-seeds, until a sequential test decides the primary comparison at alpha, however often it
looked.  Tuning happens once, and seeds that ran are kept.  The p-value of a fixed number of seeds
stands beside it and is not valid then.

With --checkpoint-every a study that is interrupted or killed can be continued by --resume, with the
same config, version and kind of device; its scores are those of a study that never stopped, to the
bit.  The checkpoints lie beside where the report will, and vanish when it is written.  A study that
is finished is shown, not run again, unless --force says so.
"""


@click.command(help=HELP)
@click.argument("study", metavar="CONFIG", shell_complete=complete_studies)
@click.option(
    "--set", "changes", metavar="KEY=VALUE", multiple=True, callback=assignment,
    help="Set one value of the config, such as training.epochs=3; may be repeated.",
)  # fmt: skip
@click.option("--seeds", type=int, help="Evaluation seeds, in place of protocol.seeds.")
@click.option(
    "--until-decided",
    is_flag=True,
    help="Add seeds, as many again each time, until an anytime-valid test decides.",
)
@click.option(
    "--max-seeds",
    type=int,
    help=f"The most seeds of --until-decided.  [default: {MAX_SEEDS}]",
)
@click.option(
    "--tracks", metavar="all|TRACK,...",
    help="Try the idea on all tracks that fit it, or on these.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(), default="results", show_default=True,
    help="The folder for results: OUT/<study>/<run id>/report.json, report.html; ledger.jsonl.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="Lay the config's [quick] table over it.")
@click.option(
    "--checkpoint-every", type=click.IntRange(min=1), metavar="EPOCHS",
    help="Write checkpoints: of what is training every so many epochs, of each block at its end.",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue from the checkpoints, writing on.")
@click.option("--force", is_flag=True, help="Run from the beginning, whatever is there.")
@click.option(
    "--keep-params", is_flag=True,
    help="Keep the evaluation runs' trained parameters beside the report.",
)  # fmt: skip
@click.option(
    "--width", type=click.IntRange(min=1), metavar="RUNS",
    help="How many runs a device trains at once.  [default: from its free memory; 1 on CPU]",
)  # fmt: skip
@click.option(
    "--max-seconds", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="Give up, with exit code 3, if it takes longer; checked between epochs.",
)  # fmt: skip
@log_to_option
@cache_option
@several.options
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print only the report, as JSON, on stdout.")
def run(
    study: str,
    changes: list[tuple[str, str]],
    seeds: int | None,
    until_decided: bool,
    max_seeds: int | None,
    tracks: str | None,
    out: str,
    quick: bool,
    checkpoint_every: int | None,
    resume: bool,
    force: bool,
    keep_params: bool,
    width: int | None,
    max_seconds: float | None,
    log_to: tuple[str, ...],
    cache: str | None,
    place: distributed.Place | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a study."""
    if max_seeds is not None and not until_decided:
        raise click.UsageError("--max-seeds goes with --until-decided")
    if resume and force:
        raise click.UsageError("--resume continues, --force begins anew: give one of them")
    if tracks is not None:
        alone = {
            "--until-decided": until_decided, "--checkpoint-every": checkpoint_every is not None,
            "--resume": resume, "--keep-params": keep_params, "--width": width is not None,
            "--log-to": bool(log_to),
        }  # fmt: skip
        if given := ", ".join(name for name, there in alone.items() if there):
            raise click.UsageError(f"--tracks runs many studies; {given} goes with a single one")
        run_on_tracks(
            study, tracks, changes, seeds=seeds, quick=quick, out=out, force=force, cache=cache,
            place=place, max_seconds=max_seconds, quiet=quiet, as_json=as_json,
        )  # fmt: skip
        return
    from jaxbench import config, devices, interrupted, storage
    from jaxbench.loggers import destinations

    most = (MAX_SEEDS if max_seeds is None else max_seeds) if until_decided else None
    loggers: list[StudyLogger] = []
    kept: Kept | None = None
    with stdout_on_stderr():
        devices.configure(cache=cache)
        gc.set_threshold(GC_THRESHOLD)
        loaded = config.load(study, changes, seeds=seeds, max_seeds=most, quick=quick)
        folder = storage.result_folder(out, loaded.name, storage.run_id(config.digest(loaded)))
        with distributed.joined(place) as processes:
            interrupted.agree(processes, [loaded], width=width, max_seconds=max_seconds)

            def look() -> dict[str, Any] | None:
                if not processes.first:
                    return None
                storage.check_writable(folder)
                loggers.extend(destinations.connect(log_to))
                return None if force else interrupted.finished(folder)

            before = processes.together(look)[0]
            if before is None:
                kept = train(
                    loaded, out, folder, processes, checkpoint_every=checkpoint_every,
                    resume=resume, force=force, keep_params=keep_params, width=width,
                    max_seconds=max_seconds, quiet=quiet,
                )  # fmt: skip
    if not processes.first:
        return

    def log(report: dict[str, Any]) -> None:
        with stdout_on_stderr():
            places = destinations.log(loggers, report)
        for place in places:
            click.echo(f"logged: {place}", err=as_json)

    if before is not None:
        show_report(before, as_json)
        click.echo(interrupted.not_again(folder, before, keep_params), err=as_json)
        log(before)
        return
    assert kept is not None
    from jaxbench.reporting.html import page

    try:
        show_report(kept.report, as_json)
        if kept.path is not None:
            click.echo(f"\nreport: {kept.path}", err=as_json)
            click.echo(f"page: {page.write(kept.report, kept.path)}", err=as_json)
        log(kept.report)
        if kept.problem is not None:
            raise kept.problem
    except KeyboardInterrupt:
        said = f"interrupted: the report is {kept.path}" if kept.path else "interrupted"
        click.echo(said, err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def train(
    loaded: Config,
    out: str,
    folder: Path,
    processes: Processes,
    *,
    checkpoint_every: int | None,
    resume: bool,
    force: bool,
    keep_params: bool,
    width: int | None,
    max_seconds: float | None,
    quiet: bool,
) -> Kept | None:
    """Train and judge a study, or the rest of one; process 0 writes its report and gives it."""
    from jaxbench import interrupted, studies, trained_params
    from jaxbench.reporting import progress
    from jaxbench.study import run_study

    first = processes.first
    checkpoints: Checkpoints | None = None

    def open_own() -> None:
        nonlocal checkpoints
        checkpoints = interrupted.open_checkpoints(
            folder, loaded, every=checkpoint_every, width=width, resume=resume, force=force,
            process=processes.index if processes.count > 1 else None,
        )  # fmt: skip

    processes.together(open_own)
    load_drawing()
    options = {"--out": out, "--width": width, "--keep-params": keep_params}
    with (
        progress.make(quiet or not first, max_seconds=max_seconds) as reporter,
        interrupted.resumable(loaded, checkpoints, options),
    ):
        report = run_study(
            loaded,
            progress=reporter,
            width=width,
            checkpoints=checkpoints,
            keep_params=folder if keep_params and first else None,
        )
    kept = studies.keep(out, loaded, report) if first else None
    wrote = kept is not None and kept.path is not None
    if wrote and not keep_params:
        trained_params.remove(folder)
    # all end once the report is written
    if processes.together(lambda: wrote)[0] and checkpoints is not None:
        checkpoints.remove()
    return kept


def show_report(report: dict[str, Any], as_json: bool) -> None:
    """Print a report on stdout."""
    if as_json:
        from jaxbench.reporting import strict_json

        click.echo(strict_json.dumps(report), nl=False)
    else:
        from jaxbench.reporting import terminal

        terminal.render(report, terminal.console_for(sys.stdout))
