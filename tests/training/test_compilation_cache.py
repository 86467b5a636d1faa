"""Compiled programs are kept from one process to the next, where the user wants them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import jax
import pytest
from factories import cpu_layout, runs_of, small_recipe

from jaxbench import devices
from jaxbench.base import Hyper, Intervention
from jaxbench.training import compilation_cache as cache
from jaxbench.training import executables
from jaxbench.training.engine import Engine

TRAIN = """
import sys
from jaxbench import devices
assert devices.configure(cache=sys.argv[1])
import jax
sys.path.insert(0, sys.argv[2])
from factories import runs_of, small_recipe
from jaxbench.training.engine import Engine
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
[run] = Engine().train(runs_of(small_recipe(), 1))
found = [sum(name.endswith(kind) for name in hits) for kind in ("/cache_hits", "/cache_misses")]
print(*found, run.test.hex())
"""


def train(where: str, **environment: str) -> tuple[int, int, str]:
    """Train one run in a process of its own: programs found in the cache and not, and the score."""
    unset = ("XLA_FLAGS", cache.VARIABLE, *cache.OF_JAX)
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, where, tests],
        capture_output=True, text=True, env=inherited | environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    hits, misses, score = done.stdout.split()
    return int(hits), int(misses), score


def test_the_next_process_compiles_nothing_and_gets_the_same_bits(tmp_path: Path) -> None:
    none, compiled, score = train(str(tmp_path))
    assert (none, compiled >= 3) == (0, True)
    assert train(str(tmp_path)) == (compiled, 0, score)
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.glob(f"*{cache.ENTRY}"))) == compiled
    assert not list(folder.glob(f"*{cache.UNFINISHED}"))


def test_it_is_in_the_users_cache_folder_unless_told_otherwise(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "caches")}
    environment = dict(home)
    folder = cache.configure(environment)
    assert folder == tmp_path / "caches" / "jaxbench" / f"xla-{cache.processor_digest()}"
    assert environment[cache.JAX_FOLDER] == str(folder)
    assert environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0"

    for given, chosen in (({cache.VARIABLE: str(tmp_path / "a")}, None), ({}, str(tmp_path / "a"))):
        environment = home | given
        assert cache.configure(environment, chosen) == tmp_path / "a" / (folder or Path()).name
    for given, chosen in (({cache.VARIABLE: "off"}, None), ({cache.VARIABLE: "/x"}, "off")):
        environment = home | given
        assert cache.configure(environment, chosen) is None
        assert environment == home | given


@pytest.mark.parametrize("name", cache.OF_JAX)
def test_what_the_user_told_jax_stays(name: str, tmp_path: Path) -> None:
    environment = {name: "mine", "HOME": str(tmp_path)}
    assert cache.configure(environment, str(tmp_path / "other")) is None
    assert environment == {name: "mine", "HOME": str(tmp_path)}


def test_a_folder_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment: dict[str, str] = {}
    assert cache.configure(environment, str(tmp_path / "file")) is None
    assert environment == {}


def test_nothing_is_set_once_jax_runs() -> None:
    environment: dict[str, str] = {}
    assert not devices.configure(environment, "somewhere")
    assert environment == {}


def test_the_entries_used_longest_ago_go_first(tmp_path: Path) -> None:
    for place in range(5):
        path = tmp_path / f"{place}{cache.ENTRY}"
        path.write_bytes(bytes(100))
        os.utime(path, (1e9 + 10 * place, 1e9 - place))
    left = tmp_path / f"x{cache.UNFINISHED}"
    left.write_bytes(bytes(100))
    os.utime(left, (1e9, 1e9))
    (tmp_path / f"y{cache.UNFINISHED}").write_bytes(bytes(100))
    (tmp_path / "others").write_bytes(bytes(1000))
    cache.prune(tmp_path, largest=250)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["3-cache", "4-cache", "others", "y.unfinished"]


def test_an_entry_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The installed jax writes where we think; eight threads that write one entry leave one."""
    from jax._src.lru_cache import LRUCache

    assert cache.write_whole_entries()
    assert cache.write_whole_entries(), "twice is once"
    entries = LRUCache(str(tmp_path), max_size=-1)
    value = bytes(range(256)) * 1000
    threads = [threading.Thread(target=entries.put, args=("k", value)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert entries.get("k") == value
    assert [path.name for path in tmp_path.iterdir()] == [f"k{cache.ENTRY}"]

    def killed(*_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        entries.put("other", value)
    assert entries.get("other") is None


def test_the_users_options_for_xla_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"xla_backend_optimization_level": 1, "xla_other": True}
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=3 --xla_others=1")
    assert executables.left_open(options) == {"xla_other": True}
    monkeypatch.delenv("XLA_FLAGS")
    assert executables.left_open(options) == options


def test_nothing_is_traced_or_compiled_again_between_blocks_seeds_and_arms() -> None:
    """One study's programs serve other seeds, values, arms that differ in numbers, and counts."""
    ridge = Intervention(
        name="ridge",
        summary="for tests",
        hyper={"weight": Hyper(0.0, 0.0, 9.0, "of the penalty")},
        loss_term=lambda ctx, params, *_: ctx.hyper["weight"] * (params["kernel"] ** 2).sum(),
    )
    recipe = small_recipe(ridge)
    engine = Engine(layout=cpu_layout(2, slots=2))
    seen: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, _, **__: seen.append(name))
    engine.train(runs_of(recipe, 13, weight=0.1))
    compiled = [name for name in seen if name.endswith("backend_compile_duration")]
    assert len(compiled) >= 3, "start, epoch, evaluate"
    seen.clear()
    engine.train([*runs_of(recipe, 30, weight=0.0)[20:], *runs_of(recipe, 5, weight=0.3)])
    engine.train(runs_of(recipe, 1, weight=0.2))
    assert not [name for name in seen if "/compile/" in name]
