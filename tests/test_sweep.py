"""Many studies: found, split, run once each; one that fails stops no other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from factories import STUDY
from hypothesis import given
from hypothesis import strategies as st
from reporting.sample import report_of

import jaxbench
from jaxbench import cli, config, ledger, storage, studies
from jaxbench.base import JaxbenchError, Progress
from jaxbench.studies import Study

NAMES = ("one", "two", "three")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three studies that differ in their learning rate."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(cli.TRACEBACK, raising=False)
    for place, name in enumerate(NAMES, 1):
        (tmp_path / f"{name}.toml").write_text(STUDY.format(rate=place / 100))
    return tmp_path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the studies that were run, by a stand-in that trains nothing."""
    names: list[str] = []

    def run_study(config: Any, *, progress: Any, compiled: Any) -> dict[str, Any]:
        names.append(config.name)
        print("noise from a library")
        if config.training.epochs == 666:
            raise ValueError("no\nmemory left")
        return report_of(config)

    module = types.ModuleType("jaxbench.study")
    module.run_study = run_study  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jaxbench.study", module)
    monkeypatch.setattr(jaxbench, "study", module, raising=False)
    return names


def sweep(*arguments: str) -> Result:
    return CliRunner().invoke(cli.cli, ["sweep", *arguments], prog_name="jaxbench")


def states(result: Result) -> list[tuple[str, str]]:
    return [(each["study"], each["state"]) for each in json.loads(result.stdout)["studies"]]


def test_a_sweep_runs_every_study_once_and_again_nothing(here: Path, ran: list[str]) -> None:
    """Twice the same command: the same files, byte for byte, and nothing is run."""
    result = sweep("*.toml", "one.toml", "--json")
    assert result.exit_code == 0, result.output
    assert states(result) == [("one", "done"), ("three", "done"), ("two", "done")]
    assert ran == ["one", "three", "two"]
    before = {path: path.read_bytes() for path in (here / "results").rglob("*") if path.is_file()}
    assert len(before) == 7, "three reports with their pages, and the ledger"
    again = sweep("*.toml", "--json")
    assert again.exit_code == 0
    assert {state for _, state in states(again)} == {"skipped"}
    assert {path: path.read_bytes() for path in before} == before
    assert len(ran) == 3
    for first, second in zip(
        *(json.loads(r.stdout)["studies"] for r in (result, again)), strict=True
    ):
        same = ("run_id", "practical_verdict", "verdict", "p_value", "report")
        assert [first[name] for name in same] == [second[name] for name in same]
    assert sweep("*.toml", "--force", "--json").exit_code == 0
    assert len(ran) == 6
    assert len(ledger.read(here / "results")) == 3


def test_options_make_other_studies(here: Path, ran: list[str]) -> None:
    sweep("one.toml", "--quiet")
    other = sweep("one.toml", "--set", "training.epochs=2", "--seeds", "7", "--json", "--quiet")
    assert states(other) == [("one", "done")]
    assert len(list((here / "results" / "one").iterdir())) == 2
    assert ran == ["one", "one"]


def test_a_study_that_fails_or_is_refused_stops_no_other(here: Path, ran: list[str]) -> None:
    text = (here / "one.toml").read_text()
    (here / "broken.toml").write_text(text.replace("epochs = 1", "epochs = 666"))
    (here / "crooked.toml").write_text(text.replace("epochs = 1", "epoch = 1"))
    result = sweep("broken.toml", "crooked.toml", "one.toml", "--quiet")
    assert result.exit_code == 1
    assert "broken: ValueError: no memory left" in result.stdout
    assert "epochs" in result.stdout, "the refusal names the nearest key"
    assert "3 studies: 1 run, 1 failed, 1 refused for their config" in result.stdout
    assert "noise" not in result.stdout
    assert ran == ["broken", "one"]
    assert sweep("crooked.toml", "two.toml", "--quiet").exit_code == 2
    retried = sweep("broken.toml", "one.toml", "--json", "--quiet")
    assert states(retried) == [("broken", "failed"), ("one", "skipped")]
    document = json.loads(retried.stdout)["studies"][0]
    assert (document["report"], document["error"]) == (None, "ValueError: no memory left")


def test_a_report_that_cannot_be_read_is_not_written_over_unasked(
    here: Path, ran: list[str]
) -> None:
    sweep("one.toml", "--quiet")
    [path] = (here / "results").rglob("report.json")
    verdict = storage.read_report(path)["verdict"]
    path.write_text(path.read_text()[:100])
    result = sweep("one.toml", "two.toml", "--json", "--quiet")
    assert result.exit_code == 1
    assert states(result) == [("one", "failed"), ("two", "done")]
    assert "--force runs the study again" in json.loads(result.stdout)["studies"][0]["error"]
    assert len(path.read_text()) == 100
    assert sweep("one.toml", "--force", "--quiet").exit_code == 0
    assert storage.read_report(path)["verdict"] == verdict


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["noone"], "no study named 'noone'"),
        (["none*.toml"], "none*.toml matches no .toml file and no study's name"),
        (["one.tml", "two.toml"], "no study named 'one.tml'"),
        (["one.toml", "--shard", "0/2"], "'0/2' is not I/N with 1 <= I <= N"),
        (["one.toml", "--shard", "3/2"], "'3/2' is not I/N"),
        (["one.toml", "--shard", "1"], "'1' is not I/N"),
        (["one.toml", "--cpus", "1"], "--cpus and --gpus go with --ray"),
        (["one.toml", "--processes", "2"], "--coordinator, --process-id missing"),
        (["one.toml", "--coordinator", "here"], "expected HOST:PORT"),
        ([], "Missing argument 'CONFIG...'"),
    ],
)
def test_bad_usage_runs_nothing(
    here: Path, ran: list[str], arguments: list[str], message: str
) -> None:
    result = sweep(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not ran
    assert not (here / "results").exists()


def test_globs_stand_for_studies_that_come_with_jaxbench(here: Path) -> None:
    found = studies.find(["axis_*", "one.toml", "axis_pruning"])
    names = [study.name for study in found]
    assert names == [
        *sorted(name for name in config.available() if name.startswith("axis_")),
        "one",
    ]


@given(count=st.integers(1, 7), size=st.integers(0, 20))
def test_shards_split_the_studies(count: int, size: int) -> None:
    """Every study is in one shard, and shards differ by one study at most."""
    asked = [Study(str(number)) for number in range(size)]
    shards = [studies.shard(asked, index, count) for index in range(1, count + 1)]
    assert sorted((each.name for part in shards for each in part), key=int) == [
        each.name for each in asked
    ]
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_shards_write_what_one_sweep_writes(here: Path, ran: list[str]) -> None:
    """In any order, and one of them twice."""
    for part in ("2/2", "1/2", "2/2"):
        assert sweep("*.toml", "--shard", part, "--out", "shards", "--quiet").exit_code == 0
    assert sorted(ran) == sorted(NAMES)
    assert sweep("*.toml", "--out", "whole", "--quiet").exit_code == 0
    paths = [
        sorted(path.relative_to(here / out) for path in (here / out).rglob("report.json"))
        for out in ("shards", "whole")
    ]
    assert paths[0] == paths[1]
    assert len(ledger.read(here / "shards")) == len(ledger.read(here / "whole")) == 3


def test_a_ledger_that_cannot_be_written_is_told_of(here: Path, ran: list[str]) -> None:
    (here / "results" / ledger.LEDGER).mkdir(parents=True)
    result = sweep("one.toml", "--quiet")
    assert result.exit_code == 1
    assert "the ledger results/ledger.jsonl cannot be" in result.stdout
    assert list((here / "results").rglob("report.json"))


def test_programs_are_compiled_once_for_all_studies(here: Path) -> None:
    """The second study compiles nothing, and has the scores that it has alone."""
    asked = studies.find(["one.toml", "two.toml"])
    first, second = studies.run_here(asked, "together", force=False, progress=Progress())
    [alone] = studies.run_here(asked[1:], "alone", force=False, progress=Progress())

    def programs(outcome: studies.Outcome) -> list[dict[str, Any]]:
        assert outcome.report is not None, outcome.error
        return [
            each
            for group in outcome.report["bench_report"]["programs"]
            for each in group["programs"]
        ]

    assert all(each["compile_seconds"] > 0 for each in programs(first))
    assert all(each["compile_seconds"] == 0 and each["calls"] > 0 for each in programs(second))
    calls = [[(each["name"], each["calls"]) for each in programs(o)] for o in (second, alone)]
    assert calls[0] == calls[1], "each study counts its own calls"
    arms = [
        {
            name: (arm["sweep"], arm["full"], arm["curves"])
            for name, arm in outcome.report["bench_report"]["arms"].items()
        }
        for outcome in (second, alone)
        if outcome.report is not None
    ]
    assert arms[0] == arms[1]


def test_errors_are_one_line_each() -> None:
    assert studies.in_words(JaxbenchError("a\n  b")) == "a b"
    assert studies.in_words(KeyError("a")) == "KeyError: 'a'"


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on_where_it_was(here: Path) -> None:
    """Ctrl-C while the second study trains: the first report stays, and is not made again."""
    text = (here / "two.toml").read_text()
    (here / "two.toml").write_text(text.replace("epochs = 1", "epochs = 1000000"))
    command = [sys.executable, "-m", "jaxbench.cli", "sweep", "one.toml", "two.toml"]
    from processes import interruptible

    with interruptible(command, env=dict(os.environ)) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "2 of 2" in line:
                break
        for line in process.stderr:
            if "training" in line:
                break
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted: 1 of 2 studies are left to run" in stderr
    assert "1 study: 1 run" in stdout
    [report] = (here / "results").rglob("report.json")
    before = report.read_bytes()
    done = subprocess.run(
        [*command[:4], "one.toml", "three.toml", "--json", "--quiet"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert [each["state"] for each in json.loads(done.stdout)["studies"]] == ["skipped", "done"]
    assert report.read_bytes() == before
