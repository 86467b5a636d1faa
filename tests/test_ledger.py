"""The ledger of looks: complete, each once, whatever happens to the file."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from jaxbench import config, ledger
from jaxbench.base import JaxbenchError
from jaxbench.judging import holm


def look(run: str = "a", **changes: Any) -> ledger.Look:
    values: dict[str, Any] = {
        "study": "mine", "run_id": run, "date": ledger.now(), "track": "dynamics",
        "baseline": "0" * 64, "idea": "idea", "n": 8, "p": 0.03,
    }  # fmt: skip
    return ledger.Look(**values | changes)


def test_looks_are_read_back_in_order(tmp_path: Path) -> None:
    looks = [look("a"), look("b", p=0), look("a", idea="other", p=1.0)]
    for each in looks:
        ledger.record(tmp_path / "new" / "folder", each)
    assert ledger.read(tmp_path / "new" / "folder") == looks


def test_without_a_ledger_there_were_no_looks(tmp_path: Path) -> None:
    assert ledger.read(tmp_path) == []
    assert ledger.standing(tmp_path, look()) == (0, None)


def test_a_run_made_again_is_one_look(tmp_path: Path) -> None:
    ledger.record(tmp_path, look("a"))
    ledger.record(tmp_path, look("a", date="2020-01-01T00:00:00+00:00"))
    assert len((tmp_path / ledger.LEDGER).read_text().splitlines()) == 1
    ledger.record(tmp_path, look("a", p=0.5))
    [only] = ledger.read(tmp_path)
    assert only.p == 0.5, "the p-value as last computed"


def test_every_look_at_a_baseline_costs_the_others(tmp_path: Path) -> None:
    p_values = [0.01, 0.04, 0.03, 0.5]
    for index, p_value in enumerate(p_values):
        ledger.record(tmp_path, look(str(index), p=p_value))
    ledger.record(tmp_path, look("x", track="tabular", p=0.001))
    ledger.record(tmp_path, look("y", baseline="1" * 64, p=0.001))
    for index, corrected in enumerate(holm(p_values)):
        assert ledger.standing(tmp_path, look(str(index))) == (4, corrected)
    assert ledger.standing(tmp_path, look("unheard")) == (4, None)
    assert ledger.standing(tmp_path, look("x", track="tabular")) == (1, 0.001)


def entered(
    folder: Path, study: config.Config, p_values: list[float]
) -> tuple[list[dict[str, Any]], str]:
    """Enter a study whose comparisons came out so; give the ledger's entries, and the limits."""
    compared = [
        {
            "idea_arm": each.idea,
            "baseline_arm": each.baseline,
            "role": each.role,
            "endpoint": each.endpoint,
            "n_pairs": 16,
            "p_value": p_value,
        }
        for each, p_value in zip(study.comparisons, p_values, strict=True)
    ]
    bench = {"study": study.name, "run_id": config.digest(study)[:12], "track": study.track.name}
    bench |= {"protocol": {"alpha": 0.05}, "comparisons": compared}
    report = ledger.enter(folder, study, {"limitations": "One.", "bench_report": bench})
    return report["bench_report"]["ledger"]["comparisons"], report["limitations"]


def test_a_score_and_an_endpoint_of_the_same_arms_are_two_looks(tmp_path: Path) -> None:
    """Three ideas against one baseline, each by its score and by an endpoint: six looks."""
    study = config.load("stability_robustness")
    p_values = [0.9, 0.0003, 0.04, 0.5, 0.002, 0.7]
    entries, limitations = entered(tmp_path, study, p_values)
    assert [each["p"] for each in entries] == p_values
    assert [each["p_corrected"] for each in entries] == pytest.approx(holm(p_values))
    assert {(each["looks"], each["looks_of_this_study"]) for each in entries} == {(6, 6)}
    assert [each["endpoint"] for each in entries] == [None, "score_under_noise"] * 3
    assert limitations == "One."
    before = (tmp_path / ledger.LEDGER).read_text()
    assert entered(tmp_path, study, p_values) == (entries, limitations)
    assert (tmp_path / ledger.LEDGER).read_text() == before, "a study run again writes nothing"
    other = config.load("stability_robustness", seeds=12)
    entries, limitations = entered(tmp_path, other, p_values)
    assert {(each["looks"], each["looks_of_this_study"]) for each in entries} == {(12, 6)}
    assert "was compared with 6 times before" in limitations
    assert "p of penalty by score_under_noise is 0.0036" in limitations


def test_baselines_that_differ_in_their_grids_only_are_looked_at_once_each(tmp_path: Path) -> None:
    (tmp_path / "grids.toml").write_text(
        """
        track.name = "dynamics"
        model.name = "rnn_small"
        grid.learning_rate = [0.01]
        arms.idea.intervention = "none"
        arms.baseline.intervention = "none"
        arms.wide = { intervention = "none", grid = { learning_rate = [0.01, 0.1] } }
        [[comparisons]]
        idea = "idea"
        baseline = "baseline"
        role = "primary"
        [[comparisons]]
        idea = "idea"
        baseline = "wide"
        role = "secondary"
        """
    )
    study = config.load(tmp_path / "grids.toml")
    entries, _ = entered(tmp_path, study, [0.9, 0.001])
    assert len({each["baseline_digest"] for each in entries}) == 1
    assert [each["p_corrected"] for each in entries] == [0.9, 0.002]
    assert {(each["looks"], each["looks_of_this_study"]) for each in entries} == {(2, 2)}
    entered(tmp_path, study, [0.9, 0.001])
    assert len((tmp_path / ledger.LEDGER).read_text().splitlines()) == 2


def test_a_line_without_an_endpoint_is_a_look_by_the_score(tmp_path: Path) -> None:
    entry = dataclasses.asdict(look())
    del entry["endpoint"], entry["baseline_arm"]
    (tmp_path / ledger.LEDGER).write_text(json.dumps(entry) + "\n")
    assert ledger.read(tmp_path) == [look(date=entry["date"])]
    ledger.record(tmp_path, look())
    assert len((tmp_path / ledger.LEDGER).read_text().splitlines()) == 1


@pytest.mark.parametrize(
    "torn", [b'{"study": "mi', b"\xff\x00", b"[]", b"null", b"{}", b"[" * 9999]
)
def test_a_torn_line_loses_no_other(tmp_path: Path, torn: bytes) -> None:
    ledger.record(tmp_path, look("a"))
    with (tmp_path / ledger.LEDGER).open("ab") as file:
        file.write(torn)
    assert [each.run_id for each in ledger.read(tmp_path)] == ["a"]
    ledger.record(tmp_path, look("b"))
    ledger.record(tmp_path, look("c"))
    assert [each.run_id for each in ledger.read(tmp_path)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "change", [{"p": 2.0}, {"p": float("nan")}, {"n": "8"}, {"n": -1}, {"track": 3}, {"p": True}]
)
def test_a_line_that_is_no_look_is_passed_over(tmp_path: Path, change: dict[str, Any]) -> None:
    entry = dataclasses.asdict(look()) | change
    (tmp_path / ledger.LEDGER).write_text(json.dumps(entry) + "\n")
    assert ledger.read(tmp_path) == []
    with pytest.raises(JaxbenchError, match="a look"):
        ledger.Look(**entry)


def write_many(folder: str, who: int) -> None:
    for index in range(40):
        ledger.record(folder, look(f"{who}-{index}", study="x" * 2000))


def test_processes_that_write_at_once_keep_their_lines_whole(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_many, args=(str(tmp_path), who)) for who in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    lines = (tmp_path / ledger.LEDGER).read_bytes().splitlines()
    assert all(json.loads(line) for line in lines)
    assert len(ledger.read(tmp_path)) == 120


def test_a_digest_depends_on_values_and_not_on_their_order() -> None:
    one = ledger.baseline_digest({"track": {"a": 1, "b": 2.5}, "model": None})
    assert one == ledger.baseline_digest({"model": None, "track": {"b": 2.5, "a": 1}})
    assert one != ledger.baseline_digest({"model": None, "track": {"b": 2.5, "a": 2}})
    with pytest.raises(JaxbenchError, match="strict JSON"):
        ledger.baseline_digest({"x": float("nan")})


def test_a_ledger_that_cannot_be_read_or_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ledger.LEDGER).mkdir()
    with pytest.raises(JaxbenchError, match="cannot be read"):
        ledger.read(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(JaxbenchError, match="cannot be"):
        ledger.record(tmp_path / "file", look())
    assert os.listdir(tmp_path / ledger.LEDGER) == []
