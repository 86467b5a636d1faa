"""`jaxbench compare`: paired scores of any origin."""

from __future__ import annotations

import click

from jaxbench.commands.output import json_option, show

HELP = """Compare two arms' scores on shared seeds, whatever made them.

A holds the baseline's scores and B the idea's; without B, A holds both.  Each is a CSV with the
columns seed and score, and perhaps arm (long), or with one column an arm (wide), such as an export
from W&B or MLflow; or JSON: a list of scores, {seed: score}, [{seed, score}], or a report; or the
folder of a run with its report.json.  Where a file has several arms or columns, FILE::NAME names
one; `baseline` and `idea` are found by themselves.

\b
Examples:
  jaxbench compare baseline.csv idea.csv --direction lower
  jaxbench compare runs.csv::adam runs.csv::mine --score-column test/loss --direction lower
  jaxbench compare results/my_study/0123456789ab --json

\b
Exit codes: 0 compared, whatever came out; 2 the files cannot be compared.
"""


@click.command(help=HELP)
@click.argument("first", metavar="A")
@click.argument("second", metavar="[B]", required=False)
@click.option(
    "--direction", type=click.Choice(["lower", "higher"]),
    help="Which scores are better; needed unless a report says so.",
)  # fmt: skip
@click.option("--seed-column", metavar="NAME", help="The column of seeds, if not called seed.")
@click.option("--score-column", metavar="NAME", help="The column of scores, if not called score.")
@click.option("--alpha", type=float, default=0.05, show_default=True, help="Level of the tests.")
@click.option(
    "--margin", type=float, default=0.05, show_default=True,
    help="Differences that do not matter, as a fraction of the baseline's mean.",
)  # fmt: skip
@click.option(
    "--aggregate", type=click.Choice(["mean"]),
    help="Average the rows of one seed, such as episodes, which are refused otherwise.",
)  # fmt: skip
@click.option("--common-seeds", is_flag=True, help="Leave out seeds that only one arm has.")
@click.option(
    "--missing-is-diverged", is_flag=True,
    help="Count an empty or NaN score as a diverged run, the worst outcome, not as an error.",
)  # fmt: skip
@click.option(
    "--plot", type=click.Path(dir_okay=False), metavar="FILE",
    help="Draw pairs and differences into FILE (.png, .svg, .pdf).",
)  # fmt: skip
@json_option
def compare(
    first: str,
    second: str | None,
    direction: str | None,
    seed_column: str | None,
    score_column: str | None,
    alpha: float,
    margin: float,
    aggregate: str | None,
    common_seeds: bool,
    missing_is_diverged: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    """Compare scores in files."""
    from jaxbench.reporting import paired_files, paired_plot
    from jaxbench.reporting.score_cells import Options

    if plot is not None:
        paired_plot.check(plot)
    result = paired_files.compare_files(
        first,
        second,
        direction=direction,  # type: ignore[arg-type]
        alpha=alpha,
        margin=margin,
        common_seeds=common_seeds,
        options=Options(seed_column, score_column, aggregate == "mean", missing_is_diverged),
    )
    for note in result.notes:
        click.echo(f"note: {note}", err=True)
    if plot is not None:
        paired_plot.draw(result, plot)
    show(result, paired_files.render, as_json)
