"""Which tracks fit an idea: by features, by shapes, and with the reason."""

import dataclasses
import json
import re

import pytest
from click.testing import CliRunner

from jaxbench import cli, config
from jaxbench.base import JaxbenchError
from jaxbench.fit import check_fit
from jaxbench.interventions import stability_penalty
from jaxbench.models import conv_small, linear, residual_mlp, rnn_small
from jaxbench.track_fit import fit_of, justification
from jaxbench.tracks import dynamics, tabular


def test_a_track_fits_with_who_needs_what_of_whom() -> None:
    found = fit_of(config.load("stability_penalty"), "dynamics")
    assert found.fits
    assert found.reason == (
        "rnn_small reads sequences [samples, steps, features], and dynamics offers regression, "
        "rollout, sequence; stability_penalty needs recurrent, which rnn_small has."
    )


@pytest.mark.parametrize(
    ("study", "track", "reason"),
    [
        ("stability_penalty", "tabular", "rnn_small does not fit the track tabular"),
        ("sensitivity_pruning", "csv", r"needs track\.path"),
        ("sensitivity_pruning", "smnist", r"no folder is named"),
    ],
)
def test_a_track_that_does_not_fit_is_refused_with_the_reason(
    study: str, track: str, reason: str
) -> None:
    found = fit_of(config.load(study), track)
    assert not found.fits
    assert re.search(reason, found.reason)


def test_an_idea_that_needs_regression_is_refused_on_classes() -> None:
    pytest.importorskip("sklearn")
    found = fit_of(config.load("sensitivity_pruning"), "seqdigits")
    assert not found.fits
    assert "needs a model or track that is regression" in found.reason
    assert fit_of(config.load("stability_penalty"), "seqdigits").fits


def test_what_an_idea_needs_of_the_track_is_said_of_the_track() -> None:
    model = rnn_small.build(outputs=2)
    idea = dataclasses.replace(
        stability_penalty.build(), requires=frozenset({"recurrent", "rollout"})
    )
    said = justification(dynamics.build(), {"idea": (model, idea)})
    assert said.endswith("stability_penalty needs rollout, which dynamics has.")


def test_outputs_that_do_not_go_with_the_targets_are_refused() -> None:
    """Else outputs [2, 1] and targets [2, 1, 1] would be spread over each other, and be scored."""
    with pytest.raises(JaxbenchError, match=r"outputs float32\[2, 2\] for targets .*\[2, 1, 2\]"):
        check_fit(residual_mlp.build(outputs=2), dynamics.build(sequence_length=1))
    check_fit(rnn_small.build(outputs=2), dynamics.build(sequence_length=1))
    with pytest.raises(JaxbenchError, match="does not fit the track tabular"):
        check_fit(conv_small.build(outputs=1), tabular.build())
    check_fit(linear.build(outputs=1), tabular.build())


@pytest.mark.slow
def test_the_command_lists_every_track() -> None:
    done = CliRunner().invoke(cli.cli, ["tracks", "stability_penalty", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {"dynamics", "tabular", "csv"} <= {each["track"] for each in found["tracks"]}
    assert {each["track"] for each in found["tracks"] if each["fits"]} >= {"dynamics", "chaos"}


def test_another_track_takes_none_of_the_first_ones_options() -> None:
    """`preset` is an option of `dynamics`, in the `[quick]` table of the study."""
    for quick in (False, True):
        moved = config.load("stability_penalty", [("track.name", "chaos")], quick=quick)
        assert moved.track.name == "chaos"
        given = [("track.name", "chaos"), ("track.test_size", "20")]
        assert config.load("stability_penalty", given, quick=quick).track.options["test_size"] == 20
    same = config.load("stability_penalty", [("track.name", "dynamics")], quick=True)
    assert same.track.options["preset"] == "quick"
