"""The commands that judge without training: output, exit codes, and what they import."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jaxbench import cli
from jaxbench.judging import paired_power, seeds_needed

REFERENCES = Path(__file__).parent / "reporting" / "reference_reports"
R0, R1, R3 = (str(path) for path in sorted(REFERENCES.glob("*.json")))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(cli.TRACEBACK, raising=False)
    Path("base.csv").write_text("seed,score\n1,5\n2,6\n3,7\n4,5.5\n5,6.5\n6,5\n7,6\n8,7\n")
    Path("idea.csv").write_text("seed,score\n1,4\n2,5\n3,5\n4,5\n5,5.5\n6,4\n7,5\n8,6.5\n")
    return tmp_path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.cli, arguments, prog_name="jaxbench")


def refused(expected: str, *arguments: str) -> None:
    """Expect exit code 2, this text on stderr, and nothing else."""
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert expected in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


# --------------------------------------------------------------------------------------------------
# compare
# --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_compare_prints_the_verdict_first_then_tables() -> None:
    result = invoke("compare", "base.csv", "idea.csv", "--direction", "lower")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Over 8 paired seeds the idea is better than the baseline")
    assert "tuned" not in result.stdout
    for text in ("8 of 8 pairs", "0.007812", "idea - baseline", "baseline: base.csv::score"):
        assert text in result.stdout


@pytest.mark.usefixtures("here")
def test_compare_as_json_is_all_of_stdout() -> None:
    result = invoke("compare", "base.csv", "idea.csv", "--direction", "higher", "--json")
    report = json.loads(result.stdout)
    assert report["comparison"]["outcome"] == "worse"
    assert report["comparison"]["p_value"] == 2 / 256
    assert result.stderr == ""


@pytest.mark.usefixtures("here")
def test_the_level_and_margin_are_options() -> None:
    options = ("--direction", "lower", "--json", "--alpha", "0.001", "--margin", "0.5")
    comparison = json.loads(invoke("compare", "base.csv", "idea.csv", *options).stdout)[
        "comparison"
    ]
    assert comparison["alpha"] == 0.001
    assert comparison["margin"] == pytest.approx(3.0)
    assert comparison["outcome"] != "better"


@pytest.mark.usefixtures("here")
def test_what_the_margin_and_few_pairs_decide_names_them() -> None:
    baseline, idea = ([69.0 + i / 8 + gain for i in range(8)] for gain in (0.0, 0.5))
    Path("b.json").write_text(json.dumps(baseline))
    Path("i.json").write_text(json.dumps(idea))
    small = invoke("compare", "b.json", "i.json", "--direction", "higher").stdout
    named = f"margin {sum(baseline) / 160:.4g}, 5 % of the baseline's mean; --margin sets another)"
    assert f"by a difference too small to matter ({named}" in " ".join(small.split())
    Path("b.json").write_text(json.dumps(baseline[:4]))
    Path("i.json").write_text(json.dumps(idea[:4]))
    few = invoke("compare", "b.json", "i.json", "--direction", "higher").stdout
    assert "are equivalent within the margin (3.4" in " ".join(few.split())
    assert "which rests on only 4 pairs:" in " ".join(few.split())


@pytest.mark.usefixtures("here")
def test_rows_that_are_paired_by_their_order_are_told_of() -> None:
    scores = [line.split(",")[1] for line in Path("idea.csv").read_text().splitlines()]
    Path("bare.csv").write_text("\n".join(scores))
    Path("list.json").write_text(json.dumps(list(map(float, scores[1:]))))
    Path("from0.csv").write_text("seed,score\n" + "".join(f"{i},{i % 3}\n" for i in range(8)))
    one = "bare.csv::score has no seeds: its rows are taken in order as those of from0.csv::score"
    two = "bare.csv::score and list.json have no seeds: their rows are taken as pairs"
    for pair, expected in ((("from0.csv", "bare.csv"), one), (("bare.csv", "list.json"), two)):
        result = invoke("compare", *pair, "--direction", "lower", "--json")
        assert result.stderr.startswith(f"note: {expected}")
        assert result.stderr.count("\n") == 1
        assert json.loads(result.stdout)["notes"] == [result.stderr[6:].strip()]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["base.csv", "idea.csv"], "error: the files do not say in which direction"),
        (["base.csv", "idea.csv", "--direction", "up"], "'up' is not one of 'lower', 'higher'"),
        (["base.csv", "nothing.csv", "--direction", "lower"], "nothing.csv cannot be read"),
        (["base.csv", "--direction", "lower"], "both arms are base.csv::score"),
        (["base.csv", "idea.csv", "--direction", "lower", "--alpha", "5"], "alpha must lie"),
        (["base.csv", "idea.csv", "--direction", "lower", "--plot", "x.exe"], "--plot"),
        ([], "Missing argument 'A'"),
    ],
)
def test_compare_says_what_is_wrong(arguments: list[str], expected: str) -> None:
    refused(expected, "compare", *arguments)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["x.png", "x.svg"])
def test_a_plot_is_drawn(name: str) -> None:
    arguments = ("compare", "base.csv", "idea.csv", "--direction", "lower", "--plot", name)
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    assert Path(name).stat().st_size > 5000
    refused("the plot cannot be written", *arguments[:-1], f"nowhere/{name}")


# --------------------------------------------------------------------------------------------------
# audit
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "code"), [(R0, 1), (R1, 0), (R3, 0)])
def test_the_exit_code_of_an_audit_says_whether_something_contradicts(path: str, code: int) -> None:
    for options in ([], ["--json"]):
        result = invoke("audit", path, *options)
        assert result.exit_code == code, result.output
        assert result.stderr == ""
    report = json.loads(result.stdout)
    assert report["clean"] is (code == 0)
    assert len(report["contradicts"]) == code
    kinds = [weakness["kind"] for weakness in report["weak"]]
    assert kinds.count("optimum at the edge of the grid") == 2


def test_an_audit_lists_contradictions_first() -> None:
    text = invoke("audit", R0).stdout
    places = [text.index(title) for title in ("Contradicts (1)", "Weak (", "Agrees (", "Cannot be")]
    assert places == sorted(places)
    assert "0.4416" in text
    assert "0.4441" in text


@pytest.mark.parametrize("command", ["audit", "compare", "power"])
def test_the_folder_of_a_run_stands_for_its_report(here: Path, command: str) -> None:
    folder = here / "results" / "mine" / "0123456789ab"
    folder.mkdir(parents=True)
    content = Path(R3).read_text()
    (folder / "report.json").write_text(content)
    given = str(folder.relative_to(here))
    by_folder, by_file = (
        invoke(command, path, "--json") for path in (given, f"{given}/report.json")
    )
    assert by_folder.exit_code == by_file.exit_code == 0, by_folder.output
    as_file, as_folder = (
        each.stdout.replace(f"{given}/report.json", given) for each in (by_file, by_folder)
    )
    assert as_folder == as_file
    refused("(its runs: 0123456789ab)", command, "results/mine")
    refused("results is a folder without report.json; expected", command, "results")


@pytest.mark.usefixtures("here")
def test_an_arm_is_named_in_a_folder_too(here: Path) -> None:
    (here / "run").mkdir()
    (here / "run" / "report.json").write_text(Path(R3).read_text())
    result = invoke("compare", "run::baseline", "run::idea", "--json")
    assert result.exit_code == 0, result.output
    whole = json.loads(invoke("compare", "run", "--json").stdout)
    assert json.loads(result.stdout)["comparison"] == whole["comparison"]


@pytest.mark.usefixtures("here")
def test_what_is_no_json_cannot_be_audited() -> None:
    refused("nothing.json cannot be read", "audit", "nothing.json")
    refused("not strict JSON", "audit", "base.csv")


# --------------------------------------------------------------------------------------------------
# power
# --------------------------------------------------------------------------------------------------


def power(*arguments: str) -> dict[str, Any]:
    result = invoke("power", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_seeds_needed_are_those_of_the_library() -> None:
    plan = power("--effect", "0.5")
    assert plan["seeds"] == seeds_needed(0.5) == 34
    for line in plan["table"]:
        assert line["power"] == paired_power(0.5, line["seeds"])
        assert (line["power"] >= 0.8) is (line["seeds"] >= 34)
    assert power("--delta", "-2", "--sd", "4")["seeds"] == 34
    assert power("--effect", "0.5", "--power", "0.9", "--hypotheses", "3")["seeds"] == seeds_needed(
        0.5, power_wanted=0.9, hypotheses=3
    )


def test_a_report_gives_spread_and_effect() -> None:
    assert power(R3)["seeds"] == 7, "as in the notes"
    assert power(R1)["seeds"] == 11
    halved = power(R3, "--delta", "0.00114632")
    assert halved["effect"] == pytest.approx(power(R3)["effect"] / 2, rel=1e-4)
    assert halved["table"][0]["detectable_delta"] > 0


def test_power_prints_a_table_and_the_least_number_of_seeds() -> None:
    text = invoke("power", "--effect", "1", "--hypotheses", "5").stdout
    assert re.search(r"^\d+ seeds find an effect of 1 paired standard deviations", text)
    assert "cannot be significant" in text
    assert "Fewer than 8 seeds cannot reach significance" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "give --effect, or --delta and --sd, or a report"),
        (["--delta", "1"], "give --effect"),
        (["--effect", "1", "--sd", "2"], "give either --effect, or --delta and --sd"),
        (["--effect", "0"], "must be a finite number other than 0"),
        (["--effect", "nan"], "must be a finite number other than 0"),
        (["--delta", "1", "--sd", "0"], "the paired spread is 0"),
        (["--delta", "1", "--sd", "-1"], "--sd must be"),
        (["--effect", "1", "--power", "2"], "--power must lie strictly between 0 and 1"),
        (["--effect", "1", "--alpha", "0"], "--alpha must lie"),
        (["--effect", "1", "--hypotheses", "0"], "--hypotheses must be"),
        (["--effect", "1e-9"], "error: "),
        ([R3, "--effect", "1"], "with a report only --delta"),
        ([R0], "holds no score for each seed"),
        (["nothing.json"], "cannot be read"),
    ],
)
def test_power_says_what_is_wrong(arguments: list[str], expected: str) -> None:
    refused(expected, "power", *arguments)


# --------------------------------------------------------------------------------------------------
# All
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["compare", "audit", "power", "calibrate"])
def test_help_gives_examples(command: str) -> None:
    text = invoke(command, "--help").stdout
    assert f"  jaxbench {command} " in text


@pytest.mark.usefixtures("here")
def test_no_command_imports_jax() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom jaxbench import cli\n"
        f"for arguments in (['audit', {R3!r}], ['power', {R3!r}], ['compare', {R3!r}]):\n"
        "    assert CliRunner().invoke(cli.cli, arguments).exit_code == 0\n"
        "heavy = {'jax', 'flax', 'scipy.stats', 'matplotlib', 'pandas'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
