"""`jaxbench reproduce`: a report run again."""

from __future__ import annotations

import click

from jaxbench.commands.output import json_option, stdout_on_stderr

HELP = """Run a report's study again, from its own config, and say whether the scores match.

FILE is a report.json, or the folder of a run.  On the machine that made it, scores are the same to
the bit; another CPU, another version of XLA or a GPU changes their last digits.  Two reports agree
if every label is the same (outcome, verdict, states of signatures) and no paired difference moved
by more than 5 % of the spread of these differences over seeds.  Versions, devices, sources and data
that are others now are listed.

\b
Examples:
  jaxbench reproduce results/my_study/0123456789ab
  jaxbench reproduce report.json --folder ../my_ideas --json

\b
Exit codes: 0 it agrees, 1 it does not or it failed, 2 the file or its config cannot be loaded.
"""


@click.command(help=HELP)
@click.argument("file", metavar="FILE")
@click.option(
    "--folder", type=click.Path(exists=True, file_okay=False), default=".",
    show_default="this folder",
    help="Where the Python files lie that the config names by path.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(), help="Keep the new report there; else it is compared only."
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
@json_option
@click.pass_context
def reproduce(
    context: click.Context, file: str, folder: str, out: str | None, quiet: bool, as_json: bool
) -> None:
    """Reproduce a report."""
    from jaxbench import devices, reproduction, storage
    from jaxbench.reporting import progress, strict_json

    report = storage.read_report(file)
    with stdout_on_stderr():
        devices.configure()
        with progress.make(quiet) as reporter:
            made = reproduction.run_again(report, folder, progress=reporter)
    if out is not None:
        click.echo(f"report: {storage.write_report(out, made.report)}", err=True)
    if as_json:
        click.echo(strict_json.dumps(made.to_dict()), nl=False)
    else:
        click.echo(made.summary)
        for line in reproduction.lines(made.found):
            click.echo(f"  {line}")
        for what, (then, now) in sorted(made.surroundings.items()):
            click.echo(f"  {what} was {then}, is {now}")
    context.exit(0 if made.agrees else 1)
