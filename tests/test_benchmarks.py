"""jaxbench's own side of the benchmark against PyTorch works; the other needs torch."""

from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_the_rival_trains_is_written_and_trained_here(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script reads the engine's own batch order, so that it breaks where that changes."""
    monkeypatch.syspath_prepend(SCRIPTS)
    import rival_benchmark as rivals

    workload = rivals.TINY[place]
    assert rivals.export(workload, tmp_path / "data.npz") > 0
    with np.load(tmp_path / "data.npz") as arrays:
        orders = [arrays[name] for name in arrays if "order" in name]
    assert orders
    for order in orders:
        for epoch in order:
            assert len(set(epoch.ravel())) == epoch.size  # each sample at most once an epoch
    done = rivals.train_here(workload, repeats=1)
    assert len(done["losses"]) == workload.runs
    assert np.isfinite(done["losses"]).all()
