"""The command as a process: it repeats itself to the bit, and leaves nothing when interrupted."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import interruptible

SMALL = ["stability_penalty", "--quick", "--set", "model.hidden=4", "--set", "training.epochs=1"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "jaxbench.cli", *arguments]


def environment() -> dict[str, str]:
    """The user's, without the eight devices that the tests force."""
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}


@pytest.mark.slow
def test_two_invocations_give_the_same_bytes(tmp_path: Path) -> None:
    """The per-seed scores and the run id are the same; stdout holds the report alone."""

    def once() -> Any:
        run = command("run", *SMALL, "--json", "--quiet", "--force", "--out", str(tmp_path))
        done = subprocess.run(run, capture_output=True, text=True, env=environment())
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["bench_report"]

    first, second = once(), once()
    assert first["run_id"] == second["run_id"]
    for arm in ("baseline", "idea"):
        assert json.dumps(first[arm]["full"]) == json.dumps(second[arm]["full"])
        assert json.dumps(first[arm]["sweep"]) == json.dumps(second[arm]["sweep"])
    written = {path.name: path for path in tmp_path.rglob("*.*")}
    assert written.keys() == {"report.json", "report.html", "ledger.jsonl"}
    report, looks = written["report.json"], written["ledger.jsonl"]
    assert len(looks.read_text().splitlines()) == 1
    assert json.loads(report.read_text())["bench_report"]["run_id"] == first["run_id"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["training", "compiling epoch"])
def test_an_interrupted_study_leaves_nothing(tmp_path: Path, moment: str) -> None:
    """Ctrl-C while it compiles or trains: a word, exit code 130, no file."""
    out = tmp_path / "results"
    run = command("run", "stability_penalty", "--out", str(out))
    with interruptible(run, env=environment()) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if moment in line:
                break
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: nothing was written" in stderr
    assert "Traceback" not in stderr
    assert stdout == ""
    assert not list(tmp_path.rglob("report*"))
