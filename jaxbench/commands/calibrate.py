"""`jaxbench calibrate`: what the tests do on studies of which the truth is known."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from jaxbench.commands.output import cache_option, stdout_on_stderr

HELP = """Measure false-positive rates and power on thousands of small trainings of TRACK.

In an A/A study the second arm is the baseline again, on the same data, with initial weights and
batch order from an independent stream, so that every "better" or "worse" is a false positive: 400
such studies of 8 seeds at a fixed learning rate, and 50 of which both arms are tuned.  Shifts added
to the differences, and 100 studies at half the learning rate, give the power.  The sequential test
of --until-decided is watched on sequences of the same pairs.  All seeds follow from one master seed
in the code; settings, scores and the time it took are in the output.

\b
Examples:
  jaxbench calibrate tabular
  jaxbench calibrate dynamics --out my_results --json > calibration.json

\b
Exit codes: 0 measured, whatever came out; 1 the file cannot be written; 2 bad input.
"""


@click.command(help=HELP)
@click.argument("track", metavar="TRACK")
@click.option(
    "--out", type=click.Path(), default="results/calibration", show_default=True,
    help="The folder for results: OUT/<track>.json.",
)  # fmt: skip
@cache_option
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout, not tables.")
def calibrate(track: str, out: str, cache: str | None, quiet: bool, as_json: bool) -> None:
    """Calibrate a track."""
    from jaxbench import devices, storage
    from jaxbench.reporting import calibration_table, progress, strict_json, terminal

    with stdout_on_stderr():
        devices.configure(cache=cache)
        from jaxbench import calibration
        from jaxbench.training.engine import Engine

        calibration.setting_of(track)
        storage.check_writable(out)
        with progress.make(quiet) as reporter:
            result = calibration.calibrate_track(track, engine=Engine(progress=reporter))
    if as_json:
        click.echo(strict_json.dumps(result), nl=False)
    else:
        calibration_table.render(result, terminal.console_for(sys.stdout))
    path = Path(out) / f"{track}.json"
    storage.write_json(path, result)
    click.echo(f"\ncalibration: {path}", err=as_json)
