"""`jaxbench schema`: the form of configs and reports, as JSON Schema."""

from __future__ import annotations

import click

HELP = """Print the JSON Schema (draft 2020-12) of configs or of reports.

A config is TOML; the schema is that of the same data.  Options of tracks, models and interventions
are checked when a config is loaded (`jaxbench list NAME` shows them).  A report may have more than
its schema names; what the schema names is stable.

\b
Examples:
  jaxbench schema config > config.schema.json
  jaxbench schema report > report.schema.json
"""


@click.command(help=HELP)
@click.argument("of", metavar="config|report", type=click.Choice(["config", "report"]))
def schema(of: str) -> None:
    """Print a schema."""
    from jaxbench.reporting import strict_json
    from jaxbench.reporting.schema import config_schema, report_schema

    made = config_schema() if of == "config" else report_schema()
    click.echo(strict_json.dumps(made), nl=False)
