"""The command line says what went wrong, ends with the documented code, and keeps stdout clean."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from processes import interruptible
from reporting.sample import sample_report

import jaxbench
from jaxbench import cli, ledger, storage
from jaxbench.config import digest
from jaxbench.reporting.schema import check_report

STUDY = """
name = "mine"
[track]
name = "dynamics"
[model]
name = "rnn_small"
[grid]
learning_rate = [0.01]
[arms.baseline]
intervention = "none"
[arms.idea]
intervention = "none"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(cli.TRACEBACK, raising=False)
    (tmp_path / "mine.toml").write_text(STUDY)
    return tmp_path


Study = Callable[..., dict[str, Any]]


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Callable[[Study], None]:
    """Put a function in the place of the study that trains."""

    def put(run_study: Study) -> None:
        module = types.ModuleType("jaxbench.study")
        module.run_study = run_study  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "jaxbench.study", module)
        monkeypatch.setattr(jaxbench, "study", module, raising=False)

    return put


def judged(config: Any, *, progress: Any, **_: Any) -> dict[str, Any]:
    """Stand for a study: report, with progress and with noise on stdout."""
    progress.stage("compiling train")
    progress.start(2, "2 runs")
    progress.advance(2)
    print("noise from a library")
    os.write(1, b"noise from below\n")
    report = sample_report()
    report["bench_report"]["study"] = config.name
    return report


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.cli, arguments, prog_name="jaxbench")


# --------------------------------------------------------------------------------------------------
# What goes well
# --------------------------------------------------------------------------------------------------


def test_a_study_is_run_written_and_shown(here: Path, study: Callable[[Study], None]) -> None:
    study(judged)
    result = invoke("run", "mine.toml")
    assert result.exit_code == 0, result.output
    path = Path("results", "mine", "0123456789ab", "report.json")
    assert storage.read_report(here / path)["bench_report"]["study"] == "mine"
    assert "The idea is worse" in result.stdout
    page = path.with_name("report.html")
    assert f"report: {path}\npage: {page}\n" in result.stdout
    assert "The idea is worse" in (here / page).read_text()
    assert "compiling train" in result.stderr
    assert "compiling" not in result.stdout
    assert "noise" not in result.stdout


def test_json_is_all_of_stdout(here: Path, study: Callable[[Study], None]) -> None:
    study(judged)
    result = invoke("run", "mine.toml", "--json", "--out", "elsewhere")
    assert result.exit_code == 0
    path = here / "elsewhere" / "mine" / "0123456789ab" / "report.json"
    assert result.stdout == path.read_text()
    assert "report: " in result.stderr


def test_quiet_says_nothing_but_the_report(here: Path, study: Callable[[Study], None]) -> None:
    study(judged)
    result = invoke("run", "mine.toml", "--quiet")
    assert "compiling" not in result.stderr
    assert "The idea is worse" in result.stdout


def test_options_reach_the_config(here: Path, study: Callable[[Study], None]) -> None:
    seen = []

    def look(config: Any, *, progress: Any, **_: Any) -> dict[str, Any]:
        seen.append(config)
        return judged(config, progress=progress)

    study(look)
    (here / "mine.toml").write_text(STUDY + "[quick.training]\nepochs = 2\n")
    result = invoke(
        "run", "mine.toml", "--quick", "--seeds", "5", "--set", "title=a=b", "--set",
        "grid.learning_rate=[0.1, 0.2]",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    [config] = seen
    assert (config.training.epochs, config.protocol.seeds, config.title) == (2, 5, "a=b")
    assert config.grid == {"learning_rate": (0.1, 0.2)}
    assert config.protocol.max_seeds is None
    for options, most in (([], 64), (["--max-seeds", "20"], 20)):
        assert invoke("run", "mine.toml", "--until-decided", *options).exit_code == 0
        assert seen[-1].protocol.max_seeds == most
        assert seen[-1].how_to_run().endswith(f"mine.toml --until-decided --max-seeds {most}")


def test_every_study_is_a_look_at_its_baseline(here: Path, study: Callable[[Study], None]) -> None:
    """A study made again is the same look; with other seeds or another idea it is one more."""
    results: list[tuple[str, float]] = []

    def next_one(config: Any, *, progress: Any, **_: Any) -> dict[str, Any]:
        report = judged(config, progress=progress)
        bench = report["bench_report"]
        identity, p_value = results[-1]
        bench |= {"run_id": identity}
        bench["comparison"]["p_value"] = p_value
        for each in bench["comparisons"]:
            each["p_value"] = p_value
        return report

    study(next_one)
    reports = []
    for identity, p_value in (("a" * 12, 0.03), ("a" * 12, 0.03), ("b" * 12, 0.2)):
        results.append((identity, p_value))
        result = invoke("run", "mine.toml", "--json")
        assert result.exit_code == 0, result.output
        reports.append(json.loads(result.stdout))
        check_report(reports[-1])
    entries = [each["bench_report"]["ledger"]["comparisons"] for each in reports]
    assert [len(each) for each in entries] == [1, 1, 1], "a control is no look"
    seen = [(each["looks"], each["p"], each["p_corrected"]) for (each,) in entries]
    assert seen == [(1, 0.03, 0.03), (1, 0.03, 0.03), (2, 0.2, 0.2)]
    assert len((here / "results" / "ledger.jsonl").read_text().splitlines()) == 2
    assert reports[1]["limitations"] == "One track only."
    assert "was compared with 1 time before" in reports[2]["limitations"]
    assert storage.read_report(here / "results/mine" / ("b" * 12)) == reports[2]
    results.append(("a" * 12, 0.03))
    text = invoke("run", "mine.toml").stdout
    assert "p of idea is 0.06, which is no longer significant at 0.05" in " ".join(text.split())
    assert re.search(r"^ *idea +baseline +2 +0.03 +0.06 *$", text, re.MULTILINE), text
    invoke("run", "mine.toml", "--set", "model.hidden=9", "--json")
    last = ledger.read(here / "results")[-1]
    assert ledger.standing(here / "results", last).looks == 1, "another model, another baseline"


def test_a_ledger_that_cannot_be_written_hides_no_report(
    here: Path, study: Callable[[Study], None]
) -> None:
    study(judged)
    (here / "results" / ledger.LEDGER).mkdir(parents=True)
    result = invoke("run", "mine.toml", "--quiet")
    assert result.exit_code == 1
    assert "error: the ledger results/ledger.jsonl cannot be" in result.stderr
    assert "The idea is worse" in result.stdout
    report = storage.read_report(here / "results" / "mine" / "0123456789ab")
    assert "ledger" not in report["bench_report"]


def identified(config: Any, *, progress: Any, **options: Any) -> dict[str, Any]:
    """Stand for a study whose report has the run id of its config."""
    report = judged(config, progress=progress)
    report["bench_report"]["run_id"] = storage.run_id(digest(config))
    return report


def test_a_finished_study_is_shown_and_not_run_again(
    here: Path, study: Callable[[Study], None]
) -> None:
    """Unless it is forced; what a crash left beside the report goes, and the ledger stays."""
    study(identified)
    assert invoke("run", "mine.toml").exit_code == 0
    (path,) = here.rglob("report.json")
    (path.parent / "checkpoints").mkdir()
    (path.parent / "checkpoints" / "study.json").write_text("{}")
    text = path.read_text()
    study(raising(AssertionError("it trains")))
    for option in ([], ["--resume"], ["--checkpoint-every", "2"]):
        again = invoke("run", "mine.toml", *option)
        assert again.exit_code == 0, again.output
        assert "The idea is worse" in again.stdout
        assert "this study was run before, with jaxbench" in again.stdout
        assert "--force runs it again" in again.stdout
    assert not (path.parent / "checkpoints").exists()
    as_json = invoke("run", "mine.toml", "--json", "--keep-params")
    assert as_json.stdout == text
    assert "and kept no parameters; --force runs it again" in as_json.stderr
    assert invoke("run", "mine.toml", "--seeds", "9").exit_code == 1, "another config"
    assert invoke("run", "mine.toml", "--force").exit_code == 1
    assert len((here / "results" / "ledger.jsonl").read_text().splitlines()) == 1
    study(identified)
    assert invoke("run", "mine.toml", "--force").exit_code == 0
    assert len((here / "results" / "ledger.jsonl").read_text().splitlines()) == 1
    path.write_text("half")
    refused_with = invoke("run", "mine.toml")
    assert refused_with.exit_code == 2
    assert "is no report: " in refused_with.stderr
    assert "--force runs the study again" in refused_with.stderr


def interrupted_study(
    error: BaseException, seen: list[dict[str, Any]]
) -> Callable[..., dict[str, Any]]:
    """Stand for a study that writes one checkpoint and ends."""

    def run_study(config: Any, *, checkpoints: Any, **options: Any) -> dict[str, Any]:
        seen.append({"every": checkpoints.every, "resumed": checkpoints.resumed, **options})
        checkpoints.write("trained", ["a run"], [{"test": np.ones(1)}])
        checkpoints.close()  # as the end of the process does
        raise error

    return run_study


def test_an_interrupted_study_says_how_to_resume_and_is_resumed(
    here: Path, study: Callable[[Study], None]
) -> None:
    seen: list[dict[str, Any]] = []
    study(interrupted_study(KeyboardInterrupt(), seen))
    command = ["run", "mine.toml", "--seeds", "7", "--out", "my results", "--width", "3"]
    result = invoke(*command, "--checkpoint-every", "5")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == (
        "interrupted: continue with "
        "jaxbench run mine.toml --seeds 7 --out 'my results' --width 3 --resume"
    )
    for option, words in (
        ([], "was interrupted, and its checkpoints are in my results/mine/"),
        (["--checkpoint-every", "1"], "--resume continues it, --force begins anew"),
        (["--resume", "--width", "4"], "width is 3 there and 4 here"),
        (["--resume", "--seeds", "8"], "protocol.seeds is 7 there and 8 here"),
        (["--resume", "--force"], "--resume continues, --force begins anew: give one of them"),
    ):
        refusal = invoke(*command, *option)
        assert refusal.exit_code == 2, refusal.output
        assert words in refusal.stderr
    study(interrupted_study(MemoryError("full"), seen))
    result = invoke(*command, "--resume")
    assert result.exit_code == 1
    assert "continue with jaxbench run mine.toml --seeds 7" in result.stderr
    assert [each["every"] for each in seen] == [5, 5], "as it was begun"
    assert [each["resumed"] for each in seen] == [0, 1]
    assert all(each["width"] == 3 for each in seen)
    study(identified)
    assert invoke(*command, "--resume").exit_code == 0
    (path,) = here.rglob("report.json")
    assert sorted(each.name for each in path.parent.iterdir()) == [storage.PAGE, storage.REPORT]


def test_force_begins_an_interrupted_study_anew(here: Path, study: Callable[[Study], None]) -> None:
    seen: list[dict[str, Any]] = []
    study(interrupted_study(KeyboardInterrupt(), seen))
    for options in (["--checkpoint-every", "2"], ["--checkpoint-every", "3", "--force"]):
        assert invoke("run", "mine.toml", *options).exit_code == 130
    assert [(each["every"], each["resumed"]) for each in seen] == [(2, 0), (3, 0)]


def test_resuming_what_was_never_begun_begins_it(
    here: Path, study: Callable[[Study], None]
) -> None:
    """So that one command serves a job that may be restarted."""
    study(identified)
    assert invoke("run", "mine.toml", "--resume").exit_code == 0
    (path,) = here.rglob("report.json")
    assert sorted(each.name for each in path.parent.iterdir()) == [storage.PAGE, storage.REPORT]


def test_list_names_everything_in_one_line_each() -> None:
    result = invoke("list")
    assert result.exit_code == 0
    for name in ("stability_penalty", "dynamics", "rnn_small", "none"):
        assert re.search(rf"^  {name} +\S", result.stdout, re.MULTILINE), name
    assert [line for line in result.stdout.splitlines() if not line.startswith(" ")] == [
        "studies", "tracks", "models", "interventions",
    ]  # fmt: skip


def test_the_version_names_packages_and_devices() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    lines = dict(line.split(" ", 1) for line in result.stdout.splitlines())
    assert lines["jaxbench"] == jaxbench.__version__
    assert set(lines) == {*cli.PACKAGES, "python", "devices"}
    assert lines["devices"] == "8 x cpu (cpu)"


def test_help_documents_exit_codes_and_gives_examples() -> None:
    text = invoke("--help").stdout
    for code in ("0 ", "1 ", "2 ", "130 "):
        assert re.search(rf"^    {code} ", text, re.MULTILINE)
    assert "jaxbench run stability_penalty" in text
    assert "--set 'grid.learning_rate=[0.003, 0.01]'" in invoke("run", "--help").stdout


# --------------------------------------------------------------------------------------------------
# What goes wrong
# --------------------------------------------------------------------------------------------------


def refused(expected: str, *arguments: str) -> None:
    """Expect exit code 2, this text on stderr, and nothing else."""
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert expected in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not Path("results").exists()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "no_such"], "error: no study named 'no_such' (studies: "),
        (["run", "stability_penalti"], "did you mean stability_penalty?"),
        (["run", "none.toml"], "error: no file none.toml; did you mean mine.toml?"),
        (["run", "."], "error: . is a folder; expected a TOML file or the name of a study"),
        (["run", "text.toml"], "error: text.toml is not TOML: "),
        (["run", "mine.toml", "--set", "grid.learing_rate=[0.1]"],
         "grid.learing_rate: unknown hyperparameter; did you mean learning_rate?"),
        (["run", "mine.toml", "--set", "grid.learning_rate=[]"],
         "grid.learning_rate: expected 1 or more entries, got []"),
        (["run", "mine.toml", "--seeds", "1"],
         "protocol.seeds: expected a number of at least 2, got 1"),
        (["run", "mine.toml", "--set", "model.hidden=-3"], "model.hidden: expected a number of"),
        (["run", "mine.toml", "--set", "epochs"], "'epochs' is not key=value"),
        (["run", "mine.toml", "--set", "=3"], "'=3' is not key=value"),
        (["run", "mine.toml", "--seeds", "many"], "'many' is not a valid integer"),
        (["run", "mine.toml", "--out", "mine.toml/x"],
         "error: results cannot be written to mine.toml/x/mine/"),
        (["run", "mine.toml", "--out", "/proc/x"], "(/proc): "),
        (["run", "mine.toml", "--max-seeds", "32"], "--max-seeds goes with --until-decided"),
        (["run", "mine.toml", "--until-decided", "--max-seeds", "0"],
         "protocol.max_seeds: expected a number of at least 2, got 0"),
        (["run", "mine.toml", "--until-decided", "--max-seeds", "101"], "at most 100, got 101"),
        (["run"], "Missing argument 'CONFIG'"),
        (["run", "mine.toml", "--qick"], "No such option"),
        (["rnu"], "No such command 'rnu'"),
    ],
)  # fmt: skip
def test_bad_input_is_told_before_anything_is_trained(
    arguments: list[str], expected: str, study: Callable[[Study], None]
) -> None:
    def never(*_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError("it trains")

    study(never)
    Path("text.toml").write_text("this is no TOML")
    refused(expected, *arguments)


@pytest.mark.usefixtures("here")
def test_near_misses_are_suggested() -> None:
    assert "Did you mean 'run'?" in invoke("rnu").stderr
    assert "--quick" in invoke("run", "mine.toml", "--qick").stderr


def raising(error: BaseException) -> Study:
    def run_study(*_: Any, **__: Any) -> dict[str, Any]:
        raise error

    return run_study


def test_an_interruption_leaves_nothing(here: Path, study: Callable[[Study], None]) -> None:
    study(raising(KeyboardInterrupt()))
    result = invoke("run", "mine.toml")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "interrupted: nothing was written"
    assert sorted(path.name for path in here.iterdir()) == ["mine.toml"]


def test_an_interruption_after_writing_says_where_the_report_is(
    here: Path, study: Callable[[Study], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    study(judged)
    monkeypatch.setattr("jaxbench.commands.run.show_report", raising(KeyboardInterrupt()))
    result = invoke("run", "mine.toml")
    assert result.exit_code == 130
    assert "interrupted: the report is results/mine/0123456789ab/report.json" in result.stderr
    assert (here / "results/mine/0123456789ab/report.json").exists()


def test_an_error_of_ours_while_training_has_no_traceback(
    here: Path, study: Callable[[Study], None]
) -> None:
    study(raising(jaxbench.base.JaxbenchError("the arms differ in data")))
    refused("error: the arms differ in data", "run", "mine.toml")


def test_an_unexpected_error_is_one_line_and_its_traceback_on_request(
    here: Path, study: Callable[[Study], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    study(raising(ZeroDivisionError("division\nby zero")))
    result = invoke("run", "mine.toml", "--quiet")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: ZeroDivisionError: division by zero (JAXBENCH_TRACEBACK=1 shows the traceback)\n"
    )
    monkeypatch.setenv(cli.TRACEBACK, "1")
    result = invoke("run", "mine.toml", "--quiet")
    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.endswith("error: ZeroDivisionError: division by zero\n")


def test_a_full_disk_does_not_hide_what_was_computed(
    here: Path, study: Callable[[Study], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    study(judged)
    error = OSError(28, "No space left on device")
    monkeypatch.setattr(storage.os, "fsync", raising(error))
    result = invoke("run", "mine.toml", "--json", "--quiet")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["practical_verdict"] == "harms"
    assert "No space left on device" in result.stderr
    assert not list(Path("results").rglob("report.json"))


# --------------------------------------------------------------------------------------------------
# Real processes
# --------------------------------------------------------------------------------------------------


def process(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, **options
    )


def test_help_needs_nothing_heavy() -> None:
    done = process(
        "import sys; from jaxbench import cli\n"
        "heavy = {'jax', 'numpy', 'pydantic', 'rich', 'scipy', 'flax'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
        "sys.argv = ['jaxbench', '--help']; cli.main()"
    )
    assert done.returncode == 0, done.stderr
    assert "Exit codes" in done.stdout


STUBBED = """
import sys, types
sys.path.insert(0, {tests!r})
from test_cli import judged
module = types.ModuleType("jaxbench.study")
module.run_study = judged
sys.modules["jaxbench.study"] = module
from jaxbench import cli
sys.argv = ["jaxbench", *{arguments!r}]
cli.main()
"""


def stubbed(*arguments: str) -> str:
    return STUBBED.format(tests=str(Path(__file__).parent), arguments=list(arguments))


def test_noise_from_below_python_stays_off_stdout(here: Path) -> None:
    done = process(stubbed("run", "mine.toml", "--json"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["practical_verdict"] == "harms"
    assert "noise from a library" in done.stderr
    assert "noise from below" in done.stderr


def test_output_that_the_terminal_cannot_show_stops_nothing(here: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = process(stubbed("run", "mine.toml", "--set", "title=é"), env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_ends_at_once_though_a_thread_is_busy(here: Path) -> None:
    (here / "busy.py").write_text(
        "import threading, time\n"
        "def run_study(config, *, progress, **_):\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    progress.stage('compiling for ever')\n"
        "    time.sleep(600)\n"
    )
    code = stubbed("run", "mine.toml").replace("from test_cli import judged", "import busy")
    code = code.replace("= judged", "= busy.run_study")
    code = code.replace(
        "import sys, types", f"import sys, types\nsys.path.insert(0, {str(here)!r})"
    )
    with interruptible([sys.executable, "-c", code]) as busy:
        assert busy.stderr is not None
        assert "compiling for ever" in busy.stderr.readline()
        busy.send_signal(signal.SIGINT)
        out, err = busy.communicate(timeout=30)
    assert busy.returncode == 130
    assert (out, err) == ("", "interrupted: nothing was written\n")
    assert not (here / "results").exists()


@pytest.mark.parametrize("arguments", [["list"], ["run", "mine.toml"]])
def test_a_broken_pipe_is_silent(here: Path, arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-c", stubbed(*arguments, *["--quiet"] * (arguments[0] == "run"))],
            stdout=write, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    finally:
        os.close(write)
    assert "noise" in done.stderr if arguments[0] == "run" else done.stderr == ""
    assert "Broken" not in done.stderr
    assert "Traceback" not in done.stderr
