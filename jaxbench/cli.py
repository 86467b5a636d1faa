"""The command line: parse and call.

Nothing heavy is imported before a command runs, so that `jaxbench --help` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, NoReturn

import click

from jaxbench import distributed
from jaxbench.base import JaxbenchError
from jaxbench.commands.audit import audit
from jaxbench.commands.calibrate import calibrate
from jaxbench.commands.compare import compare
from jaxbench.commands.completion import complete_names, completion
from jaxbench.commands.index import index
from jaxbench.commands.new import new
from jaxbench.commands.output import INTERRUPTED
from jaxbench.commands.power import power
from jaxbench.commands.report import report as report_command
from jaxbench.commands.reproduce import reproduce
from jaxbench.commands.run import run
from jaxbench.commands.schema import schema
from jaxbench.commands.sweep import sweep
from jaxbench.commands.tracks import tracks as tracks_command

OUT_OF_TIME = 3
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
        except (Exception, SystemExit) as error:
            if isinstance(error.__context__, BrokenPipeError):  # rich ends so, and rightly
                raise
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


LIST_HELP = """List studies, tracks, models and interventions, one line each.

With NAME, or the path of a .py file, show that one: what it is, and its options with type, default,
range and meaning; of an intervention also its hyperparameters, what it needs and measures.

\b
Examples:
  jaxbench list
  jaxbench list stability_penalty
  jaxbench list my_idea.py
"""


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
    run, sweep, new, compare, audit, reproduce, report_command, index, power, calibrate,
    tracks_command, schema, completion,
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
