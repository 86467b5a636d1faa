"""A result is there as a whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from reporting.sample import sample_report

from jaxbench import storage
from jaxbench.base import JaxbenchError
from jaxbench.storage import StorageError


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    report = sample_report()
    path = storage.write_report(tmp_path / "out", report)
    assert path == tmp_path / "out" / "stability_penalty" / "0123456789ab" / "report.json"
    assert storage.read_report(path) == report
    assert storage.read_report(path.parent) == report
    assert everything_in(tmp_path / "out" / "stability_penalty") == [
        "0123456789ab", "0123456789ab/report.json",
    ]  # fmt: skip


def test_the_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (
        storage.write_report(tmp_path / name, sample_report()).read_bytes() for name in "ab"
    )
    assert first == second


def test_writing_again_replaces_the_report_and_keeps_other_files(tmp_path: Path) -> None:
    report = sample_report()
    path = storage.write_report(tmp_path, report)
    (path.parent / "notes.txt").write_text("mine")
    report["confidence"] = 3
    storage.write_report(tmp_path, report)
    assert storage.read_report(path)["confidence"] == 3
    assert everything_in(path.parent.parent) == [
        "0123456789ab", "0123456789ab/notes.txt", "0123456789ab/report.json",
    ]  # fmt: skip


def test_a_new_file_is_readable_by_those_whom_the_mask_lets(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        path = storage.write_report(tmp_path, sample_report())
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("moment", ["fsync", "rename"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_nothing_half_written_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, error: BaseException
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(storage.os, moment, fail)
    expected = StorageError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        storage.write_report(tmp_path, sample_report())
    if isinstance(error, OSError):
        assert "cannot be written" in str(caught.value)
        assert "No space left on device" in str(caught.value)
        assert getattr(caught.value, "exit_code", None) == 1
    monkeypatch.undo()
    assert everything_in(tmp_path) == ["stability_penalty"]


def test_a_report_that_is_no_json_leaves_no_trace(tmp_path: Path) -> None:
    report = sample_report()
    report["bench_report"]["idea"]["full"]["mean"] = float("nan")
    with pytest.raises(JaxbenchError, match=r"report.bench_report.idea.full.mean is nan"):
        storage.write_report(tmp_path, report)
    assert everything_in(tmp_path) == []


def test_checking_a_folder_leaves_no_trace(tmp_path: Path) -> None:
    storage.check_writable(tmp_path / "a" / "b" / "c")
    storage.check_writable(tmp_path)
    assert everything_in(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JaxbenchError, match=r"cannot be written to .*it is not a folder; choose"):
        storage.check_writable(tmp_path / "file" / "results")
    with pytest.raises(JaxbenchError, match=r"^logs cannot .* not a folder; choose another --log$"):
        storage.check_writable(tmp_path / "file", "--log", "logs")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(JaxbenchError, match="cannot be written"):
        storage.check_writable(tmp_path / "link" / "results")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system of the kernel's")
def test_a_folder_that_may_not_be_written_is_refused_even_to_root() -> None:
    with pytest.raises(JaxbenchError, match=r"cannot be written to /proc/results \(/proc\): "):
        storage.check_writable("/proc/results")
    with pytest.raises(StorageError, match="cannot be written to /proc/results/"):
        storage.write_report("/proc/results", sample_report())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": NaN}', "NaN is no finite number"),
        ('{"a": 1e999}', "1e999 is no finite number"),
        ('{"a": 1, "a": 2}', "a key stands twice"),
        ("[1]", "expected an object"),
        ("{", "not strict JSON"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(JaxbenchError, match=expected):
        storage.read_report(tmp_path)


def test_a_report_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JaxbenchError, match=r"no report at .*report.json: No such file"):
        storage.read_report(tmp_path)


def test_the_run_id_begins_the_digest() -> None:
    assert storage.run_id("0123456789abcdef") == "0123456789ab"


def test_a_json_file_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "folder" / "x.json"
    storage.write_json(path, {"a": [1, None]})
    with pytest.raises(
        storage.StorageError, match=r"/below\.txt cannot be written: (Not a|File ex)"
    ):
        storage.write_text(path / "below.txt", "text")
    assert json.loads(path.read_text()) == {"a": [1, None]}
    with pytest.raises(JaxbenchError):
        storage.write_json(path, {"a": float("nan")})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(storage.StorageError, match=r"x\.json cannot be written: No space left"):
        storage.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": [1, None]}
    assert [each.name for each in path.parent.iterdir()] == ["x.json"]
