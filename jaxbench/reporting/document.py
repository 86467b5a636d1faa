"""A report in a program's hands: its main numbers by name, everything else by key."""

from __future__ import annotations

import html
import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self


class Report(Mapping[str, Any]):
    """A report, as `report.json` has it, with its main numbers as attributes.

    It is a mapping: `report["bench_report"]["arms"]` gives what the file has there.  Printed, it is
    what `jaxbench run` prints; in a notebook, a table.

    Args:
        document: a report's data.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)

    def __getitem__(self, key: str) -> Any:
        return self.document[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document)

    def __len__(self) -> int:
        return len(self.document)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a report from its file, or from the folder that has it.

        Raises:
            JaxbenchError: it cannot be read, or is no report.
        """
        from jaxbench import storage

        return cls(storage.read_report(path))

    def save(self, out: str | os.PathLike[str] = "results") -> Path:
        """Write `OUT/<study>/<run id>/report.json`, whole or not at all, and return its path.

        Raises:
            JaxbenchError: the folder cannot be written.
        """
        from jaxbench import storage

        return storage.write_report(out, self.document)

    # What a reader asks first ---------------------------------------------------------------------

    @property
    def bench(self) -> dict[str, Any]:
        """The numbers: `bench_report`."""
        found: dict[str, Any] = self.document["bench_report"]
        return found

    @property
    def verdict(self) -> str:
        """What came out, in sentences."""
        return str(self.document["verdict"])

    @property
    def outcome(self) -> str:
        """`better`, `worse`, `equivalent` or `inconclusive`."""
        return str(self.bench["comparison"]["outcome"])

    @property
    def practical_verdict(self) -> str:
        """`helps`, `harms` or `inconclusive`."""
        return str(self.document["practical_verdict"])

    @property
    def system_verdict(self) -> str:
        """`worked`, `partial` or `failed`."""
        return str(self.document["system_verdict"])

    @property
    def worked(self) -> bool:
        """Whether the idea helps, and by its own explanation."""
        return bool(self.document["worked"])

    @property
    def confidence(self) -> int:
        """How far to trust the verdict, 0 to 10."""
        return int(self.document["confidence"])

    @property
    def difference(self) -> float | None:
        """The mean of idea minus baseline; None where a run diverged."""
        found: float | None = self.bench["comparison"]["delta_mean"]
        return found

    @property
    def p_value(self) -> float:
        """The primary comparison's exact p-value, before correction."""
        return float(self.bench["comparison"]["p_value"])

    @property
    def scores(self) -> dict[str, list[float | None]]:
        """Each arm's test score on each evaluation seed; None where a run diverged."""
        return {name: list(arm["full"]["per_seed"]) for name, arm in self.bench["arms"].items()}

    # Display --------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<jaxbench report of {self.bench['study']}: {self.verdict}>"

    def __str__(self) -> str:
        from jaxbench.reporting import terminal

        stream = io.StringIO()
        terminal.render(self.document, terminal.console_for(stream))
        return stream.getvalue()

    def _repr_html_(self) -> str:
        """A verdict and under it its numbers, for notebooks; all text is escaped."""
        from jaxbench.reporting.terminal import number

        bench, judged = self.bench, self.bench["comparison"]
        interval = (judged.get("intervals") or {}).get("t") or {}
        ends = " to ".join(
            number(interval.get(end), signed=True, missing="unbounded") for end in ("low", "high")
        )
        rows = {
            "in practice": self.practical_verdict,
            "both together": self.system_verdict,
            "mechanism": bench["mechanism_signature"]["state"],
            "confidence": f"{self.confidence} of 10",
            "baseline": number(bench["baseline"]["full_mean"], missing="diverged"),
            "idea": number(bench["idea"]["full_mean"], missing="diverged"),
            "difference": number(self.difference, signed=True),
            "95 % interval" if not interval else f"{100 * interval['confidence']:.3g} % interval":
                ends if interval else "-",
            "detectable difference (80 % power)": number(judged.get("mde_80")),
            "p": number(self.p_value),
            "pairs": str(judged["n_pairs"]),
            "edge of the grid": ", ".join(
                f"{side} {name} at the {edge} edge"
                for side in ("baseline", "idea")
                for name, edge in (bench[side].get("edge_of_grid") or {}).items()
                if edge
            ) or "none",
        }  # fmt: skip
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
            for name, value in rows.items()
        )
        title = html.escape(str(bench.get("title") or bench["study"]))
        verdict = html.escape(self.verdict)
        return (
            f"<div style='max-width:50rem'><p><b>{title}</b></p><p>{verdict}</p>"
            f"<table>{cells}</table></div>"
        )
