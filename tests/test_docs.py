"""What the documents show is run, links lead somewhere, and the nav has every page."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pages
import pytest

from jaxbench import cli

NEEDS = {"logging": ("mlflow", "tensorboardX"), "pruning_your_own_network": ("equinox",)}
"""Packages without which a document's blocks cannot run."""
QUICK = ("pruning_your_own_network", "stability_penalty")
"""Documents that train nothing."""
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#\s]+)?(?:#([^)\s]+))?\)")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The hook that makes the reference pages."""
    path = pages.HOME / "scripts" / "docs_pages.py"
    spec = importlib.util.spec_from_file_location("docs_pages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in QUICK else pytest.mark.slow)
        for path in pages.documents()
        if any(block.runs for block in pages.blocks(path))
    ],
)
def test_every_block_runs(path: Path, tmp_path: Path) -> None:
    for package in NEEDS.get(path.stem, ()):
        pytest.importorskip(package)
    assert pages.run(path, tmp_path) == sum(block.runs for block in pages.blocks(path))


def test_few_blocks_are_not_run() -> None:
    left_out = [
        (path.name, block.reason)
        for path in pages.documents()
        for block in pages.blocks(path)
        if block.reason
    ]
    assert len(left_out) <= 6, left_out


def shell_lines() -> list[str]:
    """The lines of all shell blocks that call jaxbench, those that are not run too."""
    return [
        line
        for path in pages.documents()
        for block in pages.blocks(path)
        if block.language == "sh"
        for line in block.text.replace("\\\n", " ").splitlines()
        if re.search(r"\bjaxbench [a-z-]", line)
    ]


@pytest.mark.parametrize("line", shell_lines())
def test_the_commands_and_options_exist(line: str) -> None:
    for command in re.findall(r"\bjaxbench ([a-z-].*?)(?:\s+#|&&|&|\"|$)", line):
        words = command.split()
        known = cli.cli.commands[words[0]]
        names = {option for parameter in known.params for option in parameter.opts}
        assert {word for word in words[1:] if word.startswith("--")} <= names


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as MkDocs makes them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    plain = [re.sub(r"[^\w\s-]", "", title.lower()).strip() for title in titles]
    return {re.sub(r"[-\s]+", "-", title) for title in plain}


def test_links_lead_somewhere(generator: ModuleType) -> None:
    """To a file of the checkout, or to a page that is made; a heading of it, if one is named."""
    made = {pages.DOCS / path for path in generator.paths()}
    outside = [pages.HOME / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
    for path in [*pages.documents(), *outside]:
        for target, heading in LINK.findall(path.read_text("utf-8")):
            if target.startswith(("http:", "https:", "mailto:")):
                continue
            there = (path.parent / target).resolve() if target else path
            assert there.exists() or there in made, f"{path.name} links to {target}"
            if heading and there.exists():
                assert heading in anchors(there.read_text("utf-8")), f"{path.name}: #{heading}"


def test_the_nav_has_every_page() -> None:
    nav = (pages.HOME / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", nav, re.M)
    assert sorted(listed) == [str(path.relative_to(pages.DOCS)) for path in pages.documents()]
    assert "reference/" in nav


def test_a_component_has_a_page_with_its_words(generator: ModuleType) -> None:
    """Of each kind one; the build makes all of them."""
    page = generator.component_page("interventions", "stability_penalty")
    assert "## Hyperparameters" in page
    assert "### lift_predicts_growth" in page
    assert "`stability_robustness`" in page
    assert "../../ideas/stability_penalty.md" in page
    assert "## Score" in generator.component_page("tracks", "tabular")
    assert "| `hidden` |" in generator.component_page("models", "mlp_tiny")


def test_every_stable_name_has_its_place(generator: ModuleType) -> None:
    import jaxbench

    listed = {name for some in generator.PYTHON.values() for name in some}
    packages = {"__version__", *jaxbench._PACKAGES}
    assert listed == {f"jaxbench.{name}" for name in set(jaxbench.__all__) - packages}


def test_equations_become_mathml(generator: ModuleType) -> None:
    pytest.importorskip("latex2mathml")
    page = generator.with_mathml(r'<p><span class="arithmatex">\(a_1 &lt; b\)</span></p>')
    assert "<math" in page
    assert "&lt;" in page
    assert "arithmatex" not in page
