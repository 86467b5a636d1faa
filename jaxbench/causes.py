"""What an exception of a user's file means, in one line: what was asked for, and what there is."""

from __future__ import annotations

import ast
import dataclasses
import linecache
import traceback
import types
from collections.abc import Iterator, Mapping
from typing import Any

from jaxbench.base import JaxbenchError
from jaxbench.nearest import nearest

LONGEST = 300
"""Characters of an exception's text that are shown."""

TRACED = (
    "`ctx.hyper` values and arrays are traced: use jnp.where or jax.lax.cond instead of a Python "
    "`if`, jnp functions instead of numpy's, and no float(), int(), bool() or .item()"
)


def said(error: BaseException) -> str:
    """Say what an exception means.

    Of a missing key or attribute it names the nearest that the object has; of a traced value that
    Python was to know, what to write instead of it.
    """
    if isinstance(error, JaxbenchError):
        return " ".join(str(error).split())
    if isinstance(error, KeyError):
        return f"KeyError: {_of_key(error) or error}"
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, AttributeError):
        return text + _of_attribute(error)
    if _is_of_tracing(error):
        return f"{type(error).__name__}: {TRACED}"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _is_of_tracing(error: BaseException) -> bool:
    """Whether Python asked a traced value for what only its run will know."""
    from jax import errors

    kinds = (
        errors.ConcretizationTypeError,
        errors.NonConcreteBooleanIndexError,
        errors.TracerArrayConversionError,
        errors.TracerIntegerConversionError,
    )
    return isinstance(error, kinds)


def _of_attribute(error: AttributeError) -> str:
    """Name the nearest attribute, and the fields of a tuple or dataclass that has names for them.

    Modules raise without saying what was asked for; of those nothing is known.
    """
    if error.obj is None or error.name is None:
        return ""
    owner = error.obj
    fields = list(getattr(owner, "_fields", ()))
    if dataclasses.is_dataclass(owner):
        fields = [field.name for field in dataclasses.fields(owner)]
    has = f" (it has {', '.join(fields)})" if fields else ""
    public = [name for name in dir(owner) if not name.startswith("_")]
    return nearest(error.name, fields or public) + has


def _of_key(error: KeyError) -> str | None:
    """Say which mapping of the failing line lacks a key, and which keys it has; None if unknown."""
    name = error.args[0] if error.args else None
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        for read in _subscripts(frame, line):
            try:
                mapping = _value(read.value, frame)
                asked = _value(read.slice, frame)
            except LookupError:
                continue
            if isinstance(mapping, Mapping) and asked == name and name not in mapping:
                keys = [str(key) for key in mapping]
                return (
                    f"there is no {name!r}{nearest(str(name), keys)}"
                    f" ({ast.unparse(read.value)} has {', '.join(keys) or 'nothing'})"
                )
    return None


def _subscripts(frame: types.FrameType, line: int) -> Iterator[ast.Subscript]:
    """Give what a line of source reads by subscript."""
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and node.lineno <= line <= (node.end_lineno or 0):
            yield node


def _value(node: ast.expr, frame: types.FrameType) -> Any:
    """Read a name, constant, attribute or item as the frame had it; nothing is called.

    Raises:
        LookupError: it is something else, or is not there.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return {**frame.f_globals, **frame.f_locals}[node.id]
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        if isinstance(owner, tuple) or dataclasses.is_dataclass(owner):
            return getattr(owner, node.attr, None)
    if isinstance(node, ast.Subscript):
        owner = _value(node.value, frame)
        if isinstance(owner, Mapping | tuple | list):
            try:
                return owner[_value(node.slice, frame)]
            except TypeError:
                pass
    raise LookupError(ast.unparse(node))
