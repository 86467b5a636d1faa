"""Calibration of tracks: what is trained, and what the committed measurements say."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from jaxbench import calibration, cli
from jaxbench.base import JaxbenchError
from jaxbench.judging import clopper_pearson
from jaxbench.judging.calibration import Scores, calibrate
from jaxbench.training.engine import Engine
from jaxbench.training.runs import Run, Schedule

COMMITTED = Path(__file__).parent.parent / "results" / "calibration"
SMALL = calibration.Setting(
    {"train_size": 16, "validation_size": 8, "test_size": 8}, "mlp_tiny", {"hidden": [4]},
    Schedule(epochs=1, batch_size=8), 0.01, (0.003, 0.01),
)  # fmt: skip
SIZES = calibration.Sizes(
    studies=8, tuned=3, planted=2, pairs=8, tuning_seeds=2, sequences=50, max_pairs=16
)


def test_no_two_studies_share_a_seed_and_none_is_a_seed_of_a_config() -> None:
    seeds = calibration.draw_seeds(calibration.Sizes())
    everything = np.concatenate([part.ravel() for part in dataclasses.asdict(seeds).values()])
    assert len(everything) == 400 * 8 * 2 + 50 * (4 + 8) * 2 + 100 * 8
    assert len(np.unique(everything)) == len(everything)
    assert everything.min() >= calibration.FIRST_SEED
    assert everything.max() < 2**31
    again = calibration.draw_seeds(calibration.Sizes())
    np.testing.assert_array_equal(seeds.fixed, again.fixed)


def test_the_master_seed_is_never_changed() -> None:
    assert calibration.MASTER_SEED == 5_202_612


def test_the_second_arm_has_the_data_of_the_first_and_other_training() -> None:
    """Some of the runs trained again by themselves; each half of a pair is what it should be."""
    recipe = calibration.recipe_of("tabular", SMALL)
    seeds = calibration.draw_seeds(SIZES)
    engine = Engine()
    scores = calibration.train(recipe, SMALL, seeds, engine)

    def alone(rate: float, data: int, training: int | None) -> float:
        run = Run("x", 0, {"learning_rate": rate}, int(data), recipe, training and int(training))
        [trained] = engine.train([run])
        return trained.test

    data, other = seeds.fixed[5, 3]
    assert scores.fixed[5, 0, 3] == pytest.approx(alone(0.01, data, None), rel=1e-7)
    assert scores.fixed[5, 1, 3] == pytest.approx(alone(0.01, data, other), rel=1e-7)
    assert scores.fixed[5, 0, 3] != scores.fixed[5, 1, 3]
    seed = seeds.planted[1, 2]
    assert scores.planted[1, 0, 2] == pytest.approx(alone(0.01, seed, None), rel=1e-7)
    assert scores.planted[1, 1, 2] == pytest.approx(alone(0.005, seed, None), rel=1e-7)
    data, other = seeds.tuned[2, 7]
    rate = scores.chosen[2, 1]
    assert scores.tuned[2, 1, 7] == pytest.approx(alone(rate, data, other), rel=1e-7)
    tried = [
        Run("x", 0, {"learning_rate": rate}, int(data), recipe, int(other))
        for rate in SMALL.grid for data, other in seeds.tuning[2]
    ]  # fmt: skip
    validation = np.reshape([each.validation for each in engine.train(tried)], (2, 2))
    assert rate == SMALL.grid[int(np.argmin(validation.mean(axis=1)))]


def test_the_command_prints_a_table_and_writes_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setitem(calibration.SETTINGS, "tabular", SMALL)
    sizes = functools.partial(calibration.Sizes, **dataclasses.asdict(SIZES))
    monkeypatch.setattr(calibration, "Sizes", sizes)
    result = CliRunner().invoke(cli.cli, ["calibrate", "tabular", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "new" / "tabular.json").read_text())
    assert written["cost"]["runs"] == 8 * 2 * 8 + 2 * 2 * 8 + 3 * 2 * (2 * 2 + 8)
    assert written["cost"]["wall_seconds"] > 0.0
    assert recomputed(written).items() <= written.items()
    differ = written["tuned"]["other"]["false_positives"] is not None
    assert ("the luck of tuning" in result.stdout) is differ
    for text in ("4.688 %", "they chose differently", "master seed 5202612", "rate of 0.005"):
        assert text in " ".join(result.stdout.split()), result.stdout
    assert f"Of the {3 * 2} tuned arms the learning rate was " in result.stdout
    counted = written["fixed"]["false_positives"]["count"]
    assert re.search(rf"^one learning rate +{counted} of 8 ", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["dynamic"], "no calibration of a track 'dynamic'; did you mean dynamics?"),
        (["tabular", "--out", "/proc/x"], "results cannot be written to /proc/x"),
        ([], "Missing argument 'TRACK'"),
    ],
)
def test_bad_input_is_told_before_anything_is_trained(
    arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "calibrate_track", None)
    result = CliRunner().invoke(cli.cli, ["calibrate", *arguments])
    assert result.exit_code == 2
    assert expected in result.stderr


def test_a_track_without_a_setting_is_refused() -> None:
    with pytest.raises(JaxbenchError, match=r"tracks: dynamics, tabular"):
        calibration.setting_of("no such")


# The committed measurements -----------------------------------------------------------------------


def recomputed(written: dict[str, Any]) -> dict[str, Any]:
    """Count again what a file counts, from the scores in it."""
    scores = {
        name: np.array(values, dtype=float) for name, values in written["scores"].items()
    }  # null is NaN
    return calibrate(
        Scores(**scores),
        "lower" if written["metric_direction"] == "lower is better" else "higher",
        sequences=written["sizes"]["sequences"],
        max_pairs=written["sizes"]["max_pairs"],
        seed=written["master_seed"],
    )


@pytest.fixture(scope="module", params=sorted(calibration.SETTINGS))
def committed(request: pytest.FixtureRequest) -> dict[str, Any]:
    return json.loads((COMMITTED / f"{request.param}.json").read_text())


def test_a_committed_calibration_is_of_the_code_s_settings(committed: dict[str, Any]) -> None:
    setting = calibration.SETTINGS[committed["track"]]
    assert committed["master_seed"] == calibration.MASTER_SEED
    assert committed["sizes"] == dataclasses.asdict(calibration.Sizes())
    assert committed["training"] == dataclasses.asdict(setting.schedule)
    assert committed["learning_rate"] == setting.learning_rate
    assert committed["grid"] == list(setting.grid)
    assert committed["cost"]["runs"] == 400 * 2 * 8 + 100 * 2 * 8 + 50 * 2 * (3 * 4 + 8)


def test_the_false_positive_rate_is_the_attainable_level(committed: dict[str, Any]) -> None:
    """By the 99.9 % interval, so that a correct test fails one calibration in a thousand."""
    assert committed["attainable_level"] == 12 / 256
    counted = committed["fixed"]["false_positives"]
    rate = clopper_pearson(counted["count"], counted["trials"], confidence=0.999)
    assert counted["trials"] == 400
    assert rate.low <= 12 / 256 <= rate.high


def test_the_sequential_test_errs_no_more_often_than_alpha(committed: dict[str, Any]) -> None:
    for name in ("simulated", "measured"):
        counted = committed["sequential"][name]["decided"]
        rate = clopper_pearson(counted["count"], counted["trials"], confidence=0.999)
        assert rate.low <= 0.05


@pytest.mark.slow
def test_the_committed_numbers_follow_from_their_scores(committed: dict[str, Any]) -> None:
    again = json.loads(json.dumps(recomputed(committed)))
    assert again.keys() <= committed.keys()
    for name, value in again.items():
        assert_close(committed[name], value, name)


def assert_close(stated: Any, expected: Any, place: str) -> None:
    """Compare two documents, numbers up to rounding."""
    if isinstance(expected, dict):
        assert stated.keys() == expected.keys(), place
        for key, value in expected.items():
            assert_close(stated[key], value, f"{place}.{key}")
    elif isinstance(expected, list):
        assert len(stated) == len(expected), place
        for index, (one, other) in enumerate(zip(stated, expected, strict=True)):
            assert_close(one, other, f"{place}[{index}]")
    elif expected is None:
        assert stated is None, place
    else:
        assert stated == pytest.approx(expected, rel=1e-6), place
