"""The option --set KEY=VALUE."""

from __future__ import annotations

from typing import Any

import click


def assignment(ctx: click.Context, parameter: click.Parameter, values: Any) -> list[Any]:
    """Split each `key=value`."""
    for value in values:
        if not value.partition("=")[0].strip() or "=" not in value:
            raise click.BadParameter(f"{value!r} is not key=value", ctx, parameter)
    return [tuple(value.split("=", 1)) for value in values]
