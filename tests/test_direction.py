"""Nothing assumes that lower is better: negated scores with the other direction mirror a report."""

import copy
import io
import math
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench import config, judging, study
from jaxbench.base import Progress
from jaxbench.reporting import paired_plot, strict_json, terminal
from jaxbench.reporting.audit import audit_file
from jaxbench.reporting.html.drawing import BASELINE, IDEA
from jaxbench.reporting.paired_files import compare_files
from jaxbench.reporting.schema import check_report
from jaxbench.training.engine import Engine
from jaxbench.training.keys import stage_key

MIRRORED = """
import dataclasses
from jaxbench.base import Metric
from jaxbench.tracks import tabular

def build(*, sign: int, train_size: int = 400, validation_size: int = 200, test_size: int = 200):
    track = tabular.build(
        train_size=train_size, validation_size=validation_size, test_size=test_size
    )
    direction = "higher" if sign < 0 else "lower"
    return dataclasses.replace(
        track,
        options={**track.options, "sign": sign},
        metric=Metric("score", "1", direction),
        score=lambda outputs, targets: sign * track.score(outputs, targets),
        references=lambda splits: {k: sign * v for k, v in track.references(splits).items()},
    )
"""
"""Friedman's problem, whose score is the mean squared error or its negative."""

BREAKING = """
import jax
import jax.numpy as jnp
from jaxbench.base import Hyper, Intervention

def build() -> Intervention:
    def after_epoch(ctx, params, opt_state, state, epoch):
        broken = abs(jax.random.uniform(ctx.key) - ctx.hyper["drawn"]) < 1e-5
        params = jax.tree.map(lambda leaf: jnp.where(broken, jnp.nan, leaf), params)
        return params, opt_state, state, {}

    return Intervention(
        name="breaking", summary="breaks the runs of some seeds", after_epoch=after_epoch,
        hyper={"drawn": Hyper(2.0, 0.0, 2.0, "what a run that breaks draws", neutral=2.0)},
    )
"""

SMALL: dict[str, Any] = {
    "name": "mirrored",
    "track": {"train_size": 32, "validation_size": 8, "test_size": 8},
    "model": {"name": "mlp_tiny", "hidden": [4, 4]},
    "training": {"epochs": 16, "batch_size": 8},
    "protocol": {"seeds": 6, "tuning_seeds": 2},
    "grid": {"learning_rate": [0.003, 0.03]},
    "arms": {
        "baseline": {
            "intervention": "axis_pruning",
            "options": {"score": "magnitude", "replacement": "zero"},
        },
        "idea": {"intervention": "axis_pruning"},
    },
    "comparisons": [{"idea": "idea", "baseline": "baseline", "role": "primary"}],
}

WORDS = re.compile(r"[-+]?\d[\d.]*(e[-+]?\d+)?")
"""Numbers, which are the mirrored ones; what is left of a sentence must be the same."""


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


def pair(tmp_path: Path, engine: Engine, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The reports of one study with the error as its score, and with its negative."""
    path = tmp_path / "mirrored.py"
    path.write_text(MIRRORED)
    reports = []
    for sign in (1, -1):
        document = copy.deepcopy(SMALL)
        document["track"] |= {"name": str(path), "sign": sign}
        for key, value in changes.items():
            replaces = key in ("arms", "grid")
            document[key] = value if replaces else {**document[key], **value}
        report = study.run_study(config.from_run(document), progress=Progress(), engine=engine)
        check_report(report)
        reports.append(report)
    return reports[0], reports[1]


def check_mirrored(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Everything that judges is the same, and every score is the negative."""
    for name in ("worked", "confidence", "practical_verdict", "system_verdict", "mechanism_ok"):
        assert one[name] == other[name], name
    assert WORDS.sub("#", one["verdict"]) == WORDS.sub("#", other["verdict"])
    assert WORDS.sub("#", one["limitations"]) == WORDS.sub("#", other["limitations"])
    first, second = one["bench_report"], other["bench_report"]
    assert first["metric_direction"] == "lower is better"
    assert second["metric_direction"] == "higher is better"
    assert first["n_seeds"] == second["n_seeds"]
    assert first["mechanism_signature"]["state"] == second["mechanism_signature"]["state"]
    for rule, mirror in zip(
        first["mechanism_signature"]["signatures"],
        second["mechanism_signature"]["signatures"],
        strict=True,
    ):
        assert (rule["name"], rule["state"]) == (mirror["name"], mirror["state"])
    for arm in first["arms"]:
        a, b = first["arms"][arm], second["arms"][arm]
        assert a["best_cfg"] == b["best_cfg"]
        assert a["edge_of_grid"] == b["edge_of_grid"]
        assert a["full"]["diverged"] == b["full"]["diverged"]
        assert a["full"]["per_seed"] == negated(b["full"]["per_seed"])
        for trial, mirror in zip(a["sweep"], b["sweep"], strict=True):
            assert trial["cfg"] == mirror["cfg"]
            assert trial["selected"] == mirror["selected"]
            assert trial["per_seed"] == negated(mirror["per_seed"])
        assert a["curves"] == b["curves"]  # the training loss is minimised, whatever the score is
    mirrored_comparison(first["comparison"], second["comparison"])


def negated(values: list[float | None]) -> list[float | None]:
    return [None if value is None else -value for value in values]


def same(value: Any, rounding: float = 1e-9) -> Any:
    """What equals a value, a number but for rounding."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return pytest.approx(value, rel=rounding, abs=1e-12) if number else value


def mirrored_comparison(one: dict[str, Any], other: dict[str, Any]) -> None:
    """The two say the same of the idea."""
    kept = (
        "outcome", "verdict", "p_value", "p_value_one_sided", "p_corrected", "rank_p_value",
        "attainable_p", "idea_wins", "ties", "acted", "test", "n_pairs", "negligible", "mde",
        "margin",
    )  # fmt: skip
    for name in kept:
        assert one[name] == same(other[name]), name
    assert one["per_seed_diffs"] == negated(other["per_seed_diffs"])
    if one["delta_mean"] is None:
        assert other["delta_mean"] is None
        return
    assert one["delta_mean"] == pytest.approx(-other["delta_mean"], rel=1e-9, abs=1e-15)
    for name, interval in one["intervals"].items():
        opposed = other["intervals"][name]
        assert (interval is None) == (opposed is None), name
        for end, opposite in (("low", "high"), ("high", "low")) if interval else ():
            expected = None if opposed[opposite] is None else -opposed[opposite]
            assert interval[end] == same(expected, 1e-6), name


@pytest.mark.slow
def test_a_study_with_signatures_is_mirrored(tmp_path: Path, engine: Engine) -> None:
    one, other = pair(tmp_path, engine)
    assert one["bench_report"]["mechanism_signature"]["signatures"]
    check_mirrored(one, other)
    path = tmp_path / "report.json"
    for report in (one, other):
        path.write_text(strict_json.dumps(report))
        assert audit_file(path).by_status("contradicts") == []
        shown = io.StringIO()
        terminal.render(report, terminal.console_for(shown))
        assert report["bench_report"]["metric_direction"] in shown.getvalue()


@pytest.mark.parametrize(
    "protocol",
    [
        {"rules": "v1"},
        {"evaluate": "grid"},
        {"seeds": 3, "max_seeds": 6, "alpha": 0.4},
    ],
    ids=["v1", "grid", "until decided"],
)
def test_every_protocol_is_mirrored(
    tmp_path: Path, engine: Engine, protocol: dict[str, Any]
) -> None:
    check_mirrored(*pair(tmp_path, engine, protocol=protocol))


def test_grids_are_widened_on_the_same_side(tmp_path: Path, engine: Engine) -> None:
    """Short training wants ever larger learning rates, by either score."""
    arms = {"baseline": {"intervention": "none"}, "idea": {"intervention": "none"}}
    one, other = pair(
        tmp_path, engine, arms=arms, grid={"learning_rate": [1e-4, 3e-4]},
        protocol={"extend_grid": True}, training={"epochs": 1},
    )  # fmt: skip
    assert len(one["bench_report"]["idea"]["sweep"]) > 2
    check_mirrored(one, other)


def test_diverged_runs_are_the_worst_by_either_score(tmp_path: Path, engine: Engine) -> None:
    path = tmp_path / "breaking.py"
    path.write_text(BREAKING)
    drawn = float(jax.random.uniform(stage_key(4, "method")))
    breaking = {"intervention": str(path), "fixed": {"drawn": drawn}}
    one, other = pair(
        tmp_path, engine, arms={"baseline": {"intervention": "none"}, "idea": breaking},
        training={"epochs": 1}, protocol={"tuning_seeds": 1},
    )  # fmt: skip
    assert [run["seed"] for run in one["bench_report"]["idea"]["full"]["diverged"]] == [4]
    assert "diverged runs worst" in one["bench_report"]["comparison"]["test"]
    check_mirrored(one, other)


# Judging alone

SCORES = st.floats(0.01, 100) | st.just(math.nan)


@given(st.lists(st.tuples(SCORES, SCORES), min_size=2, max_size=9))
def test_a_comparison_is_mirrored(pairs: list[tuple[float, float]]) -> None:
    baseline, idea = np.array(pairs).T
    one = judging.compare(baseline, idea, direction="lower").to_dict()
    other = judging.compare(-baseline, -idea, direction="higher").to_dict()
    mirrored_comparison(one, other)
    for name in ("probability_of_improvement", "probability_idea_better"):
        assert one["effects"][name] == same(other["effects"][name]), name


# Files and pictures


def test_files_and_their_picture_are_mirrored(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    scores = {"baseline": [1.0, 2.0, 3.0, 4.0], "idea": [0.5, 2.5, 2.0, 3.0]}
    colours = []
    for sign, direction in ((1, "lower"), (-1, "higher")):
        paths = []
        for name, values in scores.items():
            paths.append(tmp_path / f"{name}{sign}.csv")
            lines = [f"{seed},{sign * value}" for seed, value in enumerate(values)]
            paths[-1].write_text("seed,score\n" + "\n".join(lines) + "\n")
        result = compare_files(str(paths[0]), str(paths[1]), direction=direction)  # type: ignore[arg-type]
        axes = Figure().subplots()
        arms = [sign * np.array(values) for values in scores.values()]
        paired_plot._slopes(axes, *arms, result.comparison.direction)
        colours.append([(line.get_color(), line.get_linestyle()) for line in axes.lines])
        assert result.comparison.idea_wins == 3
        assert result.comparison.direction == direction
        assert direction in axes.get_ylabel()
    won, lost = (IDEA, "-"), (BASELINE, "--")
    assert colours[0] == colours[1] == [won, lost, won, won]
