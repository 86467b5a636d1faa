"""`jaxbench audit`: whether a report follows from its own numbers."""

from __future__ import annotations

import functools

import click

from jaxbench.commands.output import json_option, show

HELP = """Recompute what a report derives from its own numbers, and say what is weak about it.

FILE is a report of jaxbench, or the folder of a run with its report.json, or a report in the style
of the reference reports, wherever it puts its scores and sweeps.  Listed are the numbers that
contradict others and what a report of jaxbench lacks, weaknesses (an optimum at the edge of its
grid, selection on test scores, unequal tuning, p-values out of reach, vacuous signatures, scores no
better than a linear reference), and the first numbers that agree; with --all, whatever agrees and
whatever cannot be checked.  Numbers are compared within the rounding that they are written with.

\b
Examples:
  jaxbench audit results/my_study/0123456789ab
  jaxbench audit report.json --all
  jaxbench audit report.json --json

\b
Exit codes: 0 nothing contradicts, 1 something does, 2 the file cannot be read, or has
nothing to check.
"""


@click.command(help=HELP)
@click.argument("file", metavar="FILE")
@click.option(
    "--all", "everything", is_flag=True, help="List all that agrees, and what cannot be checked."
)
@json_option
@click.pass_context
def audit(context: click.Context, file: str, everything: bool, as_json: bool) -> None:
    """Audit a report."""
    from jaxbench.reporting.audit import audit_file, render

    result = audit_file(file)
    show(result, functools.partial(render, everything=everything), as_json)
    context.exit(0 if result.clean else 1)
