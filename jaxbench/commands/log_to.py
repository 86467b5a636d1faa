"""The option --log-to KIND[:PLACE]."""

from __future__ import annotations

from typing import Any

import click

from jaxbench.base import JaxbenchError


def destinations(ctx: click.Context, parameter: click.Parameter, values: Any) -> tuple[str, ...]:
    """Refuse what names no logger."""
    from jaxbench.loggers.destinations import split

    for value in values:
        try:
            split(value)
        except JaxbenchError as error:
            raise click.BadParameter(str(error), ctx, parameter) from error
    return tuple(values)


log_to_option = click.option(
    "--log-to", metavar="LOGGER", multiple=True, callback=destinations,
    help="Log the judged study to mlflow[:URI] or tensorboard[:FOLDER]; may be repeated.  Needs "
    "pip install 'jaxbench[mlflow]' or 'jaxbench[tensorboard]'.",
)  # fmt: skip
