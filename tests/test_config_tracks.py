"""A study on another track: what its file's table says, and what goes."""

import copy
from typing import Any

import pytest

from jaxbench import config, config_tracks, plan
from jaxbench.config_tracks import TrackRefusedError, labels, on_track

STUDY: dict[str, Any] = {
    "name": "idea",
    "title": "On the pendulum?",
    "track": {"name": "dynamics", "test_size": 100},
    "model": {"name": "rnn_small", "hidden": 32},
    "arms": {name: {"intervention": "none"} for name in ("baseline", "idea", "other")},
    "comparisons": [{"idea": "idea", "baseline": "baseline", "role": "primary"}],
    "quick": {
        "track": {"preset": "quick"},
        "model": {"hidden": 4},
        "training": {"epochs": 3},
        "arms": {"other": {"options": {}}},
    },
    "tracks": {
        "dynamics": {"track": {"sequence_length": 40}, "model": {"hidden": 16}},
        "short": {"track": {"name": "dynamics", "sequence_length": 5}},
        "tabular": {
            "model": {"name": "mlp_tiny", "hidden": [8]},
            "comparisons": [{"idea": "idea", "baseline": "baseline", "role": "primary"}],
            "quick": {"track": {"train_size": 20}},
        },
        "ring": {"refused": "because"},
    },
}
SHIPPED = [
    (study, label)
    for study in config.available()
    if "tracks" in (document := config.read(study))
    for label, table in document["tracks"].items()
    if "refused" not in table
]


def test_a_table_changes_the_own_track_and_keeps_its_options() -> None:
    moved = on_track(STUDY, "dynamics")
    assert moved["name"] == "idea_on_dynamics"
    assert moved["track"] == {"name": "dynamics", "test_size": 100, "sequence_length": 40}
    assert moved["model"] == {"name": "rnn_small", "hidden": 16}
    assert moved["quick"] == STUDY["quick"]


def test_another_track_and_model_bring_nothing_of_the_old_ones() -> None:
    moved = on_track(STUDY, "tabular")
    assert moved["track"] == {"name": "tabular"}
    assert moved["model"] == {"name": "mlp_tiny", "hidden": [8]}
    assert set(moved["arms"]) == {"baseline", "idea"}
    assert moved["quick"] == {"training": {"epochs": 3}, "arms": {}, "track": {"train_size": 20}}
    assert moved["title"] == "idea on tabular"


def test_a_label_may_name_its_track() -> None:
    assert on_track(STUDY, "short")["track"] == {
        "name": "dynamics", "test_size": 100, "sequence_length": 5,
    }  # fmt: skip
    assert labels(STUDY) == ["dynamics", "short", "tabular", "ring"]


def test_the_study_itself_where_its_track_has_no_table() -> None:
    plain = {key: value for key, value in STUDY.items() if key != "tracks"}
    assert on_track(plain, "dynamics") == plain
    assert on_track(plain, "chaos")["track"] == {"name": "chaos"}


def test_a_refused_track_and_an_untouched_document() -> None:
    before = copy.deepcopy(STUDY)
    with pytest.raises(TrackRefusedError, match="because"):
        on_track(STUDY, "ring")
    on_track(STUDY, "tabular")["model"]["hidden"].append(3)
    assert before == STUDY


def test_tables_of_tracks_change_nothing_of_the_study_itself() -> None:
    with_tables = config.load("stability_penalty")
    document = {k: v for k, v in config.read("stability_penalty").items() if k != "tracks"}
    assert config.digest(with_tables) == config.digest(config.from_run(without_quick(document)))


def without_quick(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "quick"}


def test_what_is_set_in_a_table_needs_a_track() -> None:
    change = [("tracks.chaos.training.epochs", "2")]
    with pytest.raises(config.ConfigError, match="used by --tracks"):
        config.load("stability_penalty", change)
    moved = config.load("stability_penalty", change, track="chaos")
    assert moved.training.epochs == 2
    assert moved.name == "stability_penalty_on_chaos"
    assert moved.how_to_run() == (
        "jaxbench run stability_penalty --tracks chaos --set tracks.chaos.training.epochs=2"
    )


def test_tables_that_are_none_are_refused() -> None:
    from jaxbench import load_config

    with pytest.raises(config.ConfigError, match="expected one table a track"):
        load_config({**config.read("stability_penalty"), "tracks": {"chaos": 3}})


@pytest.mark.slow
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize(("study", "label"), SHIPPED)
def test_the_tables_that_come_with_jaxbench_are_right(study: str, label: str, quick: bool) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("mnist1d")
    if label in ("csv", "smnist"):
        with pytest.raises(config.ConfigError, match=r"needs track\.path|no folder is named"):
            config.load(study, quick=quick, track=label)
    else:
        found = config.load(study, quick=quick, track=label)
        assert quick or (found.protocol.seeds, found.protocol.extend_grid) == (16, True)
    assert config_tracks.own_track(config.read(study))


def test_an_arm_may_train_for_other_epochs() -> None:
    own = [("arms.idea.epochs", "5")]
    study = config.load("stability_penalty", own)
    assert (study.training.epochs, study.arms["idea"].epochs) == (12, 5)
    plain = config.load("stability_penalty")
    assert config.digest(study) != config.digest(plain)
    assert study.identity_of("idea") != plain.identity_of("idea")
    assert study.identity_of("baseline") == plain.identity_of("baseline")
    arms = plan.make_plan(study).arms
    assert {name: arm.recipe.schedule.epochs for name, arm in arms.items()} == {
        "baseline": 12, "idea": 5,
    }  # fmt: skip
