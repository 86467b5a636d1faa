"""Score tables: one score a seed, read from CSV, JSON or a report of whatever origin."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jaxbench.base import JaxbenchError
from jaxbench.judging.arguments import Direction
from jaxbench.reporting import written
from jaxbench.reporting.report_fields import Fields
from jaxbench.reporting.score_cells import (
    NUMBER,
    WHOLE,
    Options,
    collect,
    parse,
    seed_name,
    words,
)
from jaxbench.reporting.written import shown

SEED = re.compile(r"(^|[._/ ])(random_?)?seed$", re.IGNORECASE)
ARM = re.compile(r"^(arm|method|variant|group)$", re.IGNORECASE)
SCORE = re.compile(r"^score$", re.IGNORECASE)
SEPARATOR = "::"

Role = Literal["baseline", "idea"]


@dataclasses.dataclass(frozen=True)
class Scores:
    """One arm's scores.

    Attributes:
        label: the file, and the arm or column in it.
        by_seed: the score of each seed, NaN where the run diverged.
        named: whether seeds have names, rather than being the first, the second and so on.
        direction: in which the score improves, where the file says so.
    """

    label: str
    by_seed: Mapping[str, float]
    named: bool
    direction: Direction | None = None


@dataclasses.dataclass(frozen=True)
class Rows:
    """A table of text: its header, and its rows with the line that each stands on."""

    label: str
    header: list[str]
    rows: list[tuple[int, list[str]]]

    def column(self, name: str) -> list[tuple[int, str]]:
        """Give a column's cells with their lines, stripped; a row that is too short has none."""
        place = self.header.index(name)
        return [
            (line, cells[place].strip() if place < len(cells) else "") for line, cells in self.rows
        ]


# --------------------------------------------------------------------------------------------------
# Files
# --------------------------------------------------------------------------------------------------


def read_scores(source: str, role: Role, options: Options) -> Scores:
    """Read one arm's scores.

    CSV: columns `seed` and `score` and perhaps `arm` (long), or one column an arm (wide), with
    whatever further columns there are, separated by commas, semicolons or tabs.  JSON: a list of
    numbers, {seed: score}, a list of {seed, score}, or a report.

    Args:
        source: the path of a file or of a run's folder, and after `::` the arm or column to take
            where it has several; those called `baseline` and `idea` are found by their role.
        role: of the arm in the comparison.
        options: how to read it.

    Raises:
        JaxbenchError: saying what was expected, what is there, and how to choose.
    """
    path, _, name = source.partition(SEPARATOR) if not os.path.exists(source) else (source, "", "")
    path = str(written.report_file(path))
    content = read_bytes(path)
    text = decode(path, content)
    if text.lstrip()[:1] in ("{", "["):
        return from_json(path, written.read_document(path), name, role, options)
    return from_rows(read_rows(path, text), name, role, options)


def read_bytes(path: str) -> bytes:
    """Read a file.

    Raises:
        JaxbenchError: it cannot be read, or is empty.
    """
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise JaxbenchError(
            f"{path} cannot be read: {getattr(error, 'strerror', error)}"
        ) from error
    if not content.strip():
        raise JaxbenchError(f"{path} is empty; expected scores as CSV or JSON")
    return content


def decode(path: str, content: bytes) -> str:
    """Read text in UTF-8, or in UTF-16 with its mark, without the mark.

    Raises:
        JaxbenchError: it is no text.
    """
    marked = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        text = content.decode("utf-16" if marked else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise JaxbenchError(f"{path} is no text: expected scores as CSV or JSON") from error
    if "\0" in text:
        raise JaxbenchError(f"{path} is no text: expected scores as CSV or JSON")
    return text


def read_rows(path: str, text: str) -> Rows:
    """Read CSV, its separator being whichever of `,` `;` and tab splits the header most.

    Raises:
        JaxbenchError: it is no CSV, has no header, or no rows.
    """
    first = text.splitlines()[0] if text.splitlines() else ""
    separator = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        lines = [(reader.line_num, cells) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        raise JaxbenchError(f"{path} is no CSV: line {reader.line_num}: {error}") from error
    if not lines:
        raise JaxbenchError(f"{path} is empty; expected scores as CSV or JSON")
    header = [cell.strip() for cell in lines[0][1]]
    if all(NUMBER.fullmatch(decimal(cell, separator)) for cell in header):
        raise JaxbenchError(f"{path} has no header; name its columns, such as seed,score")
    twice = sorted({name for name in header if header.count(name) > 1 and name})
    if twice:
        raise JaxbenchError(f"{path} has several columns called {twice[0]!r}; name each once")
    if len(lines) == 1:
        raise JaxbenchError(f"{path} has a header and no rows")
    rows = [(line, [decimal(cell, separator) for cell in cells]) for line, cells in lines[1:]]
    return Rows(path, header, rows)


def decimal(cell: str, separator: str) -> str:
    """Write a decimal comma, as it stands between semicolons, as a point."""
    if separator == ";" and re.fullmatch(r"\s*[+-]?\d*,\d+(e[+-]?\d+)?\s*", cell, re.IGNORECASE):
        return cell.replace(",", ".")
    return cell


# --------------------------------------------------------------------------------------------------
# CSV
# --------------------------------------------------------------------------------------------------


def from_rows(table: Rows, name: str, role: Role, options: Options) -> Scores:
    """Choose the rows and the column that hold an arm's scores."""
    seed = find_column(table, options.seed_column, SEED, "seed")
    arm = find_column(table, None, ARM, "arm")
    chosen = name
    if arm is not None and (name in dict(table.column(arm)).values() or not name):
        arms = list(dict.fromkeys(cell for _, cell in table.column(arm)))
        if len(arms) > 1:
            picked = pick(table.label, "arm", arms, name, role)
            kept = [row for row, (_, cell) in zip(table.rows, table.column(arm), strict=True)
                    if cell == picked]  # fmt: skip
            table, chosen = Rows(f"{table.label}{SEPARATOR}{picked}", table.header, kept), ""
    score = score_column(table, chosen, role, options, (seed, arm))
    label = table.label if SEPARATOR in table.label else f"{table.label}{SEPARATOR}{score}"
    cells = table.column(score)
    places = dict(cells)
    values = {line: parse(label, f"line {line}", cell, options) for line, cell in places.items()}
    if seed is None:
        by_seed = {str(place): value for place, value in enumerate(values.values())}
        return Scores(label, by_seed, named=False)
    seeds = [(seed_name(label, line, cell), values[line]) for line, cell in table.column(seed)]
    return Scores(label, collect(label, seeds, options), named=True)


def find_column(table: Rows, wanted: str | None, pattern: re.Pattern[str], what: str) -> str | None:
    """Find a column by its name, or by the names that it usually has; None where there is none."""
    if wanted is not None:
        if wanted not in table.header:
            raise JaxbenchError(
                f"{table.label} has no column {wanted!r}; its columns are {words(table.header)}"
            )
        return wanted
    found = [name for name in table.header if pattern.search(name)]
    if len(found) > 1:
        exact = [name for name in found if name.lower() == what]
        if len(exact) != 1:
            how = " with --seed-column" if what == "seed" else ""
            raise JaxbenchError(
                f"{table.label}: several columns could be the {what}: {words(found)}; choose{how}"
            )
        found = exact
    return found[0] if found else None


def score_column(
    table: Rows, name: str, role: Role, options: Options, taken: Iterable[str | None]
) -> str:
    """Choose the column of scores: as asked for, `score`, by role, or the only one with numbers."""
    if name or options.score_column:
        found = find_column(table, name or options.score_column, SCORE, "score")
        assert found is not None
        return found
    rest = [column for column in table.header if column not in set(taken) and column]
    exact = [column for column in rest if SCORE.search(column)]
    if len(exact) == 1:
        return exact[0]
    numeric = [c for c in rest if any(NUMBER.fullmatch(cell) for _, cell in table.column(c))]
    if not numeric:
        raise JaxbenchError(f"{table.label} has no column with numbers beside the seeds")
    how = "--score-column NAME"
    return numeric[0] if len(numeric) == 1 else pick(table.label, "column", numeric, "", role, how)


def pick(label: str, what: str, names: Sequence[str], name: str, role: Role, how: str = "") -> str:
    """Choose one of several names: the one asked for, or the one called as its role."""
    if name in names:
        return name
    by_role = [each for each in names if each.lower() == role]
    if not name and len(by_role) == 1:
        return by_role[0]
    asked = f"no {what} {name!r}" if name else f"several {what}s that could be the {role}"
    either = f", or {how}" if how else ""
    raise JaxbenchError(
        f"{label} has {asked}: {words(names)}; choose with {label}{SEPARATOR}NAME{either}"
    )


# --------------------------------------------------------------------------------------------------
# JSON
# --------------------------------------------------------------------------------------------------


def from_json(path: str, document: Any, name: str, role: Role, options: Options) -> Scores:
    """Read scores from a list, a mapping of seeds, a list of records, or a report."""
    if isinstance(document, list) and any(isinstance(entry, Mapping) for entry in document):
        return from_rows(records(path, document), name, role, options)
    if isinstance(document, list):
        by_seed = {str(i): parse(path, f"entry {i}", v, options) for i, v in enumerate(document)}
        return Scores(path, by_seed, named=False)
    scalars = not any(isinstance(value, Mapping | list) for value in document.values())
    if scalars and document and all(WHOLE.fullmatch(key.strip()) for key in document):
        seeds = [
            (seed_name(path, key, key), parse(path, f"seed {key}", value, options))
            for key, value in document.items()
        ]
        return Scores(path, collect(path, seeds, options), named=True)
    return from_report(path, document, name, role)


def records(path: str, entries: list[Any]) -> Rows:
    """Lay a list of flat records out as a table."""
    header = list(dict.fromkeys(key for e in entries if isinstance(e, Mapping) for key in e))
    rows = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise JaxbenchError(f"{path}: entry {index} is {shown(entry)}; expected a record")
        cells = [entry.get(key) for key in header]
        rows.append((index, ["" if cell is None else shown(cell) for cell in cells]))
    return Rows(path, header, rows)


def from_report(path: str, document: Mapping[str, Any], name: str, role: Role) -> Scores:
    """Read an arm's scores from a report, ours or in the style of the reference reports."""
    fields = Fields(document)
    arms = {arm: found for arm, found in fields.arms.items() if found.scores is not None}
    if not arms:
        raise JaxbenchError(
            f"{path} holds no score for each seed: neither {{seed: score}} nor a report with its "
            f"arms' per_seed scores"
        )
    arm = pick(path, "arm", list(arms), name, role)
    scores = arms[arm].scores or []
    seeds = next((v for p, v in fields.everything if p[-1:] == ("evaluation_seeds",)), None)
    listed = written.numbers(seeds)
    fits = listed is not None and len(listed) == len(scores) and None not in listed
    names = [shown(seed) for seed in listed or ()] if fits else list(map(str, range(len(scores))))
    given = ((s, math.nan if v is None else float(v)) for s, v in zip(names, scores, strict=True))
    by_seed = collect(path, list(given), Options())
    return Scores(f"{path}{SEPARATOR}{arm}", by_seed, fits, fields.direction)
