"""Parts of an audit: whether a report that calls itself one of jaxbench has what all of them have.

A number that is left out contradicts no other one, so a report could hide what it is judged by.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from jaxbench.reporting.audit_findings import Findings
from jaxbench.reporting.report_fields import Fields
from jaxbench.reporting.schema import Report
from jaxbench.reporting.written import Written, shown

OWN = {"study", "run_id", "config_digest"}
"""Fields of `bench_report` that only reports of jaxbench have."""
LONGEST = 60


def parts(fields: Fields, findings: Findings) -> None:
    """Check a report of jaxbench against the stable fields of `jaxbench.reporting.schema`."""
    bench = fields.at(("bench_report",))
    if not isinstance(bench, Mapping) or not OWN & bench.keys():
        return
    try:
        Report.model_validate(plain(fields.document))
    except ValidationError as error:
        for each in error.errors(include_url=False):
            value = fields.at(each["loc"])
            stated = "null" if value is None else shown(value)[:LONGEST]
            stated = "nothing" if each["type"] == "missing" else stated
            expected = each["msg"].replace("Field required", "a value")
            expected = expected.removeprefix("Input should be ")
            findings.add(each["loc"], stated, False, expected, "every report of jaxbench has it")


def plain(value: Any) -> Any:
    """Give a document with numbers of Python in place of written ones."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, Written):
        whole = re.fullmatch("-?[0-9]{1,300}", value.text)
        return int(value.text) if whole else float(value)
    return value
