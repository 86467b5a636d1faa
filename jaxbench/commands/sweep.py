"""`jaxbench sweep`: many studies, here, in shards or on a Ray cluster."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from jaxbench.commands import processes as several
from jaxbench.commands.assignment import assignment
from jaxbench.commands.log_to import log_to_option
from jaxbench.commands.output import INTERRUPTED, cache_option, stdout_on_stderr
from jaxbench.distributed import Place

if TYPE_CHECKING:
    from jaxbench.loggers.destinations import StudyLogger
    from jaxbench.studies import Outcome

HELP = """Run many studies, and say in a table what became of each.

CONFIG is the name of a study, the path of a TOML file, or a glob of either, such as
'configs/*.toml' or 'axis_*'.  The studies run one after another in this process and share compiled
programs.  One that fails stops no other.  A study whose report is in OUT already is not run again,
so that a sweep that was interrupted goes on where it was, and running it twice changes nothing.

\b
Examples:
  jaxbench sweep 'configs/*.toml' --quick
  jaxbench sweep stability_penalty axis_pruning --seeds 16
  jaxbench sweep 'configs/*.toml' --shard 3/8        # the third of eight jobs, on any machine
  jaxbench sweep 'configs/*.toml' --log-to mlflow    # pip install 'jaxbench[mlflow]'
  jaxbench sweep 'configs/*.toml' --ray auto         # on a Ray cluster: pip install 'jaxbench[ray]'

\b
Exit codes:
  0    every study has its report
  1    some study failed; all others were run
  2    some config was refused, and nothing else failed; or bad usage, and nothing was run
  130  interrupted (Ctrl-C): reports that were written stay
"""


def a_shard(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """Read `i/n`, 1 <= i <= n."""
    if value is None:
        return None
    index, _, count = value.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise click.BadParameter(
            f"{value!r} is not I/N with 1 <= I <= N, such as 1/4 to 4/4", ctx, parameter
        )
    return int(index), int(count)


def logged(outcome: Outcome, loggers: Sequence[StudyLogger]) -> Outcome:
    """Log a study that has a report, whether it ran now or before; what fails is told of."""
    from jaxbench.loggers import destinations

    if outcome.report is None:
        return outcome
    try:
        destinations.log(loggers, outcome.report)
    except destinations.LoggerError as error:
        return dataclasses.replace(outcome, state="failed", error=str(error))
    return outcome


@click.command(help=HELP)
@click.argument("patterns", metavar="CONFIG...", nargs=-1, required=True)
@click.option(
    "--set", "changes", metavar="KEY=VALUE", multiple=True, callback=assignment,
    help="Set one value of every config, such as training.epochs=3; may be repeated.",
)  # fmt: skip
@click.option("--seeds", type=int, help="Evaluation seeds, in place of protocol.seeds.")
@click.option("--quick", is_flag=True, help="Lay each config's [quick] table over it.")
@click.option(
    "--out", type=click.Path(), default="results", show_default=True,
    help="The folder for results: OUT/<study>/<run id>/report.json, report.html; ledger.jsonl.",
)  # fmt: skip
@click.option(
    "--shard", metavar="I/N", callback=a_shard,
    help="Run every N-th study only, from the I-th on.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Run studies again whose reports are there.")
@click.option(
    "--ray", "address", metavar="ADDRESS",
    help="Run the studies on this Ray cluster: auto, local, or HOST:PORT.",
)  # fmt: skip
@click.option(
    "--cpus", type=click.IntRange(1),
    help="Cores of a study on the Ray cluster.  [default: those of its smallest node]",
)  # fmt: skip
@click.option(
    "--gpus", type=click.IntRange(0), default=0, show_default=True,
    help="GPUs of a study on the Ray cluster.",
)  # fmt: skip
@log_to_option
@cache_option
@several.options
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout, not a table.")
def sweep(
    patterns: tuple[str, ...],
    changes: list[tuple[str, str]],
    seeds: int | None,
    quick: bool,
    out: str,
    shard: tuple[int, int] | None,
    force: bool,
    address: str | None,
    cpus: int | None,
    gpus: int,
    log_to: tuple[str, ...],
    cache: str | None,
    place: Place | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run many studies."""
    if address is None and (cpus is not None or gpus):
        raise click.UsageError("--cpus and --gpus go with --ray")
    if address is not None and place is not None:
        raise click.UsageError("--ray starts studies on its own nodes; leave out --coordinator")
    with stdout_on_stderr():
        from jaxbench import devices, distributed, interrupted, storage

        if address is None:
            devices.configure(cache=cache)
        from jaxbench import studies
        from jaxbench.loggers import destinations
        from jaxbench.reporting import progress, sweep_table, terminal
        from jaxbench.reporting.html import page

        asked = studies.find(patterns, changes, seeds=seeds, quick=quick)
        if shard is not None:
            asked = studies.shard(asked, *shard)
        outcomes: list[studies.Outcome] = []
        stopped = False
        loggers: list[destinations.StudyLogger] = []
        with distributed.joined(place) as processes:
            configs = [each.config for each in asked if each.config is not None]
            interrupted.agree(processes, configs)
            if processes.first:
                storage.check_writable(out)
                loggers += destinations.connect(log_to)
            with progress.make(quiet or not processes.first) as reporter:
                running: Iterator[studies.Outcome]
                if address is None:
                    running = studies.run_here(
                        asked, out, force=force, progress=reporter, processes=processes
                    )
                else:
                    from jaxbench import cluster

                    running = cluster.run_on_ray(
                        asked, out, force=force, progress=reporter,
                        address=address, cpus=cpus, gpus=gpus,
                    )  # fmt: skip
                try:
                    for outcome in running:
                        if outcome.seconds and outcome.report and outcome.path:
                            page.write(outcome.report, outcome.path)
                        outcome = logged(outcome, loggers)
                        outcomes.append(outcome)
                        reporter.stage(sweep_table.sentence(outcome, len(outcomes), len(asked)))
                except KeyboardInterrupt:
                    stopped = True
            first = processes.first
    if first:
        if as_json:
            sweep_table.print_json(outcomes, shard)
        else:
            sweep_table.render(outcomes, terminal.console_for(sys.stdout))
    if stopped:
        left = len(asked) - len(outcomes)
        click.echo(f"interrupted: {left} of {len(asked)} studies are left to run", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    states = {outcome.state for outcome in outcomes}
    if states & {"failed", "refused"}:
        raise click.exceptions.Exit(1 if "failed" in states else 2)
