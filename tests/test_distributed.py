"""Several processes on this machine carry out one study: one report, one process's scores."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_sweep import STUDY

from jaxbench import cli, storage
from jaxbench.commands import processes
from jaxbench.distributed import Place

ENDLESS = ["--set", "training.epochs=10000000"]
TIMEOUT = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study, and a cache of its programs."""
    path = tmp_path_factory.mktemp("study")
    (path / "mine.toml").write_text(STUDY.format(rate="0.01, 0.03"))
    return path


def environment(folder: Path, devices: int) -> dict[str, str]:
    """That of the tests, with so many devices in each process."""
    flags = re.sub(r"(device_count)=\d+", rf"\1={devices}", os.environ["XLA_FLAGS"])
    return os.environ | {
        "XLA_FLAGS": flags,
        "JAX_COMPILATION_CACHE_DIR": str(folder / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "jaxbench.cli", *arguments]


@contextlib.contextmanager
def started(
    folder: Path, devices: Sequence[int], *arguments: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start one process for each number of devices; whatever is left of them is killed."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    common = ["--coordinator", f"localhost:{port}", "--processes", str(len(devices))]
    processes = [
        subprocess.Popen(
            command(*arguments, *common, "--process-id", str(number)),
            cwd=folder,
            env=environment(folder, count),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, count in enumerate(devices)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def ends(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Wait for all of them: exit code, stdout, stderr."""
    found = []
    for process in processes:
        stdout, stderr = process.communicate(timeout=300)
        found.append((process.returncode, stdout, stderr))
    return found


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    """Wait until a process has written a line with this word in it on stderr."""
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"it ended before it said {word!r}")


def numbers(report: dict[str, Any]) -> str:
    """All that a report found, as text to the bit, without its costs."""
    bench = report["bench_report"]
    arms = {
        name: {key: value for key, value in arm.items() if key != "cost"}
        for name, arm in bench["arms"].items()
    }
    names = ("comparisons", "references", "pairing", "run_id", "n_seeds", "mechanism_signature")
    return json.dumps([arms, *(bench[name] for name in names), report["verdict"]])


@pytest.fixture(scope="module")
def alone(folder: Path) -> str:
    """The numbers of one process."""
    run = command("run", "mine.toml", "--json", "--quiet", "--out", "alone")
    done = subprocess.run(
        run, cwd=folder, env=environment(folder, 1), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return numbers(json.loads(done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("devices", [(1, 1), (1, 2, 1, 1)])
def test_several_processes_write_one_report_with_one_process_scores(
    folder: Path, alone: str, devices: tuple[int, ...]
) -> None:
    """2 and 4 processes, one of them with more devices than the others."""
    out = f"together{len(devices)}"
    with started(folder, devices, "run", "mine.toml", "--json", "--quiet", "--out", out) as several:
        (code, stdout, stderr), *others = ends(several)
    assert code == 0, stderr
    report = json.loads(stdout)
    assert numbers(report) == alone
    assert report["bench_report"]["provenance"]["processes"] == len(devices)
    assert [(code, stdout) for code, stdout, _ in others] == [(0, "")] * len(others)
    [path] = (folder / out).rglob("report.json")
    assert storage.read_report(path) == report
    assert len((folder / out / "ledger.jsonl").read_text().splitlines()) == 1


@pytest.mark.slow
def test_a_sweep_over_several_processes(folder: Path, alone: str) -> None:
    """Every study by all processes; one that cannot be loaded is refused by all of them."""
    (folder / "crooked.toml").write_text("name = 1")
    arguments = ["sweep", "crooked.toml", "mine.toml", "--json", "--quiet", "--out", "swept"]
    for state in ("done", "skipped"):
        with started(folder, (1, 1), *arguments) as several:
            (code, stdout, stderr), (other, nothing, _) = ends(several)
        assert (code, other, nothing) == (2, 2, ""), stderr
        found = json.loads(stdout)["studies"]
        assert [each["state"] for each in found] == ["refused", state]
    [path] = (folder / "swept").rglob("report.json")
    assert numbers(storage.read_report(path)) == alone


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_dies_ends_the_others_within_the_timeout(
    folder: Path, victim: int, blow: signal.Signals
) -> None:
    """Killed or frozen while all train: the others say so and end, and there is no report."""
    arguments = ["run", "mine.toml", *ENDLESS, "--out", "lost", "--peer-timeout", str(TIMEOUT)]
    with started(folder, (1, 1), *arguments) as several:
        wait_for(several[0], "training")
        time.sleep(5)
        several[victim].send_signal(blow)
        began = time.monotonic()
        stdout, stderr = several[1 - victim].communicate(timeout=300)
        took = time.monotonic() - began
        code = several[1 - victim].returncode
    assert code != 0
    assert f"gave no sign of life for {TIMEOUT} s" in stderr.splitlines()[-1]
    assert took < 3 * TIMEOUT
    assert stdout == ""
    assert not list(folder.glob("lost/*/*/report.json"))


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "again"), [(1, (1, 1)), (0, (1, 2, 1)), (1, (2,))])
def test_a_study_whose_process_was_killed_resumes_with_the_same_scores(
    folder: Path, alone: str, victim: int, again: tuple[int, ...]
) -> None:
    """Killed between two epochs; then by as many processes, by more, or by one.

    Where process 0 dies, jax aborts the others, and its trace may come after our words.
    """
    out = f"killed{victim}-{len(again)}"
    arguments = ["run", "mine.toml", "--out", out, "--json", "--quiet"]
    more = ["--checkpoint-every", "1", "--peer-timeout", str(TIMEOUT)]
    with started(folder, (1, 1), *arguments, *more) as several:
        while not all(list(folder.glob(f"{out}/*/*/checkpoints/process-{n}/*")) for n in (0, 1)):
            assert all(process.poll() is None for process in several), "ended before the blow"
            time.sleep(0.01)
        several[victim].kill()
        began = time.monotonic()
        _, stderr = several[1 - victim].communicate(timeout=300)
        took = time.monotonic() - began
        assert several[1 - victim].returncode != 0
    assert took < 3 * TIMEOUT
    said = " ".join(line for line in stderr.splitlines() if "error: " in line)
    assert "died or" in said
    assert "start all again, with --resume if they wrote checkpoints" in said
    assert not list(folder.glob(f"{out}/*/*/report.json"))

    with started(folder, (1, 1), *arguments) as several:
        refused = ends(several)
    assert {code for code, _, _ in refused} == {2}
    assert all("--resume continues it" in stderr for _, _, stderr in refused)

    if len(again) == 1:
        resumed = subprocess.run(
            command(*arguments, "--resume"), cwd=folder, env=environment(folder, again[0]),
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        code, stdout, stderr = resumed.returncode, resumed.stdout, resumed.stderr
    else:
        with started(folder, again, *arguments, "--resume") as several:
            (code, stdout, stderr), *_ = ends(several)
    assert code == 0, stderr
    report = json.loads(stdout)
    assert numbers(report) == alone
    assert report["bench_report"]["cost"]["resumed"] == 1
    assert not list(folder.glob(f"{out}/*/*/checkpoints"))


@pytest.mark.slow
def test_a_process_that_fails_is_named_by_the_others(folder: Path) -> None:
    """Only process 0 finds that results cannot be written: all end at once, with its words."""
    (folder / "file").write_text("")
    with started(folder, (1, 1), "run", "mine.toml", "--out", "file/results") as several:
        (first, _, said), (second, _, heard) = ends(several)
    assert (first, second) == (2, 1)
    assert "results cannot be written to file/results" in said
    assert "error: process 0 failed: JaxbenchError: results cannot be written" in heard


@pytest.mark.slow
def test_a_process_that_never_starts_is_not_waited_for_for_ever(folder: Path) -> None:
    code = (
        "from jaxbench import distributed; distributed.START_TIMEOUT = 3\n"
        "with distributed.joined(distributed.Place('localhost:1', 2, 1, 5)): pass"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200,
        env=environment(folder, 1),
    )  # fmt: skip
    assert done.returncode != 0
    assert "error: not all processes of the study joined within 3 s" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--coordinator", "a:1", "--processes", "2", "--process-id", "2"], "expected 0 to 1"),
        (["--coordinator", "a:1"], "--processes, --process-id missing"),
        (["--processes", "2"], "--coordinator, --process-id missing"),
        *(
            (["--coordinator", text, "--processes", "2", "--process-id", "1"], "expected HOST:PORT")
            for text in (
                "a",
                "a:b",
                ":",
                ":1",
                "a:",
                "a:0",
                "a:99999",
                "a: 1",
                "::1:1234",
                "[]:1",
                "[:]:1",
            )
        ),
    ],
)
def test_a_place_that_is_not_whole_is_refused(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli.cli, ["run", "stability_penalty", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize("text", ["a:1", "10.0.0.1:65535", "[::1]:1234", "[fe80::1%eth0]:1234"])
def test_a_whole_place_is_taken(text: str) -> None:
    place = Place(text, 2, 1, 10)
    assert processes.checked(place, detect=False) == place


def test_the_environment_can_name_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "a:1")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    monkeypatch.setenv("JAX_PROCESS_ID", "5")
    done = CliRunner().invoke(cli.cli, ["run", "stability_penalty"])
    assert done.exit_code == 2
    assert "--process-id is 5; expected 0 to 1" in done.stderr
