"""Every idea is asked for its explanation, each network is measured once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jaxbench import config, study
from jaxbench.base import Progress
from jaxbench.explanation import lend, to_be_measured
from jaxbench.plan import make_plan
from jaxbench.reporting.schema import check_report
from jaxbench.training.runs import TrainedRun

TRACK = "from factories import line_track\ndef build():\n    return line_track()\n"
MODEL = (
    "from factories import affine_model\ndef build(*, outputs: int):\n    return affine_model()\n"
)
IDEA = '''
import jax
import numpy as np
from jaxbench.base import Finding, Hyper, Intervention, Phase, Signature


def size(samples):
    """Pass where the sizes are the factor's; say of how many runs."""
    runs = len(samples["size"])
    values = {"runs": runs, "factors": samples["factor"].tolist()}
    return Finding(bool((samples["size"] >= 0).all()), values, 0.0, f"{runs} runs")


def build(*, factor: float = 1.0, rounds: int = 1):
    def surgery(ctx, params, opt_state, state):
        return jax.tree.map(lambda leaf: factor * leaf, params), opt_state, state

    def measure(ctx, params, state, test):
        return {"size": abs(params["kernel"]).sum(), "factor": np.float32(factor)}

    pools = {"own": ("idea",), "pair": ("idea", "baseline"), "all": ("ideas",)}
    return Intervention(
        name="scaling",
        summary="multiply the parameters after the first epoch, and again",
        static={"factor": factor, "rounds": rounds},
        surgery_static=("factor", "rounds"),
        phases=(Phase(1, surgery),) * rounds + (Phase(4 - rounds),),
        measure=measure,
        signatures=tuple(
            Signature(
                name=name, claim="", formula="", tolerance={}, evaluate=size, pool=pool,
                controls=("untrained",),
            )
            for name, pool in pools.items()
        ),
    )
'''


def document(**more: Any) -> dict[str, Any]:
    def arm(factor: float) -> dict[str, Any]:
        return {"intervention": "scaling.py", "options": {"factor": factor}}

    return {
        "name": "small",
        "track": {"name": "line.py"},
        "model": {"name": "affine.py"},
        "training": {"epochs": 4, "batch_size": 8},
        "protocol": {"seeds": 3, "tuning_seeds": 2},
        "grid": {"learning_rate": [0.01]},
        "arms": {"baseline": {"intervention": "none"}, "one": arm(0.5), "two": arm(2.0)},
        "comparisons": [
            {"idea": "one", "baseline": "baseline", "role": "primary"},
            {"idea": "two", "baseline": "one", "role": "secondary"},
            {"idea": "two", "baseline": "baseline", "role": "control"},
        ],
        **more,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study")
    for name, text in {"line": TRACK, "affine": MODEL, "scaling": IDEA}.items():
        (path / f"{name}.py").write_text(text)
    return path


class Counter(Progress):
    """Remembers what began."""

    def __init__(self) -> None:
        self.began: list[str] = []

    def start(self, total: int, label: str) -> None:
        """Remember it."""
        self.began.append(label)


def test_every_idea_but_a_controls_is_asked_and_each_network_is_measured_once(
    folder: Path,
) -> None:
    counter = Counter()
    report = study.run_study(config.from_run(document(), folder), progress=counter)
    check_report(report)
    bench = report["bench_report"]
    primary, secondary, control = bench["comparisons"]
    assert "mechanism_signature" not in primary
    assert "mechanism_signature" not in control
    asked = {
        "one": bench["mechanism_signature"]["signatures"],
        "two": secondary["mechanism_signature"]["signatures"],
    }
    runs = {
        idea: {each["name"]: each["subject"]["values"]["runs"] for each in signatures}
        for idea, signatures in asked.items()
    }
    assert runs == {idea: {"own": 3, "pair": 6, "all": 6} for idea in asked}
    factors = {
        idea: signatures[1]["subject"]["values"]["factors"] for idea, signatures in asked.items()
    }
    assert factors == {"one": [0.5] * 6, "two": [2.0] * 3 + [0.5] * 3}
    untrained = {
        idea: {each["name"]: each["controls"]["untrained"]["values"]["runs"] for each in signatures}
        for idea, signatures in asked.items()
    }
    assert untrained == {idea: {"own": 3, "pair": 3, "all": 6} for idea in asked}
    assert bench["mechanism_signature"]["measured"].keys() == {"idea", "baseline"}
    # both ideas trained and untrained, and the baseline measured by the idea's hook
    assert counter.began[-1] == "measuring 15 networks"


def test_a_sweep_trains_what_its_arms_share_once(folder: Path) -> None:
    """One trunk a seed for all factors and rounds, whatever the number of arms."""
    swept = document(
        arms={name: {"intervention": "scaling.py"} for name in ("baseline", "idea")},
        comparisons=[{"idea": "idea", "baseline": "baseline", "role": "primary"}],
        sweep={
            "arms": ["idea"],
            "primary": {"factor": 0.5, "rounds": 1},
            "options": {"factor": [0.5, 2.0], "rounds": [1, 2]},
        },
    )
    read = config.from_run(swept, folder)
    assert len(to_be_measured(make_plan(read))) == 5
    report = study.run_study(read, progress=Progress())
    (group,) = report["bench_report"]["programs"]
    assert (group["runs"], group["trained"]) == (5 * (2 + 3), 2 + 3)
    names = [program["name"] for program in group["programs"]]
    assert names.count("epoch") == names.count("start") == names.count("evaluate") == 1
    assert names.count("measure") == 5
    again = config.from_run(report["bench_report"]["config"], folder)
    assert config.digest(again) == report["bench_report"]["config_digest"]


def test_arms_that_nobody_reads_are_not_compiled_for(folder: Path) -> None:
    """A secondary baseline whose measurements no signature reads, and a control."""
    lonely = IDEA.replace('"pair": ("idea", "baseline"), "all": ("ideas",)', "")
    (folder / "lonely.py").write_text(lonely)

    def arm(factor: float) -> dict[str, Any]:
        return {"intervention": "lonely.py", "options": {"factor": factor}}

    arms = {name: arm(factor) for name, factor in zip("abcd", (0.5, 1.0, 2.0, 3.0), strict=True)}
    roles = [("a", "b", "primary"), ("c", "d", "secondary"), ("d", "a", "control")]
    plan = make_plan(
        config.from_run(
            document(
                arms=arms,
                comparisons=[{"idea": i, "baseline": b, "role": r} for i, b, r in roles],
            ),
            folder,
        )
    )
    assert to_be_measured(plan) == {plan.arms[name].recipe.full_key for name in "abc"}


def test_a_lent_run_is_measured_by_the_ideas_own_program() -> None:
    """Its key names the lender's source, not that of an intervention that measures nothing."""
    small: dict[str, Any] = {
        "name": "lent",
        "track": {"name": "dynamics"},
        "model": {"name": "rnn_small", "hidden": 4},
        "grid": {"learning_rate": [0.003]},
        "arms": {
            "baseline": {"intervention": "none"},
            "idea": {"intervention": "stability_penalty"},
        },
    }
    plan = make_plan(config.from_run(small))
    runs = {name: arm.run(0, {"learning_rate": 0.003}, 0) for name, arm in plan.arms.items()}
    trained = TrainedRun(
        run=runs["baseline"], validation=0.0, test=0.0, diverged_at=None, curves={}, params=None,
        state=None,
    )  # fmt: skip
    assert runs["baseline"].recipe.full_key != runs["idea"].recipe.full_key
    assert lend(trained, runs["idea"]).run.recipe.full_key == runs["idea"].recipe.full_key
