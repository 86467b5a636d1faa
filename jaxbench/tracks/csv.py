"""`csv`: regression on a table that the user brings, such as one of the UCI repository.

The file has one sample a line and one number a column; the first line may name the columns.  Rows
are drawn into splits anew for each seed, and standardised on the training split.
"""

from __future__ import annotations

import csv
import difflib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Gt, Len, Lt

from jaxbench.base import DataFiles, JaxbenchError, Track
from jaxbench.tracks import samples
from jaxbench.tracks.tables import table_track

if TYPE_CHECKING:
    from jaxtyping import Float

FEWEST = 5


def number(cell: str) -> float | None:
    """Read a cell; None where it is no finite number."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_table(
    path: Path, delimiter: str
) -> tuple[list[str], Float[np.ndarray, "samples columns"]]:
    """Read a table of numbers and the names of its columns, which are 1, 2, ... without a header.

    Raises:
        JaxbenchError: it cannot be read, or a line or a cell is not as it should be.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [
                (line, [cell.strip() for cell in row])
                for line, row in enumerate(csv.reader(file, delimiter=delimiter), start=1)
                if any(cell.strip() for cell in row)
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise JaxbenchError(f"{path} cannot be read: {error}") from error
    names = [str(place) for place in range(1, len(rows[0][1]) + 1)] if rows else []
    if rows and not all(number(cell) is not None for cell in rows[0][1]):
        names = rows.pop(0)[1]
    if len(rows) < FEWEST or len(names) < 2:
        raise JaxbenchError(
            f"{path} has {len(rows)} lines of {len(names)} columns; expected at least {FEWEST} "
            f"samples of an input and a target, with {delimiter!r} between columns"
        )
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise JaxbenchError(f"{path} names two columns {twice[0]!r}; give each its own name")
    table = np.empty((len(rows), len(names)))
    for place, (line, row) in enumerate(rows):
        if len(row) != len(names):
            raise JaxbenchError(
                f"{path}, line {line}: expected {len(names)} columns, got {len(row)}"
            )
        for column, cell in enumerate(row):
            value = number(cell)
            if value is None:
                raise JaxbenchError(
                    f"{path}, line {line}, column {names[column]!r}: expected a finite number, got "
                    f"{cell!r}; remove the line or the column, or encode it as numbers"
                )
            table[place, column] = value
    return names, table


def build(
    *,
    path: Annotated[str, DataFiles()] = "",
    target: str | None = None,
    delimiter: Annotated[str, Len(1, 1)] = ",",
    validation_share: Annotated[float, Gt(0), Lt(1)] = 0.2,
    test_share: Annotated[float, Gt(0), Lt(1)] = 0.2,
) -> Track:
    """Build regression on a user's table.

    Args:
        path: of the file; a relative one begins at the working directory.
        target: the column to predict; if not given, the last one.  All others are inputs.
        delimiter: between columns.
        validation_share: of the rows.
        test_share: of the rows; those that are left train.
    """
    options = dict(locals())
    if not path:
        raise JaxbenchError(
            "the track csv needs track.path: a file with one sample a line and one number a "
            "column, such as a data set of https://archive.ics.uci.edu"
        )
    if not Path(path).expanduser().is_file():
        raise JaxbenchError(f"no file {path!r}, which track.path names")
    names, table = read_table(Path(path).expanduser(), delimiter)
    if target is not None and target not in names:
        near = difflib.get_close_matches(target, names, n=1, cutoff=0.55)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise JaxbenchError(f"{path} has no column {target!r}{hint} ({', '.join(names)})")
    chosen = names.index(target) if target is not None else len(names) - 1
    held_out = [round(share * len(table)) for share in (validation_share, test_share)]
    sizes = (len(table) - sum(held_out), *held_out)
    if min(sizes) < 1 or sizes[0] < 2:
        raise JaxbenchError(
            f"{len(table)} rows of {path} cannot be split into {sizes[0]} for training, {sizes[1]} "
            f"for validation and {sizes[2]} for the test; change validation_share or test_share"
        )
    return table_track(
        np.delete(table, chosen, axis=1),
        table[:, [chosen]],
        (sizes[0], sizes[1], sizes[2]),
        name="csv",
        summary="regression on a table that the user brings",
        options={**options, "target": names[chosen], "data": samples.digest(table)},
        where=path,
    )
