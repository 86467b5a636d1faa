"""Makes the documentation's reference pages from the code; a hook of MkDocs (see mkdocs.yml).

Every track, model and intervention that the registry knows has a page: what its file says of it,
its options, hyperparameters, signatures, and the studies that use it.  Configs, reports and
commands have one each, from their schemas and their help.  Equations become MathML, so that pages
need no script and nothing from other hosts.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FOLDER = "reference"
KINDS = {"tracks": "Tracks", "models": "Models", "interventions": "Interventions"}
PYTHON = {
    "Studies": (
        "jaxbench.run_study",
        "jaxbench.run_tracks",
        "jaxbench.load_config",
        "jaxbench.Config",
        "jaxbench.Report",
    ),
    "Judging": ("jaxbench.compare",),
    "Types of components": ("jaxbench.Track", "jaxbench.Model", "jaxbench.Intervention"),
    "Errors": ("jaxbench.JaxbenchError",),
}
"""The stable names, by what they are for; `interventions`, `judging`, ... are packages of them."""


# --------------------------------------------------------------------------------------------------
# Components
# --------------------------------------------------------------------------------------------------


def names() -> dict[str, list[str]]:
    """List the components of each kind that come with jaxbench."""
    from jaxbench import registry

    return {kind: sorted(registry.available(kind)) for kind in registry.KINDS}


def component_page(kind: str, name: str) -> str:
    """Write the page of a track, model or intervention."""
    from jaxbench import description, registry

    component = registry.load(kind, name)  # type: ignore[arg-type]
    lines = [f"# {name}", "", prose(component.module.__doc__ or ""), ""]
    guide = DOCS / "ideas" / f"{name}.md"
    if kind == "interventions" and guide.exists():
        lines += [f"The idea, step by step: [{name}](../../ideas/{name}.md).", ""]
    lines += ["## Options", ""]
    rows = list(description.options(component))
    lines += table(("option", "type and default", "meaning"), rows) if rows else ["None.", ""]
    try:
        built = component.make({}, **({"outputs": 1} if kind == "models" else {}))
    except Exception:  # an option without a default: nothing more is known without it
        built = None
    lines += list(of_built(kind, built))
    used = studies_with(kind, name)
    if used:
        lines += ["## Studies", ""]
        lines += [f"* `{study}`: {title}" for study, title in used.items()]
    return "\n".join([*lines, ""])


def of_built(kind: str, built: Any) -> Iterator[str]:
    """Write what a component says of itself once it is built with its defaults."""
    if built is None:
        return
    if kind == "tracks":
        metric = built.metric
        yield from ["## Score", "", f"{metric.name} ({metric.unit}); {metric.direction} is better."]
        yield ""
        yield from _features("A model or idea may ask for", built.features)
        return
    if kind == "models":
        if built.reads:
            yield from [f"It reads {built.reads}.", ""]
        yield from _features("Features that ideas may ask for", built.features)
        return
    if built.hyper:
        yield from ["## Hyperparameters", "", "In a grid or fixed; `learning_rate` besides.", ""]
        rows = [
            (
                name,
                f"{each.default:g}",
                f"{each.low:g} to {each.high:g}",
                "" if each.neutral is None else f"{each.neutral:g}",
                each.summary,
            )
            for name, each in built.hyper.items()
        ]
        yield from table(("name", "default", "range", "does nothing at", "meaning"), rows)
    yield from _features("It needs a model or track that is", built.requires)
    if built.signatures:
        yield from ["## Signatures", ""]
    for each in built.signatures:
        yield from [f"### {each.name}", "", f"{escaped(each.claim)}.".replace("..", "."), ""]
        if each.reported_rule:
            yield from ["The rule of the reference report: shown beside, it decides nothing.", ""]
        yield from [f"* Prediction: {escaped(each.formula)}"]
        limits = ", ".join(f"{key} {value:g}" for key, value in each.tolerance.items())
        yield from [f"* Limits: {escaped(limits)}"] if limits else []
        yield from [f"* Null: {escaped(each.null_name)}"] if each.null_name else []
        yield from [f"* Must fail on: {', '.join(each.controls)}"] if each.controls else []
        yield ""
    if built.endpoints:
        yield from ["## Endpoints", "", "Scalars by which a comparison may be made too.", ""]
        yield from table(("name", "meaning"), [(e.name, e.summary) for e in built.endpoints])
    if built.limitations:
        yield from ["## Limitations", "", *(f"* {escaped(each)}" for each in built.limitations), ""]


def _features(title: str, features: Any) -> Iterator[str]:
    if features:
        yield from [f"{title}: {', '.join(f'`{each}`' for each in sorted(features))}.", ""]


def studies_with(kind: str, name: str) -> dict[str, str]:
    """Give the shipped studies that name a component, with their titles."""
    found = {}
    for path in sorted((ROOT / "configs").glob("*.toml")):
        study = tomllib.loads(path.read_text("utf-8"))
        arms = study.get("arms", {}).values()
        used = {
            "tracks": {study.get("track", {}).get("name")},
            "models": {study.get("model", {}).get("name")}
            | {arm["model"]["name"] for arm in arms if "name" in arm.get("model", {})},
            "interventions": {arm.get("intervention") for arm in arms},
        }
        if name in used[kind]:
            found[path.stem] = study.get("title", "")
    return found


def list_page(kind: str) -> str:
    """Write a table of all components of a kind."""
    from jaxbench import registry

    found = registry.available(kind)  # type: ignore[arg-type]
    rows = [(f"[{name}]({kind}/{name}.md)", prose(summary)) for name, summary in found.items()]
    return "\n".join([f"# {KINDS[kind]}", "", *table(("name", "what it is"), rows, raw=True)])


def studies_page() -> str:
    """Write a table of the studies that come with jaxbench."""
    from jaxbench import config

    rows = [(f"`{name}`", escaped(title)) for name, title in config.available().items()]
    head = ["# Studies", "", "`jaxbench run NAME` runs one; each is a file in `configs/`.", ""]
    return "\n".join([*head, *table(("study", "question"), rows, raw=True)])


# --------------------------------------------------------------------------------------------------
# Schemas, commands, Python
# --------------------------------------------------------------------------------------------------


def schema_page(title: str, intro: str, schema: Mapping[str, Any]) -> str:
    """Write the objects of a JSON Schema as tables, the outermost first."""
    parts = {title: schema, **schema.get("$defs", {})}
    lines = [f"# {title}", "", intro, ""]
    for name, part in parts.items():
        properties = part.get("properties")
        if not properties:
            continue
        if part is not schema:
            lines += [f"## {name}", ""]
            lines += [escaped(part["description"]), ""] if "description" in part else []
        rows = []
        for key, value in properties.items():
            default = value.get("default")
            given = f"`{json.dumps(default)}`" if isinstance(default, bool | int | float) else ""
            if isinstance(default, str) and default:
                given = f"`{json.dumps(default)}`"
            if key in part.get("required", ()):
                given = "required"
            rows.append((f"`{key}`", kind_of(value), given, escaped(value.get("description", ""))))
        lines += table(("key", "type", "default", "meaning"), rows, raw=True)
    return "\n".join(lines)


def kind_of(value: Mapping[str, Any]) -> str:
    """Write a schema's type in words, with its bounds."""
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "enum" in value:
        return " or ".join(f"`{each}`" for each in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in value:
            return " or ".join(dict.fromkeys(kind_of(each) for each in value[several]))
    if value.get("type") == "array":
        return f"list of {kind_of(value.get('items', {}))}"
    named = [*value.get("patternProperties", {}).values(), value.get("additionalProperties")]
    if value.get("type") == "object" and isinstance(named[0], Mapping):
        return f"table of {kind_of(named[0])}"
    limits = {
        "minimum": "from", "exclusiveMinimum": "above",
        "maximum": "to", "exclusiveMaximum": "below",
    }  # fmt: skip
    bounds = [f"{words} {value[key]:g}" for key, words in limits.items() if key in value]
    return ", ".join([value.get("type", "anything"), *bounds])


def commands_page() -> str:
    """Write each command's help."""
    import click

    from jaxbench import cli

    lines = ["# Commands", "", "Each also answers `--help`.", ""]
    for name, command in sorted(cli.cli.commands.items()):
        context = click.Context(command, info_name=f"jaxbench {name}", max_content_width=96)
        lines += [f"## jaxbench {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)


def python_page() -> str:
    """Write the page of the stable Python names, which mkdocstrings fills from docstrings."""
    import jaxbench

    lines = ["# Python", "", prose(jaxbench.__doc__ or ""), ""]
    for title, listed in PYTHON.items():
        lines += [f"## {title}", ""]
        for name in listed:
            found = getattr(jaxbench, name.removeprefix("jaxbench."))
            lazily = jaxbench._MODULE_OF[name.removeprefix("jaxbench.")] == "jaxbench.judging"
            lines += [f"::: {found.__module__}.{found.__name__}" if lazily else f"::: {name}", ""]
    return "\n".join(lines)


def judging_page() -> str:
    """Write the page of `jaxbench.judging`, which needs no jax."""
    from jaxbench import judging

    lines = ["# jaxbench.judging", "", prose(judging.__doc__ or ""), ""]
    for name in dir(judging):
        found = getattr(judging, name)
        if callable(found) and hasattr(found, "__name__"):
            lines += [f"::: {found.__module__}.{found.__name__}", ""]
    return "\n".join(lines)


def pages() -> Iterator[tuple[str, str, str]]:
    """Give every page that is made: its group in the nav ("" for none), its path and its text."""
    from jaxbench.reporting.schema import config_schema, report_schema

    for kind, title in KINDS.items():
        yield title, f"{FOLDER}/{kind}.md", list_page(kind)
        for name in names()[kind]:
            yield title, f"{FOLDER}/{kind}/{name}.md", component_page(kind, name)
    yield "", f"{FOLDER}/studies.md", studies_page()
    config = "What a study's TOML file may say (`jaxbench schema config` prints the JSON Schema)."
    yield "", f"{FOLDER}/config.md", schema_page("Config", config, config_schema())
    report = "The stable fields of `report.json` (`jaxbench schema report` prints the JSON Schema)."
    yield "", f"{FOLDER}/report.md", schema_page("Report", report, report_schema())
    yield "", f"{FOLDER}/commands.md", commands_page()
    yield "Python", f"{FOLDER}/python.md", python_page()
    yield "Python", f"{FOLDER}/judging.md", judging_page()


def paths() -> set[str]:
    """Give the paths of all pages that are made, without making them."""
    each = {f"{FOLDER}/{kind}/{name}.md" for kind, found in names().items() for name in found}
    single = ("studies", "config", "report", "commands", "python", "judging", *KINDS)
    return each | {f"{FOLDER}/{name}.md" for name in single}


# --------------------------------------------------------------------------------------------------
# Text
# --------------------------------------------------------------------------------------------------


def prose(text: str) -> str:
    """Write a docstring as Markdown: what is not code is escaped, lists get their empty line."""
    return re.sub(r"\n(?=- )", "\n\n", re.sub(r"\n\n(?=- )", "\n", escaped(text.strip())))


def escaped(text: str) -> str:
    """Escape what Markdown would read as markup; code between backticks stays."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*_<>\[\]|$\\])", r"\\\1", piece)
        for piece in pieces
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, raw: bool = False) -> list[str]:
    """Write a table; the first two cells of a row are code unless the rows are Markdown already."""

    def cell(text: str, column: int) -> str:
        if not raw:
            text = f"`{text}`" if column < min(2, len(head) - 1) and text else escaped(text)
        return text.replace("|", "\\|").replace("\\\\|", "\\|").replace("\n", " ")

    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join(cell(text, place) for place, text in enumerate(row)) for row in rows]
    return [*(f"| {line} |" for line in lines), ""]


def with_mathml(page: str) -> str:
    """Replace each equation, which arithmatex has marked in a page's HTML, by MathML.

    Raises:
        ValueError: an equation has a command that the converter does not know.
    """
    from html import unescape

    from latex2mathml.converter import convert

    def one(found: re.Match[str]) -> str:
        display = found[1] == "div"
        tex = unescape(found[2]).strip()
        made = str(convert(tex[2:-2].strip(), display="block" if display else "inline"))
        unknown = re.search(r">(\\\w+)<", made)
        if unknown:
            raise ValueError(f"latex2mathml does not know {unknown[1]}, in {tex}")
        return made

    return re.sub(r'<(div|span) class="arithmatex">(.*?)</\1>', one, page, flags=re.S)


# --------------------------------------------------------------------------------------------------
# MkDocs
# --------------------------------------------------------------------------------------------------

made: list[tuple[str, str, str]] = []


def on_config(config: Any) -> Any:
    """Put the pages that are made into the nav."""
    made[:] = pages()
    groups: dict[str, list[str]] = {}
    for group, path, _ in made:
        groups.setdefault(group, []).append(path)
    listed: list[Any] = [{title: groups[title]} for title in (*KINDS.values(), "Python")]
    for entry in config.nav:
        if isinstance(entry, dict) and entry.get("Reference") == f"{FOLDER}/":
            entry["Reference"] = [*groups[""], *listed]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    from mkdocs.structure.files import File

    for _, path, text in made:
        files.append(File.generated(config, path, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Write equations as MathML."""
    return with_mathml(html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that would load anything from another host."""
    from mkdocs.exceptions import PluginError

    loaded = re.search(
        r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"', output
    )
    if loaded:
        raise PluginError(f"{page.file.src_uri} loads from another host: {loaded[0]}")
    return output
