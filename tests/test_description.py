"""`jaxbench list NAME` shows what one component is and takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxbench import registry
from jaxbench.base import JaxbenchError
from jaxbench.description import argument_lines, describe


def test_options_have_type_default_range_and_meaning() -> None:
    lines = describe("tabular").splitlines()
    assert lines[0].startswith("track tabular: Friedman")
    [inputs] = [line for line in lines if line.startswith("    inputs ")]
    assert " ".join(inputs.split()) == (
        "inputs int = 10 at least 5: how many inputs a sample has; those after the fifth do not "
        "matter."
    )
    assert lines[-1] == "  score: mean squared error (squared units of y), lower"


def test_an_intervention_has_its_hyperparameters_and_needs() -> None:
    text = describe("stability_penalty")
    assert text.startswith("study stability_penalty: ")
    assert "\n\nintervention stability_penalty: " in text
    assert "weight  = 1    from 0 to 1e+06, does nothing at 0: weight of the penalty" in text
    assert "  needs a model or track that is: recurrent" in text
    assert '"norm" or "power" = "norm"' in text


@pytest.mark.slow
@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_option_of_every_component_is_explained(kind: registry.Kind) -> None:
    for name in registry.available(kind):
        component = registry.load(kind, name)
        options = registry.options_model(component.build).model_fields
        assert options.keys() <= argument_lines(component.build).keys(), name
        for option in options:
            assert f"    {option} " in describe(name)


def test_a_wrong_name_gives_the_nearest() -> None:
    with pytest.raises(JaxbenchError, match="named 'stability_penalt'; did you mean stability_pen"):
        describe("stability_penalt")


def test_a_file_is_described_as_what_it_builds(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(registry.load("models", "mlp_tiny").source_path.read_text())
    assert describe(str(path)).startswith("model mine: ")
