"""The reference reports R1 and R3: their stated numbers, and the table of the science notes."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from jaxbench.judging import (
    Comparison,
    compare,
    mechanism_ok,
    practical_verdict,
    system_verdict,
    worked,
)

REPORTS = json.loads((pathlib.Path(__file__).parent / "reference_scores.json").read_text())

NOTES = {
    "R1": {
        "t": (0.082, 1.027),
        "sign_flip": (0.0998, 1.0825),  # the notes' 0.101 lies inside: p(d - 0.1) is 16/256
        "p_value": 4 / 256,
        "legacy_p_value": 0.0156,
        "spread": (0.565, 1.405, 0.87),
        "mde_80": 0.653,
        "mde_80_rel_pct": 8.6,
        "seeds": 11,
    },
    "R3": {
        "t": (8.9e-4, 3.70e-3),
        "sign_flip": (1.03e-3, 3.85e-3),
        "p_value": 2 / 256,
        "legacy_p_value": 0.0081,
        "spread": (1.68e-3, 2.25e-3, 0.62),
        "mde_80": 1.94e-3,
        "mde_80_rel_pct": 51.0,
        "seeds": 7,
    },
}


def compared(name: str) -> Comparison:
    report = REPORTS[name]
    return compare(report["baseline"]["per_seed"], report["idea"]["per_seed"], direction="lower")


@pytest.mark.parametrize("name", ["R1", "R3"])
def test_every_number_that_a_report_states_comes_out(name):
    report, comparison = REPORTS[name], compared(name)
    stated: dict[str, Any] = report["comparison"]
    ours = comparison.to_dict()
    for field in ("idea_wins", "n_pairs", "verdict", "system_worked"):
        assert ours[field] == stated[field], field
    # The reports give twelve digits or more; R1's scores were retyped in the eleventh.
    for field in ("delta_mean", "per_seed_diffs", "mde", "mde_rel_pct"):
        assert ours[field] == pytest.approx(stated[field], rel=1e-10, abs=1e-10), field
    assert ours["legacy_p_value"] == stated["p_value"]
    for arm in ("baseline", "idea"):
        for field in ("mean", "std", "per_seed", "n"):
            assert ours[arm][field] == pytest.approx(report[arm][field], rel=1e-10), field


@pytest.mark.parametrize("name", ["R1", "R3"])
def test_the_table_of_the_notes_comes_out(name):
    notes, ours = NOTES[name], compared(name).to_dict()
    for method in ("t", "sign_flip"):
        interval = ours["intervals"][method]
        assert (interval["low"], interval["high"]) == pytest.approx(notes[method], rel=6e-3)
    assert ours["p_value"] == notes["p_value"]
    assert ours["attainable_p"] == 2 / 256
    assert ours["legacy_p_value"] == notes["legacy_p_value"]
    assert tuple(ours["spread"].values()) == pytest.approx(notes["spread"], rel=6e-3)
    assert ours["mde_80"] == pytest.approx(notes["mde_80"], rel=3e-3)
    assert ours["mde_80_rel_pct"] == pytest.approx(notes["mde_80_rel_pct"], rel=1e-2)
    assert ours["seeds_for_80_power"] == notes["seeds"]
    assert ours["outcome"] == "worse"
    assert not ours["negligible"]
    assert ours["warnings"] == []


@pytest.mark.parametrize("name", ["R1", "R3"])
def test_the_envelopes_labels_follow(name):
    envelope, comparison = REPORTS[name]["envelope"], compared(name)
    state = "confirmed" if REPORTS[name]["signature_confirmed"] else "refuted"
    practical = practical_verdict(comparison.outcome, negligible=comparison.negligible)
    mechanism = mechanism_ok(state, practical)
    system = system_verdict(practical, mechanism)
    assert practical == envelope["practical_verdict"] == "harms"
    assert mechanism == envelope["mechanism_ok"] == 0
    assert system == envelope["system_verdict"] == "failed"
    assert worked(system) is envelope["worked"] is False
