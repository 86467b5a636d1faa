"""One idea on many tracks: which are run, which are not and why, and the joint table."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from factories import STUDY
from reporting.sample import sample_report

from jaxbench import cli, config, judging, studies, track_runs
from jaxbench.base import Progress
from jaxbench.reporting import track_table
from jaxbench.reporting.progress import OutOfTimeError
from jaxbench.track_runs import OnTrack

TRACKS = """
[tracks.wider]
track = { name = "tabular", inputs = 12 }
[tracks.ring]
refused = "no ring here"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(STUDY.format(rate=0.01) + TRACKS)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_tracks_are_run_refused_or_wait_for_the_user() -> None:
    found = track_runs.find("small.toml", "tabular, wider,ring,csv")
    kinds = [(each.label, each.kind) for each in found]
    assert kinds == [
        ("tabular", "fits"), ("wider", "fits"), ("ring", "refused"), ("csv", "unavailable"),
    ]  # fmt: skip
    assert found[1].config is not None
    assert found[1].config.name == "small_on_wider"
    assert found[1].config.track.options["inputs"] == 12
    assert found[2].reason == "no ring here"
    assert "--set tracks.csv.track.OPTION=VALUE" in found[3].reason


@pytest.mark.usefixtures("here")
def test_an_unknown_track_is_refused_with_the_nearest() -> None:
    with pytest.raises(config.ConfigError, match=r"no track 'wide'.*wider"):
        track_runs.find("small.toml", "wide")


@pytest.mark.usefixtures("here")
def test_every_track_is_asked_for_once() -> None:
    document = config.read("small.toml")
    every = track_runs.labels_of(document, "all")
    assert every[:3] == ["tabular", "wider", "ring"]
    assert len(every) == len(set(every))
    assert {"dynamics", "chaos", "csv", "smnist"} <= set(every)


def fake_run(p_of: dict[str, float]) -> Any:
    """Reports that stand for training, with these p-values."""

    def run_here(asked: list[studies.Study], out: str, **_: Any) -> Any:
        for study in asked:
            if study.name not in p_of:
                yield studies.failed(study, "it broke")
                continue
            report = sample_report()
            bench = report["bench_report"]
            bench["study"] = study.name
            bench["comparison"] |= {"p_value": p_of[study.name], "outcome": "better"}
            path = Path(out) / study.name / "id" / "report.json"
            yield studies.Outcome(study.name, "id", "skipped", path=path, report=report)

    return run_here


@pytest.mark.usefixtures("here")
def test_p_values_are_corrected_over_the_tracks(monkeypatch: pytest.MonkeyPatch) -> None:
    p = {"small": 0.04, "small_on_wider": 0.001}
    monkeypatch.setattr(studies, "run_here", fake_run(p))
    found = track_runs.find("small.toml", "tabular,wider,ring")
    table, both = track_runs.run("small", found, "out", progress=Progress())
    assert [row.state for row in table.rows] == ["judged", "judged", "refused"]
    results = [row.result for row in table.judged]
    assert [each and each.p_family for each in results] == list(judging.holm(list(p.values())))
    assert [row.outcome for row in table.judged] == ["better", "better"]
    monkeypatch.setattr(studies, "run_here", fake_run({"small": 0.06}))
    table, path = track_runs.run("small", found, "out", progress=Progress())
    assert [row.state for row in table.rows] == ["judged", "failed", "refused"]
    assert table.judged[0].outcome == "inconclusive"  # better by its own label, p 0.06
    assert table.rows[1].error == "it broke"
    assert path is not None
    assert path == both
    assert json.loads(path.read_text()) == json.loads(json.dumps(table.to_dict()))
    _, alone = track_runs.run("small", found[:1], "out", progress=Progress())
    assert alone not in (None, path)  # of another family, which replaces nothing
    assert path.is_file()


def test_the_page_of_text_names_every_track(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "run_here", fake_run({"small": 0.01}))
    done = CliRunner().invoke(
        cli.cli, ["run", "small.toml", "--tracks", "tabular,wider,ring", "--out", "out"]
    )
    assert done.exit_code == 1, done.output  # wider failed
    for word in ("tabular", "wider", "it broke", "ring", "no ring here"):
        assert word in done.stdout
    assert list((here / "out" / "tracks" / "small").glob("*.json"))


WRONG_CHANGES = {
    "track.name=chaos": "track.name is what --tracks sets",
    "tracks.wider=3": "tracks.wider: expected a key in the table of a track",
    "tracks=3": "tracks: expected a key in the table of a track",
    "tracks..wider=3": "tracks..wider: expected a key in the table of a track",
    "tracks.widr.training.epochs=3": "'widr' is not among those .* did you mean wider",
    "tracks.tabular.training.epochs=3": "'tabular' is not among those that are asked for",
    "tracks.wider.training.epochs=0": "the study cannot be tried on wider: .*training.epochs",
    "tracks.wider.model.name=mlp_tny": "the study cannot be tried on wider: .*mlp_tiny",
    "tracks.wider.track=chaos": "the study cannot be tried on wider: .*track: expected a table",
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("change", WRONG_CHANGES)
def test_a_wrong_setting_is_bad_input_and_nothing_is_run(change: str) -> None:
    """It would be ignored, or leave the track out as one that does not fit."""
    key, value = change.split("=")
    with pytest.raises(config.ConfigError, match=WRONG_CHANGES[change]):
        track_runs.find("small.toml", "wider,ring", [(key, value)])


@pytest.mark.usefixtures("here")
def test_a_track_may_be_named_by_what_is_set() -> None:
    (found,) = track_runs.find(
        "small.toml", "more", [("tracks.more.track", '{name = "tabular", inputs = 11}')]
    )
    assert found.config is not None
    assert found.config.track.options["inputs"] == 11


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("wanted", ["", ",", [], None, [3]])
def test_tracks_are_named(wanted: Any) -> None:
    with pytest.raises(config.ConfigError, match=r"no track is named|expected names of tracks"):
        track_runs.find("small.toml", wanted)


@pytest.mark.usefixtures("here")
def test_a_track_on_which_runs_diverged_has_a_row_without_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_here(asked: list[studies.Study], out: str, **given: Any) -> Any:
        for outcome in fake_run({"small": 0.01})(asked, out, **given):
            lost = {"delta_mean": None, "intervals": None}
            outcome.report["bench_report"]["comparison"] |= lost
            yield outcome

    monkeypatch.setattr(studies, "run_here", run_here)
    done = CliRunner().invoke(cli.cli, ["run", "small.toml", "--tracks", "tabular"])
    assert done.exit_code == 0, done.output
    assert "- to -" in done.stdout


@pytest.mark.usefixtures("here")
def test_a_judged_study_whose_ledger_failed_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_here(asked: list[studies.Study], out: str, **given: Any) -> Any:
        for outcome in fake_run({"small": 0.01})(asked, out, **given):
            yield dataclasses.replace(outcome, state="failed", error="the ledger is full")

    monkeypatch.setattr(studies, "run_here", run_here)
    done = CliRunner().invoke(cli.cli, ["run", "small.toml", "--tracks", "tabular"])
    assert done.exit_code == 1
    assert "tabular: the ledger is full" in done.stdout


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("end", [OutOfTimeError("late"), KeyboardInterrupt()])
def test_what_ends_it_says_what_is_done(
    end: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_here(asked: list[studies.Study], out: str, **given: Any) -> Any:
        yield next(fake_run({"small": 0.01})(asked, out, **given))
        raise end

    monkeypatch.setattr(studies, "run_here", run_here)
    done = CliRunner().invoke(cli.cli, ["run", "small.toml", "--tracks", "tabular,wider"])
    assert done.exit_code == (3 if isinstance(end, OutOfTimeError) else 130)
    assert "1 of 2 studies are done" in done.stderr
    assert not list(Path("results/tracks").rglob("*.json"))


def test_options_of_one_study_do_not_go_with_many() -> None:
    done = CliRunner().invoke(cli.cli, ["run", "axis_pruning", "--tracks", "all", "--resume"])
    assert done.exit_code == 2
    assert "--resume goes with a single one" in done.output


def test_a_table_without_any_report_is_a_table() -> None:
    table = track_table.make("s", [OnTrack("csv", "unavailable", "bring a file")], {}, {})
    assert table.to_dict()["family_size"] == 0
    assert table.rows[0].reason == "bring a file"


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_an_idea_is_run_on_its_tracks() -> None:
    from jaxbench import run_tracks

    table = run_tracks("small.toml", "tabular,wider", out="out")
    assert [row.state for row in table.rows] == ["judged", "judged"]
    assert all((Path("out") / row.result.path).is_file() for row in table.judged if row.result)
    again = run_tracks("small.toml", ["tabular", "wider"], out="out")
    assert again.to_dict() == table.to_dict()
