"""The shape of reports and configs: models of the stable fields, and their JSON Schemas.

A report may say more than these models name; what they name is stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jaxbench.base import JaxbenchError

DRAFT = "https://json-schema.org/draft/2020-12/schema"
State = Literal["confirmed", "refuted", "vacuous", "untestable"]


class Part(BaseModel):
    """Strict about what it names, open to more."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="allow", allow_inf_nan=False, protected_namespaces=()
    )


class Metric(Part):
    """What a score is."""

    name: str
    unit: str
    direction: Literal["lower", "higher"]


class Parity(Part):
    """How many tuning trials each arm had."""

    mode: Literal["fill", "strict", "off"]
    trials: dict[str, int]
    added: dict[str, list[dict[str, Any]]]


class SequenceUsed(Part):
    """How seeds were added until the primary comparison was decided."""

    test: str
    step: int
    max_seeds: int
    looks: list[int] = Field(description="how many seeds there were at each look")
    stopped_at: int
    stopped_because: Literal["decided", "max_seeds reached"]
    statement: str


class ProtocolUsed(Part):
    """How arms were tuned and compared."""

    rules: Literal["modern", "v1"]
    tuning_seeds: list[int]
    evaluation_seeds: list[int]
    parity: Parity
    evaluate: str
    alpha: float
    margin: float
    selected_on: Literal["validation", "test"]
    asymmetric: bool
    sequential: SequenceUsed | None = Field(
        default=None, description="null where the number of seeds was fixed beforehand"
    )


class Trial(Part):
    """One configuration of a sweep; its mean is null where a run diverged."""

    cfg: dict[str, Any]
    mean: float | None
    std: float | None
    per_seed: list[float | None]
    diverged: int = Field(description="how many of its runs diverged")
    selected: bool = Field(description="whether this is the arm's best_cfg")


class Divergence(Part):
    """A run that diverged."""

    seed: int
    step: int | None


class Full(Part):
    """An arm's scores on the evaluation seeds; null for a run that diverged."""

    mean: float | None
    std: float | None = Field(description="over seeds, with n in the denominator")
    per_seed: list[float | None]
    n: int
    diverged: list[Divergence]


class ArmResult(Part):
    """What an arm did."""

    intervention: str
    best_cfg: dict[str, Any]
    edge_of_grid: dict[str, str | None]
    sweep: list[Trial]
    full: Full
    full_mean: float | None
    curves: dict[str, Any] = Field(
        default_factory=dict, description="of the evaluation runs by name, [seeds][epochs]"
    )
    cost: dict[str, Any]


class SequentialResult(Part):
    """The anytime-valid test, pair by pair; it makes the verdict where seeds were added."""

    max_pairs: int
    e_values: list[float]
    p_values: list[float] = Field(description="valid at any time; the last one decides")
    decided_at: int | None
    sign: int
    not_valid: str


class ComparisonResult(Part):
    """Idea against baseline; a difference is idea minus baseline."""

    delta_mean: float | None
    idea_wins: int
    n_pairs: int
    per_seed_diffs: list[float | None]
    p_value: float
    p_corrected: float
    attainable_p: float
    mde: float | None
    mde_80: float | None
    outcome: Literal["better", "worse", "equivalent", "inconclusive"]
    verdict: Literal["idea better (significant)", "idea worse (significant)", "no significant win"]
    system_worked: bool
    sequential: SequentialResult | None = None


class NamedComparison(ComparisonResult):
    """A comparison with the arms that it compares and its part in the verdict."""

    idea_arm: str
    baseline_arm: str
    role: Literal["primary", "secondary", "control"]
    endpoint: str | None = Field(default=None, description="what is compared instead of the score")


class LookEntry(Part):
    """How often a comparison's baseline was compared with, and the p-value corrected for it."""

    idea_arm: str
    baseline_arm: str
    role: Literal["primary", "secondary"]
    endpoint: str | None = Field(default=None, description="what is compared instead of the score")
    baseline_digest: str
    looks: int = Field(description="at this baseline on this track, this study's included")
    looks_of_this_study: int
    p: float = Field(description="before correction; anytime-valid if seeds were added on demand")
    p_corrected: float = Field(description="by Holm's rule over all looks so far")


class Ledger(Part):
    """The looks at the study's baselines when the report was written."""

    file: str
    date: str
    comparisons: list[LookEntry]


class PointSet(Part):
    """Predictions and measurements of one set of runs, evenly thinned out."""

    predicted: list[float]
    measured: list[float]
    of: int = Field(description="how many points there were")


class SignaturePoints(Part):
    """A signature's prediction against its measurement: of the idea, the null and the controls."""

    predicted: str = Field(description="the quantity that predicts")
    measured: str
    equal: bool = Field(description="whether the two should be equal")
    panels: dict[str, PointSet]


class SignatureEntry(Part):
    """What became of one signature; its state is null for a rule of the reference reports."""

    name: str
    claim: str
    formula: str
    state: State | None
    confirmed: bool
    confirmed_legacy: bool | None
    skill: float | None
    rule_digest: str
    points: SignaturePoints | None = Field(
        default=None, description="what is drawn; null where the signature does not say"
    )


class MechanismSignature(Part):
    """What became of the idea's explanation."""

    state: State
    confirmed: bool
    confirmed_legacy: bool | None
    signatures: list[SignatureEntry]


class BenchReport(Part):
    """The numbers."""

    bench_version: int
    study: str
    title: str
    quick: bool = Field(default=False, description="whether it only shows that the study works")
    run_id: str
    track: str
    track_options: dict[str, Any]
    model: str
    model_options: dict[str, Any]
    metric: Metric
    metric_direction: Literal["lower is better", "higher is better"]
    n_seeds: int
    protocol: ProtocolUsed
    arms: dict[str, ArmResult]
    baseline: ArmResult
    idea: ArmResult
    comparisons: list[NamedComparison]
    comparison: ComparisonResult
    mechanism_signature: MechanismSignature
    references: dict[str, dict[str, Any]]
    cost: dict[str, Any]
    programs: list[dict[str, Any]]
    provenance: dict[str, Any]
    config: dict[str, Any]
    ledger: Ledger | None = Field(
        default=None, description="looks at the baselines; left out where no folder was written to"
    )


class Report(Part):
    """A report: the verdict, and the numbers under `bench_report`."""

    worked: bool
    confidence: int = Field(ge=0, le=10)
    verdict: str = Field(description="one sentence, made of the numbers")
    metrics: dict[str, Any]
    bench_report: BenchReport
    how_to_run: str
    files: list[str]
    limitations: str
    system_verdict: Literal["worked", "partial", "failed"]
    practical_verdict: Literal["helps", "harms", "inconclusive"]
    mechanism_ok: int = Field(ge=0, le=1)
    system_judged: bool


def report_schema() -> dict[str, Any]:
    """Give the JSON Schema (draft 2020-12) of a report."""
    return {"$schema": DRAFT, **Report.model_json_schema()}


def config_schema() -> dict[str, Any]:
    """Give the JSON Schema (draft 2020-12) of a config file."""
    from jaxbench.config import Config, Sweep

    schema = Config.model_json_schema()
    sweep = Sweep.model_json_schema()
    schema["$defs"] |= sweep.pop("$defs", {})
    schema["properties"]["sweep"] = sweep
    schema["properties"]["quick"] = {
        "type": "object",
        "description": "values that --quick lays over the rest",
    }
    schema["properties"]["tracks"] = {
        "type": "object",
        "additionalProperties": {"type": "object"},
        "description": "values that --tracks lays over the rest, a table for each track",
    }
    optional = ("name", "comparisons")
    schema["required"] = [name for name in schema["required"] if name not in optional]
    return {"$schema": DRAFT, **schema}


def check_report(report: Mapping[str, Any]) -> None:
    """Refuse a report that has not the stable fields.

    Raises:
        JaxbenchError: naming the first place that is wrong.
    """
    from jaxbench.reporting.strict_json import dumps

    try:
        Report.model_validate_json(dumps(report))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise JaxbenchError(
            f"no jaxbench report: {place}: {first['msg']}"
            f" ({error.error_count()} such problems in all)"
        ) from error
