"""Scores of any origin: read as they were meant, or refused with what to do."""

from __future__ import annotations

import csv
import io
import json
import math
import pathlib
import random
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from jaxbench.base import JaxbenchError
from jaxbench.reporting import strict_json
from jaxbench.reporting.paired_files import PairedFiles, compare_files, render
from jaxbench.reporting.score_cells import Options
from jaxbench.reporting.score_tables import read_scores
from reporting.mutants import mutant, scrambled

REFERENCES = pathlib.Path(__file__).parent / "reference_reports"
R3 = REFERENCES / "R3_histogram_clusters.json"


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str | bytes, source: str = "", **options: Any) -> dict[str, float]:
    """Read scores from a file with this text."""
    content = text if isinstance(text, bytes) else text.encode()
    pathlib.Path("scores.txt").write_bytes(content)
    return dict(read_scores(f"scores.txt{source}", "idea", Options(**options)).by_seed)


def write(name: str, scores: Any) -> str:
    pathlib.Path(name).write_text(json.dumps(list(scores)))
    return name


def rendered(result: PairedFiles) -> str:
    stream = io.StringIO()
    render(result, Console(file=stream, markup=False, width=100))
    return stream.getvalue()


# --------------------------------------------------------------------------------------------------
# Published examples
# --------------------------------------------------------------------------------------------------

MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
PUBLISHED: dict[str, tuple[list[float], list[float], float]] = {
    "maize": ([0.0] * 15, list(map(float, MAIZE)), 1726 / 32768),
    "mlxtend": (
        [2.11, 1.79, 2.71, 1.89, 1.69, 1.71, 2.01], [3.67, 1.72, 3.46, 2.60, 2.03, 2.10, 3.01],
        4 / 128,
    ),
    "integers": (
        [151, 168, 147, 164, 166, 163, 176], [209, 200, 177, 169, 159, 169, 187], 8 / 128,
    ),
    "baycomp": (
        [92.754, 92.754, 89.855, 89.706, 95.588, 89.706, 95.588, 94.118, 91.176, 92.647],
        [94.203, 92.754, 95.652, 91.176, 92.647, 91.176, 92.647, 92.647, 86.765, 91.176],
        668 / 1024,
    ),
}  # fmt: skip


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_p_values_come_out_of_files(name: str) -> None:
    baseline, idea, p_value = PUBLISHED[name]
    result = compare_files(write("a.json", baseline), write("b.json", idea), direction="higher")
    assert result.comparison.p_value == p_value
    assert f"p = {p_value:.4g}" in result.verdict
    assert result.verdict in " ".join(rendered(result).split())


def test_a_report_is_compared_as_it_was() -> None:
    result = compare_files(str(R3), None)
    assert result.comparison.p_value == 2 / 256
    assert result.comparison.outcome == "worse"
    stated = json.loads(R3.read_text())["bench_report"]["comparison"]
    assert result.comparison.per_seed_diffs == pytest.approx(stated["per_seed_diffs"], rel=1e-12)
    as_json = strict_json.loads(strict_json.dumps(result.to_dict()))
    assert as_json["comparison"]["mde"] == pytest.approx(stated["mde"])
    assert as_json["seeds"] == list("01234567")
    assert as_json["verdict"].startswith("Over 8 paired seeds the idea is worse")


def test_arms_of_different_reports_can_be_compared() -> None:
    r1 = str(REFERENCES / "R1_task_visible_axes.json")
    result = compare_files(f"{r1}::idea", f"{R3}::idea")
    assert result.baseline.label.endswith("axes.json::idea")
    with pytest.raises(JaxbenchError, match="both arms are"):
        compare_files(f"{r1}::idea", f"{r1}::idea")


# --------------------------------------------------------------------------------------------------
# Layouts
# --------------------------------------------------------------------------------------------------

EXPECTED = {"1": 0.5, "2": 0.25, "10": 1e-3}
WANDB = """\ufeff"Name","State","Runtime","seed","test/loss"
"swift-sun-3","finished","120","2","0.25"
"calm-sea-1","finished","118","1","0.5"
"warm-sky-9","finished","119","10","1e-3"
"""
MLFLOW = (
    "Start Time,Duration,Run ID,Name,params.seed,params.lr,metrics.score\n"
    "2025-01-01 10:00:00,12.1s,ab12,a,1,x,0.5\n"
    '2025-01-01 10:01:00,11.9s,cd34,"b, again",2,x,0.25\n'
    "2025-01-01 10:02:00,12.0s,ef56,c,10,x,0.001\n"
)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("seed,score\n1,0.5\n2,0.25\n10,0.001\n", {}),
        ("Seed;Score\r\n10;0,001\r\n1;0,5\r\n2;0,25\r\n", {}),
        ("seed\tscore\n1\t.5\n02\t+0.25\n10.0\t1e-3\n\n", {}),
        ("\n\nseed , score , note\n 1 , 0.5 , best\n2,0.25\n10,0.001,\n", {}),
        ("score,arm,seed\n0.5,idea,1\n9,baseline,1\n0.25,idea,2\n0.001,idea,10\n", {}),
        ("seed,baseline,idea\n1,9,0.5\n2,9,0.25\n10,9,0.001\n", {}),
        (WANDB, {"score_column": "test/loss"}),
        (MLFLOW, {"score_column": "metrics.score"}),
        (MLFLOW, {}),
        ('{"1": 0.5, "2": 0.25, "10": 0.001}', {}),
        ('\ufeff[{"seed": 2, "score": 0.25}, {"seed": 1, "score": 0.5}, '
         '{"seed": 10, "score": 1e-3}]', {}),
        ('[{"seed": 1, "loss": 0.5, "lr": "a"}, {"seed": 2, "loss": 0.25}, '
         '{"seed": 10, "loss": 1e-3}]', {}),
        ("number,score,seed_of_data\n1,0.5,3\n2,0.25,3\n10,0.001,3\n", {"seed_column": "number"}),
        ("seed,score\n1,0.4\n1,0.6\n2,0.25\n10,0.001\n", {"aggregate": True}),
        ("seed,score\n1,0.5\n2,0.25\n10,0.001\n".encode("utf-16"), {}),
    ],
)  # fmt: skip
def test_every_layout_gives_the_same_scores(text: str | bytes, options: dict[str, Any]) -> None:
    scores = read(text, **options)
    assert scores == EXPECTED
    assert list(scores) == ["1", "2", "10"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("arm,seed,score\na,1,0.5\na,2,0.25\na,10,0.001\nb,1,7\n", "::a"),
        ("seed,adam,mine\n1,7,0.5\n2,7,0.25\n10,7,0.001\n", "::mine"),
    ],
)
def test_an_arm_is_chosen_by_name(text: str, source: str) -> None:
    assert read(text, source) == EXPECTED


@pytest.mark.usefixtures("here")
def test_lists_have_positions_in_place_of_seeds() -> None:
    assert read("[3, 4.5]") == {"0": 3.0, "1": 4.5}
    assert read("score\n3\n4.5\n") == {"0": 3.0, "1": 4.5}


@pytest.mark.usefixtures("here")
def test_missing_scores_are_diverged_only_when_said() -> None:
    text = "seed,score\n1,0.5\n2,\n3,NaN\n4,inf\n"
    with pytest.raises(JaxbenchError, match="line 3: the score is missing"):
        read(text)
    scores = read(text, missing_is_diverged=True)
    assert [math.isnan(score) for score in scores.values()] == [False, True, True, False]
    assert scores["4"] == math.inf
    pathlib.Path("idea.csv").write_text(text)
    pathlib.Path("base.csv").write_text("seed,score\n1,0.5\n2,1\n3,1\n4,1\n")
    options = Options(missing_is_diverged=True)
    result = compare_files("base.csv", "idea.csv", direction="lower", options=options)
    assert result.comparison.idea.diverged == 3
    assert "ranks decide" in result.verdict
    assert "diverged" in rendered(result)


@pytest.mark.usefixtures("here")
def test_seeds_of_64_bits_stay_apart() -> None:
    assert len(read("seed,score\n18446744073709551614,1\n18446744073709551615,2\n")) == 2


# --------------------------------------------------------------------------------------------------
# What is refused
# --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("  \n\n", "is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "is no text"),
        (b"PK\x03\x04\x00\x00", "is no text"),
        ("1,2\n3,4\n", "has no header"),
        ("seed,score\n", "has a header and no rows"),
        ("seed,score,score\n1,2,3\n", "several columns called 'score'"),
        ("seed,name\n1,x\n", "has no column with numbers"),
        ("seed,a,b\n1,2,3\n", "several columns that could be the idea: a, b; choose with"),
        ("params.seed,config.seed,score\n1,2,3\n", "several columns could be the seed"),
        ("arm,seed,score\nx,1,2\ny,1,3\n", "several arms that could be the idea: x, y"),
        ("seed,score\n1,0.5\n2,abc\n", "line 3: 'abc' is no number"),
        ("seed,score\n1,1_000\n", "'1_000' is no number"),
        ("seed,score\n1,1e999\n", "is too large for a score"),
        ("seed,score\n,0.5\n", "line 2: the seed is missing"),
        ("seed,score\n1,0.5\n1.0,0.25\n", r"a seed has several rows \(seed 1 has 2\)"),
        ("seed,score\n" + "1,2\n2,3\n" * 50, r"2 of 2 seeds have several rows \(seed 1 has 50\)"),
        ('seed,score\n1,"0.5\n', "is no CSV"),
        ("[1, 2", "not strict JSON"),
        ("[1, true]", "entry 1: True is no number"),
        ("[1, null]", "entry 1: the score is missing"),
        ("[1, NaN]", "entry 1: the score is missing"),
        ("[1, [2]]", "entry 1: .* is no number"),
        ("[" + "9" * 400 + "]", "is too large for a score"),
        ('[{"seed": 1, "score": 2}, 3]', "entry 1 is 3; expected a record"),
        ('{"a": 1}', "holds no score for each seed"),
        ("{}", "holds no score for each seed"),
        ('{"1": 2, "1": 3}', "a key stands twice"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_bad_files_are_refused(text: str | bytes, expected: str) -> None:
    with pytest.raises(JaxbenchError, match=expected):
        read(text)


@pytest.mark.usefixtures("here")
def test_names_that_are_not_there_are_refused_with_those_that_are() -> None:
    for source in ("scores.txt::z", "nothing.csv", "."):
        pathlib.Path("scores.txt").write_text("seed,score\n1,2\n")
        with pytest.raises(JaxbenchError, match=r"its columns are seed|cannot be read|a folder w"):
            read_scores(source, "idea", Options())
    with pytest.raises(JaxbenchError, match=r"no arm 'mine': baseline, idea; choose with"):
        read_scores(f"{R3}::mine", "idea", Options())
    with pytest.raises(JaxbenchError, match="no column 'x'; its columns are seed, score"):
        read("seed,score\n1,2\n", score_column="x")


@pytest.mark.usefixtures("here")
def test_seeds_must_match_or_be_common() -> None:
    pathlib.Path("a.csv").write_text("seed,score\n1,1\n2,2\n3,3\n")
    pathlib.Path("b.csv").write_text("seed,score\n2,2\n3,4\n4,5\n5,5\n")
    with pytest.raises(
        JaxbenchError, match=r"only a\.csv::score has 1; only b\.csv::score has 4, 5"
    ):
        compare_files("a.csv", "b.csv", direction="lower")
    result = compare_files("a.csv", "b.csv", direction="lower", common_seeds=True)
    assert result.seeds == ["2", "3"]
    assert result.left_out == ["1", "4", "5"]
    assert "left out, since only one arm has them: 1, 4, 5" in rendered(result)
    with pytest.raises(JaxbenchError, match="names its seeds and"):
        compare_files("a.csv", write("c.json", [1, 2, 3]), direction="lower")
    with pytest.raises(JaxbenchError, match=r"3 scores and .* 2, without the names"):
        compare_files("c.json", write("d.json", [1, 2]), direction="lower", common_seeds=True)
    pathlib.Path("e.csv").write_text("seed,score\n1,1\n")
    with pytest.raises(JaxbenchError, match="at least 2 seeds"):
        compare_files("a.csv", "e.csv", direction="lower", common_seeds=True)


@pytest.mark.usefixtures("here")
def test_the_direction_must_be_known_and_agreed_on() -> None:
    one, other = write("a.json", [1, 2, 3]), write("b.json", [2, 3, 5])
    with pytest.raises(JaxbenchError, match="do not say in which direction"):
        compare_files(one, other)
    with pytest.raises(JaxbenchError, match=r"--direction higher contradicts .*lower is better"):
        compare_files(str(R3), None, direction="higher")
    assert compare_files(str(R3), None, direction="lower").comparison.direction == "lower"
    upside = json.loads(R3.read_text())
    upside["bench_report"]["metric_direction"] = "higher is better"
    pathlib.Path("up.json").write_text(json.dumps(upside))
    with pytest.raises(JaxbenchError, match="improve in different directions"):
        compare_files(str(R3), "up.json")


# --------------------------------------------------------------------------------------------------
# Round trips and fuzzing
# --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_the_order_of_rows_does_not_matter() -> None:
    scores = np.random.default_rng(0).normal(size=(2, 12))
    results = []
    for seed in (1, 2):
        order = np.random.default_rng(seed).permutation(12)
        for name, arm in zip(("a.csv", "b.csv"), scores, strict=True):
            with pathlib.Path(name).open("w", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(["seed", "score"])
                rows.writerows([i, repr(float(arm[i]))] for i in order)
            order = order[::-1]
        results.append(compare_files("a.csv", "b.csv", direction="lower").to_dict())
    assert results[0] == results[1]
    assert results[0]["comparison"]["per_seed_diffs"] == list(scores[1] - scores[0])


CSVS = [
    "seed,score\n1,0.5\n2,0.25\n10,0.001\n", WANDB, MLFLOW,
    "seed;arm;score\n1;baseline;0,5\n1;idea;0,4\n2;baseline;0,3\n2;idea;0,35\n",
    "seed,baseline,idea\n1,9,0.5\n2,9,0.25\n10,9,0.001\n",
]  # fmt: skip
DOCUMENTS: list[Any] = [
    [1.5, 2.5, 3.5], {"1": 0.5, "2": 0.25, "3": 1e-3},
    [{"seed": 1, "score": 0.5, "arm": "idea"}, {"seed": 2, "score": 0.25, "arm": "idea"}],
]  # fmt: skip


def fuzz(tmp_path: pathlib.Path, seeds: range) -> None:
    """Compare mutated files; anything but a JaxbenchError fails."""
    documents = [*DOCUMENTS, *(json.loads(path.read_text()) for path in REFERENCES.glob("*.json"))]
    path = tmp_path / "mutant"
    compared = 0
    for seed in seeds:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            content = chance.choice(CSVS).encode()
            for _ in range(chance.randint(0, 3)):
                content = scrambled(content, chance)
            path.write_bytes(content)
        else:
            path.write_bytes(mutant(chance.choice(documents), chance))
        column = chance.choice([None, None, "score", "test/loss", ""])
        options = Options(None, column, chance.random() < 0.5, chance.random() < 0.5)
        second = chance.choice([None, str(path), str(R3), f"{path}::idea", f"{path}::a"])
        try:
            result = compare_files(
                str(path), second, common_seeds=chance.random() < 0.5, options=options,
                direction=chance.choice([None, "lower", "higher", "lower"]),
            )  # fmt: skip
        except JaxbenchError:
            continue
        compared += 1
        strict_json.dumps(result.to_dict())
        if compared % 10 == 0:  # the slowest part by far
            rendered(result)
    assert compared > 0


def test_mutated_files_give_no_traceback(tmp_path: pathlib.Path) -> None:
    fuzz(tmp_path, range(300))


@pytest.mark.slow
def test_ten_thousand_mutated_files_give_no_traceback(tmp_path: pathlib.Path) -> None:
    fuzz(tmp_path, range(1_000, 11_000))
