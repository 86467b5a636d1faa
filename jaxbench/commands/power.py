"""`jaxbench power`: how many seeds an effect needs."""

from __future__ import annotations

import click

from jaxbench.commands.output import json_option, show

HELP = """Say how many seeds it takes to find an effect, and what fewer seeds would find.

The effect is the mean difference in units of the standard deviation of the paired differences,
given as --effect or as --delta and --sd.  With REPORT, a report or the folder of a run, the spread
is that of its scores, and the effect is the one that it saw unless --delta says otherwise.

\b
Examples:
  jaxbench power --effect 0.5
  jaxbench power --delta 0.001 --sd 0.0017 --power 0.9 --hypotheses 3
  jaxbench power report.json --delta 0.0005
"""


@click.command(help=HELP)
@click.argument("report", metavar="[REPORT]", required=False)
@click.option("--effect", type=float, help="The effect, in units of the paired spread.")
@click.option("--delta", type=float, help="The mean difference, in the metric's unit.")
@click.option("--sd", type=float, help="Standard deviation of the paired differences.")
@click.option("--power", "wanted", type=float, default=0.8, show_default=True,
              help="The chance to find the effect.")  # fmt: skip
@click.option("--alpha", type=float, default=0.05, show_default=True, help="Level of the test.")
@click.option("--hypotheses", type=int, default=1, show_default=True,
              help="How many comparisons are corrected for.")  # fmt: skip
@json_option
def power(
    report: str | None,
    effect: float | None,
    delta: float | None,
    sd: float | None,
    wanted: float,
    alpha: float,
    hypotheses: int,
    as_json: bool,
) -> None:
    """Plan a number of seeds."""
    from jaxbench.reporting import power_table

    question = power_table.question(report, effect=effect, delta=delta, deviation=sd)
    plan = power_table.plan(question, wanted=wanted, alpha=alpha, hypotheses=hypotheses)
    show(plan, power_table.render, as_json)
