"""A component or study in words: what it is, and the options and hyperparameters that it takes."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from jaxbench import config, registry
from jaxbench.base import Intervention, JaxbenchError, Model, Track
from jaxbench.nearest import nearest

WIDEST = 36
"""Longer cells do not make their column wider."""

BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def describe(name: str) -> str:
    """Describe everything that has this name: studies, tracks, models and interventions.

    Args:
        name: as `jaxbench list` has it, or the path of a .py file.

    Raises:
        JaxbenchError: there is none, with the nearest name; or a file that cannot be imported.
    """
    if registry.is_path(name):
        return "\n".join(_component(_of_file(name)))
    studies = config.available()
    blocks = []
    if name in studies:
        path = config.shipped_folder() / f"{name}.toml"
        blocks.append([f"study {name}: {studies[name]}", f"  {path}"])
    known = {kind: registry.available(kind) for kind in registry.KINDS}
    blocks += [
        list(_component(registry.load(kind, name)))
        for kind in registry.KINDS
        if name in known[kind]
    ]
    if not blocks:
        names = dict.fromkeys([*studies, *(each for listed in known.values() for each in listed)])
        raise JaxbenchError(
            f"no study, track, model or intervention named {name!r}{nearest(name, names)} "
            f"(`jaxbench list` has all names; or a path ending in .py)"
        )
    return "\n\n".join("\n".join(block) for block in blocks)


def _of_file(name: str) -> registry.Component:
    """Find out of which kind a file is, by what it builds."""
    component = registry.load("interventions", name, Path.cwd())
    for kind, given in (("interventions", {}), ("tracks", {}), ("models", {"outputs": 1})):
        found = registry.load(kind, name, Path.cwd())  # type: ignore[arg-type]
        try:
            found.make({}, **given)
        except Exception:
            continue
        return found
    return component


def _component(component: registry.Component) -> Iterator[str]:
    """Write a component line by line."""
    yield f"{component.kind.removesuffix('s')} {component.name}: {component.summary}"
    yield f"  {component.source_path}"
    rows = list(options(component))
    yield "  options:" if rows else "  no options"
    yield from _aligned(rows)
    try:
        built = component.make({}, **({"outputs": 1} if component.kind == "models" else {}))
    except Exception:
        return  # an option without a default: nothing more is known without it
    if isinstance(built, Intervention):
        yield from _intervention(built)
    else:
        yield f"  features: {', '.join(sorted(built.features)) or 'none'}"
    if isinstance(built, Track):
        yield f"  score: {built.metric.name} ({built.metric.unit}), {built.metric.direction}"
    if isinstance(built, Model) and built.reads:
        yield f"  reads: {built.reads}"


def _intervention(built: Intervention) -> Iterator[str]:
    if built.hyper:
        yield "  hyperparameters (in a grid or fixed; learning_rate besides):"
        rows = []
        for name, hyper in built.hyper.items():
            neutral = f", does nothing at {hyper.neutral:g}" if hyper.neutral is not None else ""
            text = f"from {hyper.low:g} to {hyper.high:g}{neutral}: {hyper.summary}"
            rows.append((name, f"= {hyper.default:g}", text))
        yield from _aligned(rows)
    for title, names in (
        ("needs a model or track that is", sorted(built.requires)),
        ("signatures", [each.name for each in built.signatures]),
        ("endpoints", [each.name for each in built.endpoints]),
    ):
        if names:
            yield f"  {title}: {', '.join(names)}"


def options(component: registry.Component) -> Iterator[tuple[str, str, str]]:
    """Give each option of `build`: its name, its type with the default, its range and meaning."""
    meanings = argument_lines(component.build)
    model = registry.options_model(component.build)
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else f"= {_value(field.default)}"
        bounds = ", ".join(_bounds([*field.metadata, *_inner(field.annotation)]))
        text = ": ".join(part for part in (bounds, meanings.get(name, "")) if part)
        yield name, f"{_type(field.annotation)} {default}", text


def argument_lines(function: Any) -> dict[str, str]:
    """Read from a docstring's `Args:` what each argument is, on one line."""
    documented = inspect.getdoc(inspect.unwrap(function)) or ""
    _, _, section = documented.partition("Args:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break
        argument = re.match(r"    (\w[\w, ]*): (.*)", line)
        if argument:
            names, text = argument.groups()
            name = names
            found |= {each.strip(): text for each in names.split(",")}
        elif name and line.strip():
            for each in name.split(","):
                found[each.strip()] += f" {line.strip()}"
    return found


def _type(annotation: Any) -> str:
    """Write a type as people do: `int`, `"a" or "b"`, `list of int`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return " or ".join(map(_value, arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(each) for each in arguments if each is not type(None))
    if origin in (tuple, list):
        return f"list of {_type(arguments[0])}" if arguments else "list"
    if origin in (dict, Mapping):
        return f"table of {_type(arguments[1])}"
    return {str: "text", bool: "true or false"}.get(
        annotation, getattr(annotation, "__name__", str(annotation))
    )


def _inner(annotation: Any) -> list[Any]:
    """Gather the bounds inside a type, such as those of a list's entries."""
    found = list(getattr(annotation, "__metadata__", ()))
    for each in typing.get_args(annotation):
        found += _inner(each)
    return found


def _bounds(metadata: list[Any]) -> Iterator[str]:
    for each in metadata:
        for name, words in BOUNDS.items():
            value = getattr(each, name, None)
            if value is not None:
                yield f"{words} {value:g}"


def _value(value: Any) -> str:
    """Write a default as in TOML; nothing is `unset`."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    return str(value)


def _aligned(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """Indent rows and align their columns."""
    widths = [
        max((len(row[column]) for row in rows if len(row[column]) <= WIDEST), default=0)
        for column in (0, 1)
    ]
    for name, kind, text in rows:
        yield f"    {name:<{widths[0]}}  {kind:<{widths[1]}}  {text}".rstrip()
