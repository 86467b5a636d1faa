"""A figure with what a reader needs who cannot see it: an alternative text and its data."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jaxbench.reporting.html.quantities import THIN, TIMES, number

FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 300
LOG_SPAN = 10.0
"""Positive values that span more than this are drawn on a logarithmic axis."""

COLOURS = {
    "ink": "#1b2330",
    "muted": "#66707f",
    "rule": "#d5dae1",
    "shade": "#e9edf2",
    "idea": "#1f5fa8",
    "baseline": "#7c8592",
    "paper": "#fefefe",
}
"""On white.  Each is a variable of the page's style sheet too, with another value in the dark."""
INK, MUTED, RULE, SHADE, IDEA, BASELINE, PAPER = COLOURS.values()

STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.5,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": RULE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.formatter.use_mathtext": False,
    "axes.formatter.limits": (-4, 5),
    "axes.unicode_minus": True,
    "text.color": INK,
    "text.parse_math": False,
    "text.usetex": False,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "jaxbench",
}
NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
LONGEST_LABEL = 34


@dataclasses.dataclass(frozen=True)
class Table:
    """The data behind a figure, or any other table of a page.

    Attributes:
        caption: what the rows are.
        columns: headings.
        rows: text, the first cell of each being its heading.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure.

    Attributes:
        name: of its files, and of its part of the page.
        title: a few words.
        caption: how to read it.
        alternative: what it shows, in words.
        figure: matplotlib's.
        table: the data behind it.
        wide: whether it needs the page's whole width.
    """

    name: str
    title: str
    caption: str
    alternative: str
    figure: Any
    table: Table
    wide: bool = False


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw in the style of the pages, without warnings of letters that the font lacks."""
    import matplotlib

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*[Gg]lyph.*")
        yield


def canvas(width: float = 4.4, height: float = 3.0, **subplots: Any) -> tuple[Any, Any]:
    """Make a figure, in inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(**subplots)


def label(text: Any, longest: int = LONGEST_LABEL) -> str:
    """Make text fit for a figure: one line, not too long, of characters that XML allows."""
    clean = NOT_IN_XML.sub("\ufffd", " ".join(str(text).split()))
    return clean if len(clean) <= longest else f"{clean[: longest - 1]}\u2026"


def quantity_label(name: str, unit: str) -> str:
    """Name an axis by what it shows and its unit, in two lines where one would be too long."""
    shown, of = label(name, 44), f"({label(unit, 42)})" if unit else ""
    return f"{shown}{chr(10) if len(shown) + len(of) > LONGEST_LABEL else ' '}{of}".strip()


def few_ticks(axes: Any) -> None:
    """Write so few numbers along the x axis, and so short, that long ones stand apart."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def logarithmic(axes: Any, which: Literal["x", "y"], values: Sequence[float]) -> None:
    """Make an axis logarithmic, with plain numbers at its ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    wide = max(values) > 100 * min(values)
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axis.set_minor_locator(NullLocator())


def _tick(value: float) -> str:
    """Write a tick; a power of ten that needs an exponent without its factor of 1."""
    return number(value, digits=3).removeprefix(f"1{THIN}{TIMES}{THIN}")


def spans_decades(values: Sequence[float]) -> bool:
    """Tell whether values are better drawn on a logarithmic axis."""
    return bool(values) and min(values) > 0 and max(values) > LOG_SPAN * min(values)


def embedded(drawing: Drawing) -> str:
    """Give a figure as an SVG element for a page, whose colours are the page's variables.

    Only tags are changed; text in a figure was escaped when it was written.
    """
    svg = _svg(drawing)
    svg = re.sub(
        r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.S
    )

    def of_page(tag: re.Match[str]) -> str:
        text = tag[0]
        text = re.sub(r'((?:\bid="|href="#|url\(#))', rf"\g<1>{drawing.name}-", text)
        for name, colour in COLOURS.items():
            text = text.replace(colour, f"var(--{name})")
        text = text.replace("'DejaVu Sans', sans-serif", "var(--sans)")
        if text.startswith("<svg"):
            view = re.search(r'viewBox="[^"]*"', text)
            assert view is not None
            return (
                f'<svg {view[0]} role="img" aria-labelledby="{drawing.name}-alternative" '
                f'xmlns:xlink="http://www.w3.org/1999/xlink">'
            )
        return text

    return re.sub(r"<[^>]+>", of_page, svg).strip()


def _svg(drawing: Drawing) -> str:
    """Draw a figure once; `savefig` would draw it twice."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    with style():
        FigureCanvasSVG(drawing.figure).print_svg(buffer, metadata={"Date": None})
    return buffer.getvalue()


def save(drawing: Drawing, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write a figure into files for papers, on white; the same figure gives the same bytes.

    Raises:
        OSError: a file cannot be written.
    """
    undated: Mapping[str, dict[str, Any]] = {
        "svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {},
    }  # fmt: skip
    paths = [folder / f"{drawing.name}.{each}" for each in formats]
    with style():
        for path, each in zip(paths, formats, strict=True):
            drawing.figure.savefig(
                path, dpi=DOTS_PER_INCH, facecolor="white", metadata=undated[each]
            )
    return paths
