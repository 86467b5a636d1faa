"""The command line: parse and call.

Nothing heavy is imported before a command runs, so that `jaxbench --help` answers at once.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

import click

from jaxbench import distributed
from jaxbench.base import JaxbenchError
from jaxbench.commands import processes as several
from jaxbench.commands.assignment import assignment
from jaxbench.commands.audit import audit
from jaxbench.commands.calibrate import calibrate
from jaxbench.commands.compare import compare
from jaxbench.commands.completion import complete_names, complete_studies, completion
from jaxbench.commands.index import index
from jaxbench.commands.log_to import log_to_option
from jaxbench.commands.new import new
from jaxbench.commands.on_tracks import run_on_tracks
from jaxbench.commands.output import cache_option, stdout_on_stderr
from jaxbench.commands.power import power
from jaxbench.commands.report import load_drawing, write_page
from jaxbench.commands.report import report as report_command
from jaxbench.commands.reproduce import reproduce
from jaxbench.commands.schema import schema
from jaxbench.commands.sweep import sweep
from jaxbench.commands.tracks import tracks as tracks_command

if TYPE_CHECKING:
    from jaxbench.training.checkpoints import Checkpoints

INTERRUPTED = 130
OUT_OF_TIME = 3
MAX_SEEDS = 64
GC_THRESHOLD = 100_000
"""New objects between two searches for cycles: tracing makes many that stay."""
TRACEBACK = "JAXBENCH_TRACEBACK"
PACKAGES = ("jaxbench", "jax", "flax", "optax", "numpy", "scipy")
HELP = """Does my idea really help?  Paired, tuned, judged comparisons of machine-learning ideas.

\b
Examples:
  jaxbench list
  jaxbench run stability_penalty
  jaxbench run stability_penalty --quick --set training.epochs=3
  jaxbench run stability_penalty --checkpoint-every 1
  jaxbench run stability_penalty --resume
  jaxbench run my_study.toml --seeds 16 --out results
  jaxbench new my_idea
  jaxbench sweep 'configs/*.toml' --quick
  jaxbench report results/my_study/0123456789ab --figures figures --format pdf
  jaxbench index results
  jaxbench compare baseline.csv idea.csv --direction lower
  jaxbench audit report.json
  jaxbench reproduce report.json
  jaxbench power --effect 0.5
  jaxbench calibrate tabular
  jaxbench tracks stability_penalty

\b
Exit codes:
  0    done: the study was judged, whatever the verdict
  1    failure: an error in jaxbench, in a component, or in writing the report; or
       audit found contradictions, or reproduce other scores
  2    bad input: an unknown name, a wrong config or option, an unwritable folder,
       checkpoints that do not fit
  3    out of time (--max-seconds): nothing was judged
  130  interrupted (Ctrl-C)

JAXBENCH_TRACEBACK=1 in the environment shows tracebacks; JAXBENCH_CACHE=FOLDER, or off, says
where compiled programs are kept.
"""


class Commands(click.Group):
    """A group that turns exceptions into one line on stderr and the documented exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt as interruption:
            stop(str(interruption) or "interrupted: nothing was written", INTERRUPTED)
        except JaxbenchError as error:
            show_traceback()
            stop(f"error: {error}", getattr(error, "exit_code", 2))
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            hint = "" if show_traceback() else f" ({TRACEBACK}=1 shows the traceback)"
            stop(f"error: {text}{hint}", 1)


def stop(message: str, code: int) -> NoReturn:
    """Say why on stderr, and end with this exit code."""
    click.echo(message, err=True)
    raise click.exceptions.Exit(code)


def show_traceback() -> bool:
    """Print the traceback where the environment asks for it; return whether it does."""
    if os.environ.get(TRACEBACK, "0") in ("", "0"):
        return False
    traceback.print_exc()
    return True


def show_versions(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print versions and devices."""
    if not wanted or ctx.resilient_parsing:
        return
    import importlib.metadata
    import platform

    from jaxbench import __version__, devices

    for package in PACKAGES:
        own = package == "jaxbench"
        click.echo(f"{package} {__version__ if own else importlib.metadata.version(package)}")
    click.echo(f"python {platform.python_version()}")
    devices.configure()
    try:
        import jax

        found = jax.devices()
        kinds = {device.device_kind for device in found}
        click.echo(f"devices {len(found)} x {', '.join(sorted(kinds))} ({found[0].platform})")
    except Exception as error:
        click.echo(f"devices none: {error}")
    ctx.exit()


@click.group(cls=Commands, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=show_versions,
    help="Show the versions of jaxbench and what it stands on, and the devices.",
)  # fmt: skip
def cli() -> None:
    """Hold the commands together."""


RUN_HELP = """Train, judge and report a study.

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
OUT/tracks/<study>.json says also why other tracks do not fit.

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


@cli.command(help=RUN_HELP)
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
    from jaxbench import config, devices, interrupted, storage, trained_params
    from jaxbench.loggers import destinations
    from jaxbench.reporting import progress

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
    most = None
    if until_decided:
        most = MAX_SEEDS if max_seeds is None else max_seeds
    with stdout_on_stderr():
        devices.configure(cache=cache)
        gc.set_threshold(GC_THRESHOLD)
        loaded = config.load(study, changes, seeds=seeds, max_seeds=most, quick=quick)
        identity = storage.run_id(config.digest(loaded))
        folder = storage.result_folder(out, loaded.name, identity)
        with distributed.joined(place) as processes:
            from jaxbench import studies
            from jaxbench.study import run_study

            first = processes.first
            loggers: list[destinations.StudyLogger] = []

            def look() -> dict[str, Any] | None:
                if first:
                    storage.check_writable(folder)
                    loggers.extend(destinations.connect(log_to))
                return interrupted.finished(folder) if first and not force else None

            before = processes.together(look)[0]
            if before is None:
                checkpoints: Checkpoints | None = None

                def open_own() -> None:
                    nonlocal checkpoints
                    checkpoints = interrupted.open_checkpoints(
                        folder, loaded,
                        every=checkpoint_every, width=width, resume=resume, force=force,
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
                if first:
                    kept = studies.keep(out, loaded, report)
                    if kept.path is not None and not keep_params:
                        trained_params.remove(folder)
                # all end once the report is written
                written = processes.together(lambda: first and kept.path is not None)[0]
                if written and checkpoints is not None:
                    checkpoints.remove()
    if not first:
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
    try:
        show_report(kept.report, as_json)
        if kept.path is not None:
            click.echo(f"\nreport: {kept.path}", err=as_json)
            click.echo(f"page: {write_page(kept.report, kept.path)}", err=as_json)
        log(kept.report)
        if kept.problem is not None:
            raise kept.problem
    except KeyboardInterrupt:
        stop(f"interrupted: the report is {kept.path}" if kept.path else "interrupted", INTERRUPTED)


LIST_HELP = """List studies, tracks, models and interventions, one line each.

With NAME, or the path of a .py file, show that one: what it is, and its options with type, default,
range and meaning; of an intervention also its hyperparameters, what it needs and measures.

\b
Examples:
  jaxbench list
  jaxbench list stability_penalty
  jaxbench list my_idea.py
"""


def show_report(report: dict[str, Any], as_json: bool) -> None:
    """Print a report on stdout."""
    if as_json:
        from jaxbench.reporting import strict_json

        click.echo(strict_json.dumps(report), nl=False)
    else:
        from jaxbench.reporting import terminal

        terminal.render(report, terminal.console_for(sys.stdout))


@cli.command(name="list", help=LIST_HELP)
@click.argument("name", required=False, shell_complete=complete_names)
def list_names(name: str | None) -> None:
    """List studies, tracks, models and interventions, or show one of them."""
    from jaxbench import config, registry

    if name is not None:
        from jaxbench.description import describe

        click.echo(describe(name))
        return

    groups = {"studies": config.available()}
    groups |= {kind: registry.available(kind) for kind in registry.KINDS}
    width = max((len(name) for names in groups.values() for name in names), default=0)
    for title, names in groups.items():
        click.echo(title)
        for name, summary in names.items():
            click.echo(f"  {name:<{width}}  {summary}".rstrip())


COMMANDS = (
    sweep, new, compare, audit, reproduce, report_command, index, power, calibrate, tracks_command,
    schema, completion,
)  # fmt: skip
for command in COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Run the command line; the entry point of the `jaxbench` command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    try:
        cli(prog_name="jaxbench")
    except SystemExit as leaving:
        code = leaving.code
        distributed.end_watch()
        if code in (INTERRUPTED, OUT_OF_TIME) or (code and distributed.waits_for_others()):
            sys.stdout.flush()
            sys.stderr.flush()
            distributed.let_others_end()
            os._exit(code if isinstance(code, int) else 1)  # threads or processes may be busy still
        raise


if __name__ == "__main__":
    main()
